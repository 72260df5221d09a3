package mockserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"
)

// Server is an Engine on a port of the loopback interface.
type Server struct {
	*Engine
	URL string // http://127.0.0.1:port, or https, without a slash at the end

	http   *http.Server
	h2     *http.Server      // behind a TLS server
	cert   *x509.Certificate // of a TLS server
	client *http.Client
}

// NewServer starts an Engine on loopback, over plain HTTP/1. It panics if there is no port to be had.
func NewServer(cfg Config) *Server { return must(Listen("127.0.0.1:0", cfg)) }

// NewTLSServer starts an Engine on loopback over TLS, with HTTP/2 for those who ask for it. Client, CertPool and CertPEM
// are how to trust it.
func NewTLSServer(cfg Config) *Server { return must(ListenTLS("127.0.0.1:0", cfg)) }

func must(s *Server, err error) *Server {
	if err != nil {
		panic("mockserver: " + err.Error())
	}
	return s
}

// Listen is NewServer on an address of the caller's.
func Listen(addr string, cfg Config) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	e := New(cfg)
	s := &Server{Engine: e, URL: "http://" + l.Addr().String(), http: e.HTTPServer(), client: &http.Client{Transport: &http.Transport{}}}
	go func() { _ = s.http.Serve(l) }()
	return s, nil
}

// ListenTLS is NewTLSServer on an address of the caller's. The certificate, made anew, is for 127.0.0.1, ::1, localhost and
// example.com.
func ListenTLS(addr string, cfg Config) (*Server, error) {
	cert, err := selfSigned()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	e := New(cfg)
	s := &Server{Engine: e, URL: "https://" + l.Addr().String(), http: e.HTTPServer(), cert: cert.Leaf}
	s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.h2 = serveH2(s.http, e)
	s.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: s.CertPool(), MinVersion: tls.VersionTLS12}}}
	go func() { _ = s.http.ServeTLS(l, "", "") }()
	return s, nil
}

// HTTPServer is a server of the engine whose faults reach its connections, for those who listen by themselves. Any other
// http.Server will do too, but that over HTTP/2 Drop and Reset end the stream only.
func (e *Engine) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           e,
		ReadHeaderTimeout: time.Minute,
		ConnContext:       withConn,
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are what it is for
	}
}

// Client trusts the server's certificate and speaks HTTP/2 to a TLS server. It retries nothing.
func (s *Server) Client() *http.Client { return s.client }

// CertPool holds the certificate of a TLS server.
func (s *Server) CertPool() *x509.CertPool {
	pool := x509.NewCertPool()
	if s.cert != nil {
		pool.AddCert(s.cert)
	}
	return pool
}

// CertPEM is the certificate of a TLS server, for clients that want a file.
func (s *Server) CertPEM() []byte {
	if s.cert == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

// Close ends the engine's stalls, every connection, and the server.
func (s *Server) Close() {
	s.Engine.Close()
	_ = s.http.Close()
	if s.h2 != nil {
		_ = s.h2.Close()
	}
	s.client.CloseIdleConnections()
}

// Shutdown lets running requests end first, as long as ctx allows.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Engine.Close()
	s.client.CloseIdleConnections()
	if s.h2 != nil {
		if err := s.h2.Shutdown(ctx); err != nil {
			return err
		}
	}
	return s.http.Shutdown(ctx)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "mockserver"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * day),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost", "example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err = x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
