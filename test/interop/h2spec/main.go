// Command h2spec runs every case of h2spec against an HTTP/2 server behind mutual TLS and prints one JSON line for each.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

type result struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Outcome     string `json:"outcome"`
	Why         string `json:"why,omitempty"`
}

// A case with the name it has in h2spec's own reports.
type namedCase struct {
	id   string
	test *spec.TestCase
}

func main() {
	host := flag.String("host", "127.0.0.1", "address of the server")
	port := flag.Int("port", 15008, "port of the server")
	cert := flag.String("cert", "", "client certificate, PEM")
	key := flag.String("key", "", "its key, PEM")
	timeout := flag.Duration("timeout", 8*time.Second, "how long a case waits for a frame")
	parallel := flag.Int("parallel", 12, "cases at once")
	flag.Parse()

	c := &config.Config{
		Host: *host, Port: *port, Path: "/", Timeout: *timeout, MaxHeaderLen: 4000,
		Strict: true, TLS: true, Insecure: true, CertFile: *cert, CertKeyFile: *key,
	}
	var cases []namedCase
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		cases = append(cases, casesOf(group)...)
	}
	results := make([]result, len(cases))
	var wait sync.WaitGroup
	slots := make(chan struct{}, *parallel)
	for i, one := range cases {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-slots }()
			results[i] = run(c, one)
		}()
	}
	wait.Wait()
	out := json.NewEncoder(os.Stdout)
	for _, one := range results {
		if err := out.Encode(one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func casesOf(group *spec.TestGroup) []namedCase {
	var cases []namedCase
	for i, test := range append(append([]*spec.TestCase{}, group.Tests...), group.StrictTests...) {
		cases = append(cases, namedCase{fmt.Sprintf("%s/%d", group.ID(), i+1), test})
	}
	for _, inner := range group.Groups {
		cases = append(cases, casesOf(inner)...)
	}
	return cases
}

func run(c *config.Config, one namedCase) (r result) {
	r = result{ID: one.id, Description: one.test.Desc, Outcome: "passed"}
	defer func() {
		if broken := recover(); broken != nil {
			r.Outcome, r.Why = "failed", fmt.Sprint("panic: ", broken)
		}
	}()
	conn, err := spec.Dial(c)
	if err != nil {
		r.Outcome, r.Why = "failed", "dial: "+err.Error()
		return r
	}
	defer conn.Close()
	err = one.test.Run(c, conn)
	var failed *spec.TestError
	switch {
	case err == nil:
	case errors.Is(err, spec.ErrSkipped):
		r.Outcome, r.Why = "skipped", "h2spec could not set the case up"
	case errors.As(err, &failed):
		r.Outcome = "failed"
		r.Why = fmt.Sprintf("expected %s; got %s", strings.Join(failed.Expected, " or "), failed.Actual)
	default:
		r.Outcome, r.Why = "failed", err.Error()
	}
	return r
}
