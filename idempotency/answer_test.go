package idempotency

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/message"
)

func TestStorable(t *testing.T) {
	for status := range 1000 {
		want := status >= 200 && status < 300 && status != 206 || status == 303
		if got := Storable(status, true, false); got != want {
			t.Errorf("Storable(%d) = %v, want %v", status, got, want)
		}
		if Storable(status, false, false) || Storable(status, true, true) {
			t.Errorf("Storable(%d) of an incomplete or suspect answer = true", status)
		}
	}
}

func TestCase_ID_14_StoredFields(t *testing.T) {
	kept := message.Fields{
		{Name: "Date", Value: "Wed, 04 Mar 2026 05:06:07 GMT"},
		{Name: "Location", Value: "/o/1"},
		{Name: "ETag", Value: `"a,b"`},
		{Name: "Content-Disposition", Value: `attachment; filename="a,b.txt"`},
		{Name: "Link", Value: "</a>; rel=next"},
		{Name: "link", Value: "</b>; rel=prev"},
		{Name: "Content-Encoding", Value: "gzip"},
		{Name: "Proxy-Status", Value: "cdn; error=x"},
		{Name: "X-Retry-Limit", Value: "the upstream's own"},
		{Name: "Via", Value: "1.1 cdn"},
	}
	in := message.Fields{
		{Name: "connection", Value: "close, X-Hop , keep-alive"},
		{Name: "Connection", Value: "X-Other"},
		{Name: "x-hop", Value: "1"},
		{Name: "X-Other", Value: "1"},
	}
	in = append(in, kept...)
	for _, name := range []string{
		"Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
		"Set-Cookie", "set-cookie", "Set-Cookie2", "Proxy-Authenticate", "Proxy-Authentication-Info", "PROXY-AUTHORIZATION",
		"X-Call-Id", "x-retry-count", "X-Retry-Reason", "X-Retry-Executed", "X-Retry-Advice", "Idempotency-Replayed", "Cache-Status",
	} {
		in.Add(name, "x")
	}
	before := in.Clone(0)
	got := StoredFields(in)
	if diff := cmp.Diff(kept, got); diff != "" {
		t.Errorf("StoredFields differs (-want +got):\n%s", diff)
	}
	got[0].Value = "changed"
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("StoredFields shares memory with its input:\n%s", diff)
	}
}

func TestReplayFields(t *testing.T) {
	const date = "Wed, 04 Mar 2026 05:06:00 GMT"
	tests := []struct {
		name   string
		fields message.Fields
		after  time.Duration
		want   message.Fields
	}{
		{
			"date stays, age is added",
			message.Fields{{Name: "Date", Value: date}, {Name: "X-A", Value: "1"}},
			90*time.Second + 999*time.Millisecond,
			message.Fields{{Name: "Date", Value: date}, {Name: "X-A", Value: "1"}, {Name: "Age", Value: "90"}},
		},
		{
			"an age the answer came with counts on",
			message.Fields{{Name: "age", Value: " 10"}, {Name: "Date", Value: date}},
			time.Minute,
			message.Fields{{Name: "age", Value: "70"}, {Name: "Date", Value: date}},
		},
		{
			"an age that is none",
			message.Fields{{Name: "Age", Value: "-5"}, {Name: "Date", Value: date}, {Name: "Age", Value: "7"}},
			time.Minute,
			message.Fields{{Name: "Age", Value: "60"}, {Name: "Date", Value: date}},
		},
		{
			"no date", nil, time.Second,
			message.Fields{{Name: "Date", Value: "Wed, 04 Mar 2026 05:06:07 GMT"}, {Name: "Age", Value: "1"}},
		},
		{
			"clock set back",
			message.Fields{{Name: "Date", Value: date}},
			-time.Hour,
			message.Fields{{Name: "Date", Value: date}, {Name: "Age", Value: "0"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &Answer{Fields: tt.fields, Stored: t0}
			before := tt.fields.Clone(0)
			got := ReplayFields(a, t0.Add(tt.after))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ReplayFields differs (-want +got):\n%s", diff)
			}
			got.Set("Date", "changed")
			got.Add("Idempotency-Replayed", "true")
			if diff := cmp.Diff(before, tt.fields.Clone(0)); diff != "" {
				t.Errorf("ReplayFields shares memory with the answer:\n%s", diff)
			}
		})
	}
}

func TestBounded(t *testing.T) {
	var none *Answer
	if got := none.Bounded(1, 1); got != nil {
		t.Errorf("none bounded is %v", got)
	}
	full := func() *Answer {
		return &Answer{Status: 201, Reason: "Created", Stored: t0, Kept: true, Body: []byte("12345"), Fields: message.Fields{{Name: "ab", Value: "c"}}}
	}
	marker := &Answer{Status: 201, Reason: "Created", Stored: t0}
	for _, tt := range []struct {
		name  string
		of    *Answer
		body  int
		total int64
		want  *Answer
	}{
		{"it fits", full(), 5, 8, full()},
		{"no bound of all", full(), 5, 0, full()},
		{"a body that is too long", full(), 4, 8, marker},
		{"too much with its fields", full(), 5, 7, marker},
		{"a marker", marker, 5, 8, marker},
		{"not kept", &Answer{Status: 201, Reason: "Created", Stored: t0, Body: []byte("1")}, 5, 8, marker},
	} {
		got := tt.of.Bounded(tt.body, tt.total)
		if got.Kept {
			tt.of.Body[0], tt.of.Fields[0].Value = 'x', "x"
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
