package egress

import (
	"errors"
	"strings"
	"testing"
)

func TestParseProxy(t *testing.T) {
	tests := []struct {
		text string
		want Proxy
	}{
		{"http://a.test", Proxy{"http", "a.test", 80, "", ""}},
		{"https://a.test", Proxy{"https", "a.test", 443, "", ""}},
		{"socks5://10.0.0.1", Proxy{"socks5", "10.0.0.1", 1080, "", ""}},
		{"socks5h://10.0.0.1", Proxy{"socks5h", "10.0.0.1", 1080, "", ""}},
		{"HTTP://A.Test.:3128/", Proxy{"http", "a.test", 3128, "", ""}},
		{"http://[2001:DB8::1]", Proxy{"http", "2001:db8::1", 80, "", ""}},
		{"http://[2001:db8::1]:3128", Proxy{"http", "2001:db8::1", 3128, "", ""}},
		{"socks5://u:p@a_b.test:1", Proxy{"socks5", "a_b.test", 1, "u", "p"}},
		{"socks5://u@a.test", Proxy{"socks5", "a.test", 1080, "u", ""}},
		{"socks5://u:@a.test", Proxy{"socks5", "a.test", 1080, "u", ""}},
		{"http://u:p@ss:w@a.test", Proxy{"http", "a.test", 80, "u", "p@ss:w"}},
		{"http://u%40x:p%2F%25+%20@a.test", Proxy{"http", "a.test", 80, "u@x", "p/%+ "}},
		{"socks5://user-session-{shop}:{task_type}@a.test:65535", Proxy{"socks5", "a.test", 65535, "user-session-{shop}", "{task_type}"}},
	}
	for _, test := range tests {
		got, err := ParseProxy(test.text)
		if err != nil || got != test.want {
			t.Errorf("ParseProxy(%q) = %#v, %v, want %#v", test.text, got, err, test.want)
		}
	}
}

func TestParseProxyFaults(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "starts with"},
		{"a.test:80", "starts with"},
		{"s3cret://a.test", "starts with"},
		{"socks4://a.test", "starts with"},
		{"http:/a.test", "starts with"},
		{"http://", "a host is"},
		{"http:///", "a host is"},
		{"http://:80", "a host is"},
		{"http://2001:db8::1", "a host is"},
		{"http://[10.0.0.1]:80", "a host is"},
		{"http://[fe80::1%25eth0]:80", "a host is"},
		{"http://[::1", "a host is"},
		{"http://[::1]x:80", "a host is"},
		{"http://a b.test", "a host is"},
		{"http://a\r\n.test", "a host is"},
		{"http://" + strings.Repeat("a", 256), "a host is"},
		{"http://a.test:", "a port is"},
		{"http://a.test:0", "a port is"},
		{"http://a.test:65536", "a port is"},
		{"http://a.test:+80", "a port is"},
		{"http://u:s3cret", "a port is"}, // the host was forgotten
		{"http://a.test/path", "nothing follows"},
		{"http://a.test:80?q", "nothing follows"},
		{"http://a.test#f", "nothing follows"},
		{"http://u:s3cret/x@a.test", "%2F"},
		{"http://u:s3cret%zz@a.test", "%25"},
		{"http://u%:s3cret@a.test", "%25"},
		{"http://@a.test", "user before @"},
		{"http://:s3cret@a.test", "user before @"},
	}
	for _, test := range tests {
		got, err := ParseProxy(test.text)
		if !errors.Is(err, ErrProxy) || !strings.Contains(err.Error(), test.want) || got != (Proxy{}) {
			t.Errorf("ParseProxy(%q) = %v, %v, want ErrProxy with %q", test.text, got, err, test.want)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ParseProxy(%q): %v holds the password", test.text, err)
		}
	}
}

func FuzzParseProxy(f *testing.F) {
	for _, s := range []string{"http://u:p@a.test:80", "socks5h://[::1]:1", "https://{shop}:%41@a/", "http://a:b", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProxy(text)
		if err != nil {
			// An error is one of a few sentences: nothing of the text is in it.
			other, _ := strings.CutPrefix(err.Error(), ErrProxy.Error()+": ")
			for _, known := range []string{"it starts with", "nothing follows", "in user and password %", "the user before", "a port is", "a host is"} {
				if strings.HasPrefix(other, known) {
					return
				}
			}
			t.Fatalf("ParseProxy(%q): unknown error %q", text, err)
		}
		if p.Host == "" || p.Port == 0 || strings.ContainsAny(p.Host, "[]@/ \r\n") || p.Host != strings.ToLower(p.Host) {
			t.Errorf("ParseProxy(%q) = %#v", text, p)
		}
		if again, err := ParseProxy(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("ParseProxy(%q) = %v, %v: not what was printed", p.String(), again, err)
		}
	})
}
