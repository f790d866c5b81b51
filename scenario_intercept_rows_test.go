package main

import (
	"strings"
	"testing"
)

// One request through an opened tunnel proves that the client trusts us, at once
// and not only when that tunnel ends.
func TestOpenTunnelEndsARowOfRefusals(t *testing.T) {
	ca := newCA(t)
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
				ask := r.asker("u1.test:443", proto == "h2")
				r.refuses("u1.test:443", visitor{}, 2)
				r.want(ask("GET", ""), 200, nil, 0)
				r.refuses("u1.test:443", visitor{}, 2)
				r.wantMetric(0, "intercept_refused_total")
				r.wantInside("u1.test:443", visitor{}, true)
				r.refuses("u1.test:443", visitor{}, 1)
				r.wantMetric(1, "intercept_refused_total")
			}, opening(ca, "['*.test']")...)
		})
	}
}

// Programs on one machine are told apart by what they call themselves.
func TestProgramsThatRefuseOurCA(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		agent := func(name string) visitor { return visitor{headers: []string{"User-Agent: " + name}} }
		r.refuses("u1.test:443", agent("pinned/1.0"), 3)
		if got := r.passed(); len(got) != 1 || got[0] != "127.0.0.1;agent=pinned/1.0 u1.test:443" {
			t.Errorf("passed through = %v, want the program that refused", got)
		}
		r.wantInside("u1.test:443", agent("curl/8.9"), true)
		r.wantInside("u1.test:443", visitor{}, true)
		theirs := agent("pinned/1.0")
		theirs.roots = ca.theirs()
		r.wantInside("u1.test:443", theirs, false)

		long := strings.Repeat("x", 5000)
		r.refuses("u1.test:443", agent(long), 2)
		r.refuses("u1.test:443", agent(long+"y"), 1) // only so much of a name is told apart
		if got := r.passed(); len(got) != 2 || len(got[0]) > 200 || len(got[1]) > 200 {
			t.Errorf("passed through = %v, want two with short names", got)
		}
	}, opening(ca, "['*.test']")...)
}

// Whoever mended a client's trust does not wait for an hour: an operator or a
// reload ends what passes through, and the row before it.
func TestPassThroughsAreEnded(t *testing.T) {
	ca := newCA(t)
	reset := func(query string) func(*rig) {
		return func(r *rig) {
			r.want(r.admin("POST", "/api/v1/intercept/reset"+query, "", nil), 200, nil, 0)
		}
	}
	for name, tt := range map[string]struct {
		does func(*rig)
		ends bool
	}{
		"reset":                 {reset(""), true},
		"reset of the host":     {reset("?host=u1.test:443"), true},
		"reset of the client":   {reset("?client=127.0.0.1"), true},
		"reset of another host": {reset("?host=u2.test:443"), false},
		"reset of another":      {reset("?client=127.0.0.2"), false},
		"reload":                {func(r *rig) { r.applies(opening(ca, "['*.test', x.test]")...) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
				r.refuses("u1.test:443", visitor{}, 3)
				r.wantInside("u1.test:443", visitor{roots: ca.theirs()}, false)
				tt.does(r)
				if got := r.passed(); len(got) == 0 != tt.ends {
					t.Errorf("passed through = %v, want none: %v", got, tt.ends)
				}
				if !tt.ends {
					r.wantInside("u1.test:443", visitor{roots: ca.theirs()}, false)
					return
				}
				r.wantInside("u1.test:443", visitor{}, true)
				r.refuses("u1.test:443", visitor{}, 2) // the row begins anew
				r.wantMetric(1, "intercept_refused_total")
			}, opening(ca, "['*.test']")...)
		})
	}
}
