// Command istio is a peer made of Istio's own HBONE library: `istio dial` is a client that carries standard input and
// output through a proxy, `istio serve` a server that takes CONNECTs. Both speak mutual TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"istio.io/istio/pkg/hbone"
	"istio.io/istio/pkg/log"
)

var (
	proxy = flag.String("proxy", "", "dial: host:port of the HBONE proxy")
	to    = flag.String("to", "", "dial: authority of the CONNECT")
	addr  = flag.String("listen", "127.0.0.1:0", "serve: where to listen")
	cert  = flag.String("cert", "", "certificate chain, PEM")
	key   = flag.String("key", "", "its key, PEM")
	roots = flag.String("roots", "", "trusted roots, PEM")
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: istio dial|serve [flags]"))
	}
	mode := os.Args[1]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	quiet := log.DefaultOptions()
	quiet.SetDefaultOutputLevel("all", log.ErrorLevel)
	if err := log.Configure(quiet); err != nil {
		fail(err)
	}
	config, err := tlsConfig()
	if err != nil {
		fail(err)
	}
	switch mode {
	case "dial":
		err = dial(config)
	case "serve":
		err = serve(config)
	default:
		err = fmt.Errorf("no mode %q", mode)
	}
	if err != nil {
		fail(err)
	}
}

// Peers have SPIFFE names instead of host names, so the chain is verified here, against the given roots.
func tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(*roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no roots")
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{pair},
		ClientCAs:          pool,
		ClientAuth:         tls.RequireAndVerifyClientCert,
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"h2"},
		VerifyConnection: func(state tls.ConnectionState) error {
			intermediates := x509.NewCertPool()
			for _, one := range state.PeerCertificates[1:] {
				intermediates.AddCert(one)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			return err
		},
	}, nil
}

// Standard input to the peer, the peer to standard output; ends when the peer has ended.
func dial(config *tls.Config) error {
	timeout := 10 * time.Second
	dialer := hbone.NewDialer(hbone.Config{ProxyAddress: *proxy, TLS: config, Timeout: &timeout})
	conn, err := dialer.DialContext(context.Background(), "tcp", *to)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		if _, err := io.Copy(conn, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "to the peer:", err)
		}
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// Prints the address, and serves until it is killed.
func serve(config *tls.Config) error {
	plain, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Println(plain.Addr())
	server := hbone.NewServer()
	server.TLSConfig = config
	server.Protocols.SetHTTP2(true)
	return server.ServeTLS(plain, "", "")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
