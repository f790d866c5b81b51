package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/policy"
)

// twoArms has the variants before the key that they inherit.
const twoArms = `
retry_policies:
  - name: ship
    match: {task_type: order_ship}
    variants:
      - {name: now, weight: 90}
      - {name: fast, weight: 10, base_delay: 500ms, safe_methods: [get], forward_headers: [idempotency_key, retry_count]}
    base_delay: 3s
  - {name: default, max_retries: 7}
`

func built(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := parse(t, text).Policies()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestVariantsAreLaidOverTheirPolicy(t *testing.T) {
	ship := built(t, twoArms).Policies()[0]
	if len(ship.Variants) != 2 {
		t.Fatalf("%d variants, want 2", len(ship.Variants))
	}
	now, fast := ship.Variants[0], ship.Variants[1]
	for _, v := range ship.Variants {
		if v.Of != ship || len(v.Match.TaskType) > 0 || v.MaxRetries != 7 {
			t.Errorf("%s: Of %v, match %v, max_retries %d; want ship, no match of its own, and 7 from default", v.Name, v.Of, v.Match, v.MaxRetries)
		}
	}
	if now.Name != "ship/now" || now.Weight != 90 || now.Backoff.Base != 3*time.Second || now.ForwardHeadersSet {
		t.Errorf("now = %+v, want ship/now of weight 90 with the policy's base_delay", now)
	}
	if fast.Name != "ship/fast" || fast.Weight != 10 || fast.Backoff.Base != 500*time.Millisecond || fast.SafeMethods[0] != "GET" || !fast.ForwardHeadersSet {
		t.Errorf("fast = %+v, want its own base_delay, methods and headers", fast)
	}
}

func TestVariantsAreNotInherited(t *testing.T) {
	set := built(t, `retry_policies: [{name: a, match: {shop: s1}}, {name: default, variants: [{name: x}, {name: y}]}]`)
	if n := len(set.Named("a").Variants); n != 0 {
		t.Errorf("a policy has %d variants of default, want none", n)
	}
	if y := set.Named("default/y"); y == nil || y.Weight != 1 {
		t.Errorf("default/y = %+v, want it with weight 1", y)
	}
}

// What check prints and the API shows says of a variant what is different there, and
// is read again as the same.
func TestVariantsAreWrittenAsTheyDiffer(t *testing.T) {
	c := parse(t, twoArms)
	text := string(c.Marshal())
	const want = `    variants:
      - name: now
        weight: 90
      - name: fast
        weight: 10
        base_delay: 500ms
        safe_methods: [GET]
        forward_headers: [idempotency_key, retry_count]
`
	if !strings.Contains(text, want) {
		t.Errorf("Marshal() = %s\nwant in it\n%s", text, want)
	}
	if diff := cmp.Diff(c.RetryPolicies, parse(t, text).RetryPolicies, same); diff != "" {
		t.Errorf("what Marshal wrote is read differently (-first +again):\n%s", diff)
	}
}

func TestWarningsNameTheVariant(t *testing.T) {
	c := parse(t, `retry_policies: [{name: a, match: {shop: s1}, variants: [{name: x}, {name: y, client_hold: 5s, redrive: [1h], dead_letter: none}]}]`)
	got := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{"a/y has client_hold, which needs a durable store", "as no letter is kept to be tried again: a/y"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("Warnings() = %s\nwant once: %s", got, want)
		}
	}
}

func TestFailoverWarnings(t *testing.T) {
	c := parse(t, `retry_policies: [{name: a, match: {shop: s1}, failover: supplier-b}, {name: b, match: {shop: s2}, failover: [supplier-b], business_key: true}, {name: c, match: {shop: s3}}]`)
	got := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{"is a second one: a", "which supplier has an order: b"} {
		if strings.Count(got, want) != 1 || strings.Contains(got, want+",") {
			t.Errorf("Warnings() = %s\nwant once: %s", got, want)
		}
	}
}
