package upstream

import (
	"testing"
)

func TestSendOnKeptConnection(t *testing.T) {
	s := newScript(t, always(ok))
	c := client(t, Config{})
	for i := range 3 {
		r, body := mustFetch(t, c, attempt(s.target(), "GET", "/a//b/../c?q=%zz&x=1;y+2", nil, "X-B", "2", "x-a", "1"))
		if body != "ok" || r.Response.Status != 200 || r.Reused != (i > 0) {
			t.Errorf("answer %d = %d %q reused=%v, want 200 \"ok\" reused=%v", i, r.Response.Status, body, r.Reused, i > 0)
		}
	}
	want := "GET /a//b/../c?q=%zz&x=1;y+2 HTTP/1.1\r\nHost: u1.test\r\nX-B: 2\r\nx-a: 1\r\n\r\n"
	if got := s.wire(); got != want+want+want {
		t.Errorf("wire = %q, want three times %q", got, want)
	}
	if n := s.conns(); n != 1 {
		t.Errorf("connections = %d, want 1", n)
	}
}
