package doctor

import (
	"strings"

	"retryproxy/attempt"
)

// FailureView counts calls that failed, or were refused, in one way.
type FailureView struct {
	Reason string `json:"reason"`           // of X-Retry-Reason
	Cause  string `json:"cause,omitempty"`  // a cause below, else the reason of the last attempt
	Host   string `json:"host,omitempty"`   // host:port
	Egress string `json:"egress,omitempty"` // the egress proxy of the last attempt
	Client string `json:"client,omitempty"` // address, of a client that ended TLS
	Calls  int64  `json:"calls"`
	ID     string `json:"id"`               // of the newest of them
	Detail string `json:"detail,omitempty"` // of the newest of them
}

// Causes of client_denied and destination_denied, by the setting that mends them.
const (
	causeAddress    = "address"    // clients.allow
	causeLabels     = "labels"     // what the call says of its shop contradicts what is known
	causeOwnName    = "own_name"   // listen.hosts
	causeCrossSite  = "cross_site" // routes.cross_site
	causeNoRule     = "no_rule"    // egress_default: deny
	causeNoShop     = "no_shop"    // the egress rule needs a shop
	causeNoTaskType = "no_task"    // the egress rule needs a task type
	causePort       = "port"       // destinations.connect_ports
	causeListed     = "listed"     // destinations.deny
	causePrivate    = "private"    // destinations.private and allow
	causeClientTLS  = "client_tls" // a client that seems not to trust our CA
	causeNever      = "never"      // no setting allows it
)

// details are parts of the text that a refusal has, by reason.
var details = []struct{ reason, part, cause string }{
	{"client_denied", "clients.allow", causeAddress},
	{"client_denied", "contradicts", causeLabels},
	{"client_denied", "listen.hosts", causeOwnName},
	{"client_denied", "cross_site", causeCrossSite},
	{"destination_denied", "egress_default", causeNoRule},
	{"destination_denied", "{shop}", causeNoShop},
	{"destination_denied", "{task_type}", causeNoTaskType},
	{"destination_denied", "connect_ports", causePort},
	{"destination_denied", "destinations.deny", causeListed},
	{"destination_denied", "never allowed", causeNever},
	{"destination_denied", " address (", causePrivate},
	{"destination_denied", "private network (", causePrivate},
}

// causeOf says what to mend, where the reason alone does not.
func causeOf(s *attempt.Summary) string {
	for i := range details {
		if d := &details[i]; d.reason == s.Reason && strings.Contains(s.Detail, d.part) {
			return d.cause
		}
	}
	if n := len(s.Attempts); n > 0 {
		return s.Attempts[n-1].Verdict.Reason
	}
	return ""
}

// flawKey tells ways to fail apart.
type flawKey struct{ reason, cause, host, client string }

// flaw counts one. The texts of the newest call are written over the older ones.
type flaw struct {
	key        flawKey
	exit       string
	calls      int64
	id, detail []byte
}

// flawLocked counts a call that failed or was refused, or whose client did not
// take our certificate.
func (o *Observer) flawLocked(s *attempt.Summary, client string) {
	key := flawKey{reason: bounded(s.Reason), host: bounded(s.Host)}
	switch {
	case s.Result == "failed" || s.Result == "rejected":
		key.cause = bounded(causeOf(s))
	case s.Mode == "connect" && aboutTrust(s.Detail):
		key.cause, key.client = causeClientTLS, bounded(client)
	default:
		return
	}
	f, ok := o.flaws.Get(key)
	if !ok {
		f = &flaw{key: flawKey{short(key.reason), short(key.cause), short(key.host), short(key.client)}, exit: short(s.Attempts.Last().Egress)}
		o.flaws.Add(f.key, f)
	}
	f.calls++
	f.id = append(f.id[:0], bounded(s.ID)...)
	f.detail = append(f.detail[:0], bounded(s.Detail)...)
}

// aboutTrust says whether the detail of a tunnel is that its client did not go on
// with TLS under our certificate.
func aboutTrust(detail string) bool {
	return strings.HasPrefix(detail, "TLS with the client") || strings.HasPrefix(detail, "the client does not trust our CA")
}

func (f *flaw) view() FailureView {
	return FailureView{f.key.reason, f.key.cause, f.key.host, f.exit, f.key.client, f.calls, string(f.id), string(f.detail)}
}

// addFlaw puts f where it is shown.
func (v *View) addFlaw(f FailureView) {
	if f.Cause == causeClientTLS {
		v.Refused = append(v.Refused, f)
		return
	}
	v.Failures = append(v.Failures, f)
}
