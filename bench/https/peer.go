package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"retryproxy/bench/process"
)

// peer is a proxy in a process of its own.
type peer struct {
	*process.Process
	name  string
	roots *x509.CertPool // of the certificates it shows
}

// trust learns the certificate of the proxy the way its clients do.
func (p *peer) trust() error {
	get := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.Addr}), DisableKeepAlives: true}}
	res, err := get.Get("http://retryproxy.internal/ca.pem")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	p.roots = x509.NewCertPool()
	if !p.roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("no certificate at %s: %s", res.Request.URL, res.Status)
	}
	return nil
}
