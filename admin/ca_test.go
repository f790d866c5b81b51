package admin

import (
	"testing"
	"time"

	"retryproxy/intercept"
)

func TestCA(t *testing.T) {
	d := newFake().deps()
	d.Accounts = func() []Account { return []Account{{"admin", Admin, "s3cret"}} } // not asked for
	text := "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
	tests := []struct {
		name   string
		ca     func() []byte
		method string
		status int
		kind   string
		body   string
	}{
		{"on", func() []byte { return []byte(text) }, "GET", 200, "application/x-pem-file", text},
		{"HEAD", func() []byte { return []byte(text) }, "HEAD", 200, "application/x-pem-file", ""},
		{"off", func() []byte { return nil }, "HEAD", 404, "application/problem+json", ""},
		{"never", nil, "HEAD", 404, "application/problem+json", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d.CA = test.ca
			status, h, body := exchange(t, New(d), test.method, "/ca.pem", "")
			if status != test.status || h.Get("Content-Type") != test.kind || body != test.body {
				t.Errorf("/ca.pem = %d %q %q, want %d %q %q", status, h.Get("Content-Type"), body, test.status, test.kind, test.body)
			}
			want := ""
			if test.status == 200 {
				want = `attachment; filename="retryproxy-ca.pem"`
			}
			if got := h.Get("Content-Disposition"); got != want {
				t.Errorf("Content-Disposition = %q, want %q", got, want)
			}
		})
	}
	if status, _, _ := exchange(t, New(d), "GET", "/api/v1/intercept", ""); status != 401 {
		t.Errorf("/api/v1/intercept without token = %d, want 401", status)
	}
}

func TestInterceptShape(t *testing.T) {
	d := newFake().deps()
	_, _, off := exchange(t, New(d), "GET", "/api/v1/intercept", "")
	golden(t, "intercept_off", off)
	d.Intercept = func() Interception {
		return Interception{
			Hosts: []string{"*.pinduoduo.com", "a.test"}, Fingerprint: "AA:BB", Expires: began.AddDate(10, 0, 0),
			Passed: []intercept.Pin{{Client: "192.0.2.1", Host: "a.test", Since: began, Until: began.Add(time.Hour)}},
		}
	}
	_, _, on := exchange(t, New(d), "GET", "/api/v1/intercept", "")
	golden(t, "intercept", on)
}
