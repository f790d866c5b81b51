package proxy

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"retryproxy/message"
	"retryproxy/policy"
)
func TestX(t *testing.T) {
	s := explainSettings(t)
	e, err := Explain(s, &Switch{Default: "on"}, ExplainRequest{Method: "POST", URL: "http://gw-api.pinduoduo.com/api?x=1", Fields: message.Fields{{"X-Shop-Id", "17"}, {"X-Idempotency-Key", "k"}}, Body: []byte("{}")}, noon)
	if err != nil { t.Fatal(err) }
	enc := json.NewEncoder(os.Stdout); enc.SetIndent("", " "); enc.Encode(e)
	_ = errors.New
	_ = time.Now
}
func explainSettings(t *testing.T) *Settings {
	p := plainPolicy()
	for _, c := range []int{408,425,429,500,501,502,503,504} { p.RetryStatuses.Add(c) }
	p.PermanentStatuses.Add(501)
	for _, c := range []int{408,425,429,503} { p.NotNowStatuses.Add(c) }
	p.Safe, p.SafeMethods, p.OnUnknown = "auto", []string{"GET","PUT"}, "manual_review"
	p.ConnectTimeout, p.PerTryTimeout, p.Deadline = 5*time.Second, 15*time.Second, 5*time.Minute
	p.ForwardHeaders = []string{"idempotency_key","retry_count"}
	set, err := policy.NewSet([]*policy.Policy{p}, time.UTC)
	if err != nil { t.Fatal(err) }
	return &Settings{Instance: "retryproxy", Via: true, Policies: set, Headers: HeaderNames{Keys: []string{"X-Idempotency-Key","Idempotency-Key"}, RetryCount:"X-Retry-Count",Shop:"X-Shop-Id",ShopTier:"X-Shop-Tier",Task:"X-Task-Type",Timeout:"X-Request-Timeout"}, Body: BodyLimits{Limit: 1<<20, Stream: true}, Upgrade: policy.NewHosts([]string{"gw-api.pinduoduo.com"})}
}
