package deadletter

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/redact"
)

// whole is a letter with everything.
func whole() (*idempotency.Record, *idempotency.Request) {
	rec := &idempotency.Record{
		ID: idempotency.ID{Tenant: "bot/s1", Key: "order-1"}, State: idempotency.StateDead, Receipt: "r1", Policy: "order_ship",
		Labels: attempt.Labels{Shop: "s1", TaskType: "order_ship"}, Method: "POST", Host: "a.test:443", Path: "/orders",
		Reason: "attempts_exhausted", Executed: classify.ExecutedMaybe, Honoured: true, Attempts: 1,
		Updated: noon.Add(time.Hour), Expires: noon.Add(24 * time.Hour), NextAt: noon.Add(2 * time.Hour),
		History: attempt.History{{
			N: 1, Started: noon, Duration: 1500 * time.Millisecond, Host: "a.test:443", Status: 500, UpstreamID: "u-1", Cause: "backoff", Delay: time.Second,
			Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_500", Basis: classify.BasisKey, Executed: classify.ExecutedMaybe},
		}},
		Runs:   []idempotency.Run{{CallID: "c1", ClientID: "bot-77", Started: noon, Ended: noon.Add(time.Minute), First: 1, Reason: "attempts_exhausted"}},
		Notes:  []idempotency.Note{{At: noon, By: "ann", Did: DidRequeue, Text: "=1+1"}},
		Answer: &idempotency.Answer{Status: 500, Reason: "Oops", Kept: true, Body: []byte("\x00\x01"), Fields: message.Fields{{Name: "Set-Thing", Value: "secret-answer"}}},
	}
	return rec, &idempotency.Request{
		Place:  idempotency.Place{Scheme: "https", Authority: "a.test", Target: "/orders?token=secret-query"},
		Fields: message.Fields{{Name: "Authorization", Value: "secret-login"}}, Body: []byte(`{"card":"secret-body"}`),
	}
}

func TestViewOfALetter(t *testing.T) {
	rec, request := whole()
	v := NewView(rec)
	v.Whole(rec, request, false, redact.New(nil))
	text, err := json.MarshalIndent(&v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret", "order-1", "token"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("what was not to be revealed shows %q: %s", secret, text)
		}
	}
	if !v.Since.Equal(noon.Add(time.Minute)) || v.Todo != TodoRequeue || v.KeyHash != idempotency.KeyHash("order-1") || v.Status != 500 ||
		v.Runs[0].Kind != "client" || v.Runs[0].ClientID != "bot-77" || v.Attempts[0].UpstreamID != "u-1" || v.Attempts[0].DelayMS != 1000 ||
		v.Request.Bytes != 22 || v.Answer.Bytes != 2 || !v.NextAt.Equal(noon.Add(2*time.Hour)) || v.Notes[0].By != "ann" {
		t.Errorf("View = %s", text)
	}
}

