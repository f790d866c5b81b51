package classify

import (
	"testing"

	"retryproxy/message"
)

func TestForwarded(t *testing.T) {
	const envoy = "upstream connect error or disconnect/reset before headers. "
	tests := []struct {
		name        string
		proxyStatus []string
		body        string
		want        bool
	}{
		{"nothing said", nil, "", false},
		{"plain page", nil, "<h1>503 Service Unavailable</h1>", false},
		{"answer timed out", []string{"cdn; error=http_response_timeout"}, "", true},
		{"connection ended", []string{`cdn;error=connection_terminated;details="x"`}, "", true},
		{"answer incomplete", []string{"a, cdn; received-status=200; error=http_response_incomplete"}, "", true},
		{"second line", []string{"a", "b; error=connection_read_timeout"}, "", true},
		{"second member", []string{"a; error=dns_error, b; error=http_protocol_error"}, "", true},
		{"connection refused", []string{"cdn; error=connection_refused"}, "", false},
		{"no such host", []string{`cdn; error=dns_error; rcode="SERVFAIL"`}, "", false},
		{"TLS", []string{"cdn; error=tls_certificate_error"}, "", false},
		{"overload", []string{"cdn; error=connection_limit_reached"}, "", false},
		{"no error", []string{"cdn; received-status=503"}, "", false},
		{"error inside a string", []string{`cdn; details="a; error=http_response_timeout"`}, "", false},
		{"quote inside a string", []string{`cdn; details="\"; x"; error=http_response_timeout`}, "", true},
		{"longer name", []string{"cdn; last-error=http_response_timeout"}, "", false},

		{"Envoy: connection termination", nil, envoy + "reset reason: connection termination", true},
		{"Envoy: remote reset", nil, envoy + "reset reason: remote reset", true},
		{"Envoy: protocol error", nil, envoy + "reset reason: protocol error", true},
		{"Envoy: unknown reason", nil, envoy + "reset reason: something new", true},
		{"Envoy: connection failure", nil, envoy + "reset reason: connection failure", false},
		{"Envoy: remote connection failure", nil, envoy + "reset reason: remote connection failure, transport failure reason: delayed connect error: 111", false},
		{"Envoy: overflow", nil, envoy + "reset reason: overflow", false},
		{"Envoy: refused stream", nil, envoy + "reset reason: remote refused stream reset", false},
		{"Envoy: after a retry of its own", nil, envoy + "retried and the latest reset reason: remote connection failure", true},
		{"Envoy inside JSON", nil, `{"error":{"code":503,"message":"` + envoy + `reset reason: connection termination"}}`, true},
		{"Envoy: stream timeout", nil, "stream timeout", true},
		{"Envoy: duration", nil, "downstream duration timeout\n", true},
		{"Envoy: no healthy upstream", nil, "no healthy upstream", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var fields message.Fields
			for _, v := range tt.proxyStatus {
				fields.Add("proxy-status", v)
			}
			if got := Forwarded(fields, []byte(tt.body)); got != tt.want {
				t.Errorf("Forwarded(%q, %q) = %v, want %v", tt.proxyStatus, tt.body, got, tt.want)
			}
		})
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add(`cdn; error=http_response_timeout; details="a\"b"`, "upstream connect error or disconnect/reset before headers. reset reason: overflow")
	f.Fuzz(func(t *testing.T, value, body string) {
		if alone := Forwarded(message.Fields{{Name: "Proxy-Status", Value: value}}, nil); alone && !Forwarded(message.Fields{{Name: "Proxy-Status", Value: value}}, []byte(body)) {
			t.Errorf("Forwarded(%q) is taken back by the body %q", value, body)
		}
	})
}
