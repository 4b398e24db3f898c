// Puts Go's crypto/tls between standard input and output and one connection, as `openssl s_client -quiet` and `s_server -quiet` do.
//
//	tls dial 127.0.0.1:PORT CERT KEY ROOTS
//	tls serve 127.0.0.1:PORT CERT KEY ROOTS
//
// Both verify the other's chain; neither looks at its name.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: tls dial|serve ADDRESS CERT KEY ROOTS"))
	}
	role, address := os.Args[1], os.Args[2]
	certificate, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	fail(err)
	pem, err := os.ReadFile(os.Args[5])
	fail(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		fail(fmt.Errorf("%s holds no certificate", os.Args[5]))
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2"},
		// Every group that Go has: the other end offers one.
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256},
		ClientAuth:       tls.RequireAnyClientCert,
		// The chain is verified below: the certificates name no host.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots:     roots,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			return err
		},
	}
	connection := connect(role, address, config)
	go func() {
		_, err := io.Copy(connection, os.Stdin)
		fail(err)
		fail(connection.CloseWrite())
	}()
	_, err = io.Copy(os.Stdout, connection)
	fail(err)
}

func connect(role, address string, config *tls.Config) *tls.Conn {
	if role == "dial" {
		connection, err := tls.Dial("tcp", address, config)
		fail(err)
		return connection
	}
	listener, err := tls.Listen("tcp", address, config)
	fail(err)
	connection, err := listener.Accept()
	fail(err)
	return connection.(*tls.Conn)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
}