func TestViewRevealed(t *testing.T) {
	rec, request := whole()
	v := NewView(rec)
	v.Whole(rec, request, true, redact.New(nil))
	want := RequestView{
		Bytes: 22, URL: "https://a.test/orders?token=secret-query",
		Headers: []Header{{"Authorization", "***"}}, Body: &Contents{Text: `{"card":"secret-body"}`},
	}
	if diff := cmp.Diff(&want, v.Request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if v.Key != "order-1" || v.Answer.Body.Base64 != "AAE=" || v.Answer.Body.Text != "" || v.Answer.Headers[0].Value != "secret-answer" {
		t.Errorf("key %q, answer %+v", v.Key, v.Answer)
	}
	rec.Keyless = true
	v = NewView(rec)
	v.Whole(rec, nil, true, redact.New(nil))
	if v.Key != "" || v.KeyHash != "" || v.Request != nil {
		t.Errorf("a letter without a key shows one: %q %q, or a request that was not kept: %v", v.Key, v.KeyHash, v.Request)
	}
}

func TestContents(t *testing.T) {
	tests := []struct {
		name, body string
		text       string
		binary     bool
		cut        bool
	}{
		{"text", "a\tb\r\n", "a\tb\r\n", false, false},
		{"Chinese", "订单", "订单", false, false},
		{"escape", "\x1b[2J", "", true, false},
		{"no UTF-8", "\xff", "", true, false},
		{"cut", strings.Repeat("x", mostShown+1), strings.Repeat("x", mostShown), false, true},
		{"cut inside a character", strings.Repeat("x", mostShown-1) + "单", strings.Repeat("x", mostShown-1), false, true},
		{"cut binary", strings.Repeat("\x00", mostShown+1), "", true, true},
	}
	for _, tt := range tests {
		c := contents([]byte(tt.body), nil)
		if c.Text != tt.text || (c.Base64 != "") != tt.binary || c.Cut != tt.cut {
			t.Errorf("%s: contents = %.40q, base64 %.20q, cut %v", tt.name, c.Text, c.Base64, c.Cut)
		}
	}
	if contents(nil, nil) != nil {
		t.Error("an empty body has contents")
	}
}

func TestSince(t *testing.T) {
	rec, _ := whole()
	rec.Runs = append(rec.Runs, idempotency.Run{Started: noon.Add(time.Hour)})
	for state, want := range map[idempotency.State]time.Time{
		idempotency.StateRunning: noon.Add(time.Hour), idempotency.StateDone: rec.Updated,
	} {
		rec.State = state
		if got := Since(rec); !got.Equal(want) {
			t.Errorf("Since(%s) = %v, want %v", state, got, want)
		}
	}
}

func TestExport(t *testing.T) {
	rec, _ := whole()
	rec.Path, rec.Labels.Shop = "=cmd()", "@shop"
	_, words := Advise(rec)
	for format, want := range map[string]string{
		JSONL: `"path":"=cmd()"`,
		CSV: "id,state,since,reason,executed,todo,method,host,path,shop,shop_tier,task_type,policy,tenant,key_hash,attempts,last_status,last_reason,last_upstream_request_id,next_at,expires,last_note_by,last_note,advice,key,request_url,request_body\n" +
			"r1,dead,2026-03-04T12:01:00Z,attempts_exhausted,maybe,requeue,POST,a.test:443,'=cmd(),'@shop,,order_ship,order_ship,bot/s1," +
			idempotency.KeyHash("order-1") + ",1,500,status_500,u-1,2026-03-04T14:00:00Z,2026-03-05T12:00:00Z,ann,'=1+1,\"" + words + "\",,,\n",
	} {
		var out strings.Builder
		e, err := NewExporter(format, &out)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			v := NewView(rec)
			if err := e.Write(&v); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) || format == JSONL && strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s = %s, want %s", format, out.String(), want)
		}
	}
	_, err := NewExporter("xml", nil)
	faulty(t, "xml", "format", err)
}

func TestExportRevealed(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"text", "{\"order\": 1}\n", `,https://a.test/orders?token=secret-query,"{""order"": 1} "` + "\n"},
		{"formula", "=1+1", ",'=1+1\n"},
		{"none", "", "secret-query,\n"},
		{"binary", "\x00", ",base64:AA==\n"},
		{"long", strings.Repeat("x", longestCell-1) + "单单", "xx…\n"},
	}
	for _, tt := range tests {
		rec, request := whole()
		request.Body = []byte(tt.body)
		var out strings.Builder
		e, err := NewExporter(CSV, &out)
		if err != nil {
			t.Fatal(err)
		}
		v := NewView(rec)
		v.Whole(rec, request, true, redact.New(nil))
		if err := errors.Join(e.Write(&v), e.Close()); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.HasSuffix(got, tt.want) || len(got) > longestCell+2000 {
			t.Errorf("%s: %s, want it to end in %s", tt.name, got, tt.want)
		}
	}
}

func TestInert(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "a=b": "a=b", "-": "-", "=1": "'=1", "+1": "'+1", "-1": "'-1", "a": "a", "'": "'", "\rx": "' x", "\nx": "' x", "@x": "'@x", "\t=1": "' =1", "a\x1b[2J\nb": "a [2J b", "/orders": "/orders",
	} {
		if got := Inert(cell); got != want {
			t.Errorf("Inert(%q) = %q, want %q", cell, got, want)
		}
	}
}
