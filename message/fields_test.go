package message

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fields reads "Name: value" lines.
func fields(lines ...string) Fields {
	var f Fields
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		f.Add(name, value)
	}
	return f
}

func TestFieldsRead(t *testing.T) {
	f := fields("Accept: a", "X-One: 1", "accept: b", "Connection: close , X-One", "connection: Upgrade")
	if got := f.Get("ACCEPT"); got != "a" {
		t.Errorf("Get(ACCEPT) = %q, want the first line, a", got)
	}
	if got := f.Get("Absent"); got != "" || f.Has("Absent") || !f.Has("x-one") {
		t.Errorf("Get(Absent) = %q, Has(Absent) = %v, Has(x-one) = %v", got, f.Has("Absent"), f.Has("x-one"))
	}
	if diff := cmp.Diff([]string{"a", "b"}, f.Values("Accept")); diff != "" {
		t.Errorf("Values(Accept) (-want +got):\n%s", diff)
	}
	for token, want := range map[string]bool{"close": true, "CLOSE": true, "x-one": true, "upgrade": true, "clos": false, "": false} {
		if got := f.Listed("Connection", token); got != want {
			t.Errorf("Listed(Connection, %q) = %v, want %v", token, got, want)
		}
	}
}

func TestFieldsWrite(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Fields)
		want   Fields
	}{
		{"add keeps the others", func(f *Fields) { f.Add("A", "3") }, fields("A: 1", "B: x", "a: 2", "C: y", "A: 3")},
		{"set takes the first place", func(f *Fields) { f.Set("a", "9") }, fields("A: 9", "B: x", "C: y")},
		{"set a new name", func(f *Fields) { f.Set("D", "9") }, fields("A: 1", "B: x", "a: 2", "C: y", "D: 9")},
		{"set the last", func(f *Fields) { f.Set("c", "9") }, fields("A: 1", "B: x", "a: 2", "C: 9")},
		{"delete", func(f *Fields) { f.Del("a") }, fields("B: x", "C: y")},
		{"delete nothing", func(f *Fields) { f.Del("Z") }, fields("A: 1", "B: x", "a: 2", "C: y")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := fields("A: 1", "B: x", "a: 2", "C: y")
			tt.change(&f)
			if diff := cmp.Diff(tt.want, f); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFieldsClone(t *testing.T) {
	f := fields("A: 1")
	c := f.Clone(2)
	c[0].Value = "changed"
	c.Add("B", "2")
	if f[0].Value != "1" || len(f) != 1 || cap(c) != 3 {
		t.Errorf("Clone shares memory or has no room: %v, cap %d", f, cap(c))
	}
}

func TestHopByHop(t *testing.T) {
	tests := []struct {
		name string
		in   Fields
		keep []string
		want Fields
	}{
		{"nothing to remove", fields("Accept: a", "Cookie: 1", "Cookie: 2"), nil, fields("Accept: a", "Cookie: 1", "Cookie: 2")},
		{"the fixed ones, listed or not", fields(
			"Connection: close", "Proxy-Connection: keep-alive", "keep-alive: timeout=5", "TE: trailers", "A: 1",
			"Transfer-Encoding: chunked", "Upgrade: websocket", "Proxy-Authorization: Basic x",
			"Proxy-Authenticate: Basic", "Proxy-Authentication-Info: x",
		), nil, fields("A: 1")},
		{"trailers stay announced", fields("Trailer: Digest"), nil, fields("Trailer: Digest")},
		{"listed", fields("X-Foo: 1", "Connection: x-foo , close", "X-Bar: 2", "x-FOO: 3"), nil, fields("X-Bar: 2")},
		{"several lists", fields("A: 1", "B: 2", "Connection: a", "connection: b,,"), nil, nil},
		{"more than fit on the stack", fields("A: 1", "B: 2", "C: 3", "D: 4", "E: 5", "F: 6", "Connection: a,b,c,d,e"), nil, fields("F: 6")},
		{"a challenge that is passed on", fields("Proxy-Authenticate: Basic", "Connection: close"), []string{"proxy-authenticate"}, fields("Proxy-Authenticate: Basic")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := HopByHop(tt.in, tt.keep...)
			if diff := cmp.Diff(tt.want, slices.Clip(got)); diff != "" && len(tt.want)+len(got) > 0 {
				t.Errorf("HopByHop (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCase_PX_01_connection_cannot_strip_the_key(t *testing.T) {
	in := fields("X-Idempotency-Key: k", "Connection: X-Idempotency-Key, X-Other", "X-Other: 1")
	want := fields("X-Idempotency-Key: k")
	if diff := cmp.Diff(want, HopByHop(in, "X-Idempotency-Key", "Idempotency-Key")); diff != "" {
		t.Errorf("HopByHop (-want +got):\n%s", diff)
	}
}

func TestHopByHopAllocatesNothing(t *testing.T) {
	f := fields("Accept: a", "User-Agent: bot", "Cookie: x", "Connection: keep-alive")
	room := f.Clone(0)
	if n := testing.AllocsPerRun(100, func() { HopByHop(append(room[:0], f...), "Idempotency-Key") }); n != 0 {
		t.Errorf("HopByHop allocates %v times, want 0", n)
	}
}

func FuzzHopByHop(f *testing.F) {
	f.Add("close, X-A", "X-A", "1")
	f.Add("x-idempotency-key,,\t ,", "X-Idempotency-Key", "k")
	f.Add("\"a,b\"", "a", "\x00")
	f.Fuzz(func(t *testing.T, connection, name, value string) {
		in := Fields{{"Connection", connection}, {name, value}, {"X-Idempotency-Key", "k"}, {"X-Z", "z"}}
		before := in.Clone(0)
		out := HopByHop(in, "X-Idempotency-Key")
		if !out.Has("X-Idempotency-Key") || out.Has("Connection") {
			t.Errorf("HopByHop(%q) = %v", before, out)
		}
		for i := range before {
			gone := !out.Has(before[i].Name)
			listed := before.Listed("Connection", before[i].Name)
			if keep := equalFold(before[i].Name, "X-Idempotency-Key"); gone != (!keep && (listed || IsHopByHop(before[i].Name))) {
				t.Errorf("HopByHop(%q): %q gone = %v", before, before[i].Name, gone)
			}
		}
	})
}
