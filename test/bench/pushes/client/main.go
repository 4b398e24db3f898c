// Command client opens many connections to a control plane and throws away what it is sent. It acknowledges every
// response, counts resources and bytes, and notes how old the resource "probe" is when it arrives.
//
// It reads commands from standard input and prints one JSON line for each answer:
//
//	open N            opens N more clients; answers when each has its first whole answer
//	expect N SECONDS  answers when each client was sent N more resources
//	plain N SECONDS   N clients read /bytes to its end, without gRPC
//	probed N SECONDS  answers when N probes have arrived since the last "ages", all clients together
//	ages              answers with the percentiles of the probes' ages since the last call
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	addressType = "type.googleapis.com/istio.workload.Address"
	method      = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	// Larger responses hold no probe, so their resources are only counted.
	probeResponseBytes = 64 * 1024
	dialsAtOnce        = 32
)

var (
	base   = flag.String("address", "", "https://host:port")
	caFile = flag.String("ca", "", "root certificate")
	token  = flag.String("token", "", "bearer token")
	name   = flag.String("name", "", "name in the server's certificate, where it is not the host of the address")

	bytesRead atomic.Int64
	lost      atomic.Int64

	mutex    sync.Mutex
	progress = sync.NewCond(&mutex)
	clients  []*client
	ages     []float64
	reasons  []string
)

// client is one stream; its counts are guarded by mutex.
type client struct {
	resources int
	answered  bool
	lost      bool
}

func main() {
	flag.Parse()
	pem, err := os.ReadFile(*caFile)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			progress.Broadcast()
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		number := func(position int) int {
			value, err := strconv.Atoi(words[position])
			check(err)
			return value
		}
		switch words[0] {
		case "open":
			open(number(1), roots)
		case "expect":
			expect(number(1), time.Duration(number(2))*time.Second)
		case "plain":
			plain(number(1), time.Duration(number(2))*time.Second, roots)
		case "probed":
			probed(number(1), time.Duration(number(2))*time.Second)
		case "ages":
			reportAges()
		default:
			check(fmt.Errorf("unknown command %q", words[0]))
		}
	}
}

func transport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, ServerName: *name, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
}

func open(count int, roots *x509.CertPool) {
	begun := time.Now()
	places := make(chan struct{}, dialsAtOnce)
	mutex.Lock()
	from := len(clients)
	for range count {
		clients = append(clients, &client{})
	}
	mine := clients[from:]
	mutex.Unlock()
	for _, one := range mine {
		places <- struct{}{}
		go func() {
			opened := sync.OnceFunc(func() { <-places })
			err := follow(one, roots, opened)
			opened()
			mutex.Lock()
			one.lost = true
			if len(reasons) < 5 {
				reasons = append(reasons, err.Error())
			}
			mutex.Unlock()
			lost.Add(1)
			progress.Broadcast()
		}()
	}
	settled := wait(5*time.Minute, func(one *client) bool { return one.answered || one.lost })
	mutex.Lock()
	for _, one := range clients {
		one.resources = 0
	}
	mutex.Unlock()
	report(map[string]any{"done": settled, "ms": time.Since(begun).Milliseconds()})
}

// wait returns false when not every client is done in time.
func wait(limit time.Duration, done func(*client) bool) bool {
	end := time.Now().Add(limit)
	mutex.Lock()
	defer mutex.Unlock()
	for slices.ContainsFunc(clients, func(one *client) bool { return !done(one) }) {
		if time.Now().After(end) {
			return false
		}
		progress.Wait()
	}
	return true
}

func expect(count int, limit time.Duration) {
	begun := time.Now()
	from := bytesRead.Load()
	settled := wait(limit, func(one *client) bool { return one.resources >= count || one.lost })
	ms := time.Since(begun).Milliseconds()
	mutex.Lock()
	for _, one := range clients {
		one.resources = 0
	}
	mutex.Unlock()
	report(map[string]any{"done": settled, "ms": ms, "bytes": bytesRead.Load() - from})
}

func plain(count int, limit time.Duration, roots *x509.CertPool) {
	ready := sync.WaitGroup{}
	ended := sync.WaitGroup{}
	start := make(chan struct{})
	failed := atomic.Int64{}
	places := make(chan struct{}, dialsAtOnce)
	for range count {
		ready.Add(1)
		ended.Add(1)
		go func() {
			defer ended.Done()
			places <- struct{}{}
			http2 := &http.Client{Transport: transport(roots), Timeout: limit}
			err := get(http2, "/hello")
			<-places
			ready.Done()
			<-start
			if err == nil {
				err = get(http2, "/bytes")
			}
			if err != nil {
				failed.Add(1)
			}
			http2.CloseIdleConnections()
		}()
	}
	ready.Wait()
	from := bytesRead.Load()
	begun := time.Now()
	close(start)
	ended.Wait()
	report(map[string]any{
		"done": failed.Load() == 0, "ms": time.Since(begun).Milliseconds(), "bytes": bytesRead.Load() - from,
	})
}

