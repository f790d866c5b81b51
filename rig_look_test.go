package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

// What a rig can be asked. Each waits until everybody in the bubble rests, so
// that what a call does after its answer is seen as well.

// metric is the sum over the series of a counter, gauge or the count of a
// histogram that have all labels, given as name=value.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	synctest.Wait()
	return counted(r.t, r.app, name, labels...)
}

// counted is metric for an app on sockets.
func counted(t *testing.T, a *app, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := a.metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "retryproxy_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if containsAll(have, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func containsAll(have, want []string) bool {
	all := "\n" + strings.Join(have, "\n") + "\n"
	for _, w := range want {
		if !strings.Contains(all, "\n"+w+"\n") {
			return false
		}
	}
	return true
}

// wantMetric checks a metric.
func (r *rig) wantMetric(want float64, name string, labels ...string) {
	r.t.Helper()
	if got := r.metric(name, labels...); got != want {
		r.t.Errorf("metric %s%v = %v, want %v", name, labels, got, want)
	}
}

// ended are the calls that are over, oldest first.
func (r *rig) ended() []*attempt.Summary {
	synctest.Wait()
	var out []*attempt.Summary
	for _, c := range r.app.proxy.Calls() {
		if c.State == "done" {
			out = append(out, c)
		}
	}
	return out
}

// last is the call that ended last.
func (r *rig) last() *attempt.Summary {
	r.t.Helper()
	all := r.ended()
	if len(all) == 0 {
		r.t.Fatal("no call has ended")
	}
	return all[len(all)-1]
}

// wantEnd checks how the last call ended.
func (r *rig) wantEnd(result, reason string, attempts int) {
	r.t.Helper()
	got := r.last()
	if got.Result != result || got.Reason != reason || len(got.Attempts) != attempts {
		r.t.Errorf("the call ended as %s, %s after %d attempts; want %s, %s after %d",
			got.Result, got.Reason, len(got.Attempts), result, reason, attempts)
	}
}

// wantVerdict checks what the last call's n-th attempt meant.
func (r *rig) wantVerdict(n int, class, reason string) {
	r.t.Helper()
	all := r.last().Attempts
	if len(all) < n {
		r.t.Errorf("attempts = %d, want at least %d", len(all), n)
		return
	}
	if v := all[n-1].Verdict; v.Class.String() != class || v.Reason != reason {
		r.t.Errorf("verdict of attempt %d = %s %s, want %s %s", n, v.Class, v.Reason, class, reason)
	}
}

// logged are the lines of the log whose msg is what is asked for.
func (r *rig) logged(msg string) []map[string]any {
	r.t.Helper()
	synctest.Wait()
	var out []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			r.t.Fatalf("log line %q: %v", line, err)
		}
		if v["msg"] == msg {
			out = append(out, v)
		}
	}
	return out
}

// record is what is kept under a key in the tenant without a name.
func (r *rig) record(key string) idempotency.Record {
	r.t.Helper()
	synctest.Wait()
	rec, err := r.app.store.Get(r.t.Context(), idempotency.ID{Tenant: idempotency.NoTenant, Key: key}, time.Now())
	if err != nil {
		r.t.Fatalf("record %q: %v", key, err)
	}
	return rec
}

// gate is the gate of a host (name:port); the zero value when it has none.
func (r *rig) gate(host string) limiter.HostView {
	synctest.Wait()
	for _, h := range r.app.limiter.Hosts(time.Now()) {
		if h.Host == host {
			return h
		}
	}
	return limiter.HostView{}
}

// wantSent checks a header of the n-th request that an upstream saw.
func (r *rig) wantSent(s *scripted, n int, name, value string) {
	r.t.Helper()
	all := s.seen()
	if len(all) < n {
		r.t.Errorf("requests at the upstream = %d, want at least %d", len(all), n)
		return
	}
	if got := strings.Join(all[n-1].Header.Values(name), " | "); got != value {
		r.t.Errorf("%s of request %d = %q, want %q", name, n, got, value)
	}
}

// wantGaps checks the exact times between the requests that an upstream saw.
func (r *rig) wantGaps(s *scripted, want ...time.Duration) {
	r.t.Helper()
	if diff := cmp.Diff(want, s.gaps()); diff != "" {
		r.t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// wantBody checks a body and that it came whole.
func (r *rig) wantBody(got reply, want string) {
	r.t.Helper()
	if got.Body != want || got.Err != nil {
		r.t.Errorf("body = %.200q (%v), want %.200q", got.Body, got.Err, want)
	}
}

// wantDeadLetter checks that the log names one call as given up.
func (r *rig) wantDeadLetter(reason, executed string) {
	r.t.Helper()
	all := r.logged("dead letter")
	if len(all) != 1 || all[0]["reason"] != reason || all[0]["executed"] != executed {
		r.t.Errorf("dead letters in the log = %v, want one for %s, executed %s", all, reason, executed)
	}
}