func get(http2 *http.Client, path string) error {
	response, err := http2.Get(*base + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	count, err := io.Copy(io.Discard, response.Body)
	bytesRead.Add(count)
	return err
}

func probed(count int, limit time.Duration) {
	end := time.Now().Add(limit)
	mutex.Lock()
	for len(ages) < count && lost.Load() == 0 && time.Now().Before(end) {
		progress.Wait()
	}
	settled := len(ages) >= count
	mutex.Unlock()
	report(map[string]any{"done": settled})
}

func reportAges() {
	mutex.Lock()
	found := ages
	ages = nil
	mutex.Unlock()
	slices.Sort(found)
	at := func(part float64) float64 {
		if len(found) == 0 {
			return -1
		}
		return found[int(part*float64(len(found)-1))]
	}
	report(map[string]any{"done": true, "count": len(found), "p50": at(0.5), "p99": at(0.99), "max": at(1)})
}

func report(answer map[string]any) {
	answer["lost"] = lost.Load()
	mutex.Lock()
	answer["reasons"] = reasons
	text, err := json.Marshal(answer)
	mutex.Unlock()
	check(err)
	fmt.Println(string(text))
}

// follow runs one stream to its end. It returns why the stream ended.
func follow(one *client, roots *x509.CertPool, opened func()) error {
	reader, writer := io.Pipe()
	request, err := http.NewRequest(http.MethodPost, *base+method, reader)
	check(err)
	request.Header.Set("content-type", "application/grpc")
	request.Header.Set("te", "trailers")
	request.Header.Set("authorization", "Bearer "+*token)
	sent := make(chan error, 1)
	go func() {
		_, err := writer.Write(frame(firstRequest()))
		sent <- err
	}()
	response, err := transport(roots).RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := <-sent; err != nil {
		return err
	}
	var message []byte
	header := make([]byte, 5)
	for {
		if _, err := io.ReadFull(response.Body, header); err != nil {
			return fmt.Errorf("%w, status %s %s", err, response.Trailer.Get("grpc-status"), response.Trailer.Get("grpc-message"))
		}
		size := int(binary.BigEndian.Uint32(header[1:]))
		if cap(message) < size {
			message = make([]byte, size)
		}
		message = message[:size]
		if _, err := io.ReadFull(response.Body, message); err != nil {
			return err
		}
		bytesRead.Add(int64(size + len(header)))
		answer, err := read(message)
		if err != nil {
			return err
		}
		mutex.Lock()
		one.resources += answer.resources
		one.answered = one.answered || !answer.more
		if answer.probeAgeMs >= 0 {
			ages = append(ages, answer.probeAgeMs)
		}
		mutex.Unlock()
		opened()
		acknowledgement := slices.Concat(text(2, addressType), text(6, answer.nonce))
		if _, err := writer.Write(frame(acknowledgement)); err != nil {
			return err
		}
	}
}

type answer struct {
	nonce      string
	more       bool
	resources  int
	probeAgeMs float64
}

var errCut = errors.New("a response ends in the middle of a field")

// read looks at the fields of a DeltaDiscoveryResponse.
func read(message []byte) (answer, error) {
	found := answer{probeAgeMs: -1}
	small := len(message) < probeResponseBytes
	err := fields(message, func(field int, value []byte) {
		switch field {
		case 1:
			found.more = strings.HasSuffix(string(value), "+more")
		case 2:
			found.resources++
			if small {
				if age := probeAge(value); age >= 0 {
					found.probeAgeMs = age
				}
			}
		case 5:
			found.nonce = string(value)
		}
	})
	return found, err
}

// probeAge returns the milliseconds since the resource was made, from its version; -1 for other resources.
func probeAge(resource []byte) float64 {
	var name, version string
	err := fields(resource, func(field int, value []byte) {
		switch field {
		case 1:
			version = string(value)
		case 3:
			name = string(value)
		}
	})
	if err != nil || name != "probe" {
		return -1
	}
	madeUs, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return -1
	}
	return float64(time.Now().UnixMicro()-madeUs) / 1000
}

// fields calls each field of a message whose fields all have a length.
func fields(message []byte, each func(field int, value []byte)) error {
	for len(message) > 0 {
		tag, used := binary.Uvarint(message)
		if used <= 0 || tag&7 != 2 {
			return errCut
		}
		length, more := binary.Uvarint(message[used:])
		if more <= 0 || uint64(len(message)-used-more) < length {
			return errCut
		}
		start := used + more
		end := start + int(length)
		each(int(tag>>3), message[start:end])
		message = message[end:]
	}
	return nil
}

func firstRequest() []byte {
	node := text(1, "ztunnel~10.0.0.1~ztunnel-bench.istio-system~istio-system.svc.cluster.local")
	return slices.Concat(text(1, string(node)), text(2, addressType))
}

func text(field int, value string) []byte {
	bytes := binary.AppendUvarint(nil, uint64(field)<<3|2)
	bytes = binary.AppendUvarint(bytes, uint64(len(value)))
	return append(bytes, value...)
}

func frame(message []byte) []byte {
	header := []byte{0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[1:], uint32(len(message)))
	return append(header, message...)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
