package simulate

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/config"
	"retryproxy/internal/race"
)

// tried runs a scenario that has no runs of its own with one configuration.
func tried(t *testing.T, text, conf string) *Result {
	t.Helper()
	text += "\nruns:\n  - name: ours\n    config: " + conf + "\n"
	return simulated(t, scenario(t, "test.yaml", text))["ours"]
}

const oneCall = `
duration: 1m
bots: [{bots: 1, every: 0, method: GET, patience: 50s}]
`

func TestRulesOfTheProxy(t *testing.T) {
	tests := []struct {
		name, platform, conf string
		good, upstream       int
		stop                 string
	}{
		{"a success is sent once", `{}`, `{}`, 1, 1, "ok"},
		{
			"a permanent failure is not retried", `{failures: [{share: 1, status: 404}]}`,
			`{}`, 0, 1, "fail_permanent",
		},
		{
			"a transient one is, as often as the policy says", `{failures: [{share: 1, status: 503}]}`,
			`{retry_policies: [{name: default, max_retries: 2, base_delay: 1s}]}`, 0, 3, "attempts_exhausted",
		},
		{
			"no retry is planned for after the deadline", `{failures: [{share: 1, status: 503}]}`,
			`{retry_policies: [{name: default, base_delay: 10s, deadline: 5s}]}`, 0, 1, "deadline_exceeded",
		},
		{
			"a Retry-After that does not fit is not waited for", `{failures: [{share: 1, status: 503, retry_after: 20s}]}`,
			`{retry_policies: [{name: default, deadline: 10s}]}`, 0, 1, "retry_after_too_long",
		},
		{
			"no token, no retry", `{failures: [{share: 1, status: 503}]}`,
			`{retry_limits: {global: 0}}`, 0, 1, "retry_limited",
		},
		{
			"the switch is off", `{failures: [{share: 1, status: 503}]}`,
			`{retries: {default: "off"}}`, 0, 1, "retries_off",
		},
		{
			"a refused connection is tried again", `{failures: [{share: 1, fault: refused}]}`,
			`{retry_policies: [{name: default, max_retries: 1}]}`, 0, 2, "attempts_exhausted",
		},
		{
			"a silent platform is given up after per_try_timeout", `{failures: [{share: 1, fault: hang}]}`,
			`{retry_policies: [{name: default, max_retries: 1, base_delay: 1s, per_try_timeout: 3s}]}`, 0, 2, "attempts_exhausted",
		},
		{
			"the bot hangs up first", `{failures: [{share: 1, fault: hang}]}`,
			`{retry_policies: [{name: default, max_retries: 9, per_try_timeout: 60s}]}`, 0, 1, "client_gone",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := tried(t, "platform: "+test.platform+oneCall, test.conf)
			if r.Total.Good != test.good || r.Total.Upstream != test.upstream || r.Stops[test.stop] != 1 {
				t.Errorf("%d good, %d upstream, stops %v; want %d, %d, %s", r.Total.Good, r.Total.Upstream, r.Stops, test.good, test.upstream, test.stop)
			}
		})
	}
}

// Of a policy with variants each call lives by one.
func TestVariantsHaveTheirPart(t *testing.T) {
	const text = "platform: {failures: [{share: 1, status: 503}]}\nduration: 1m\nbots: [{bots: 100, every: 0, method: GET, patience: 50s}]"
	const limits = "retry_limits: {global: off}, breakers: {host: {min_calls: 10000, consecutive_failures: 10000}}"
	r := tried(t, text, `{retry_policies: [{name: default, variants: [{name: none, max_retries: 0}, {name: one, max_retries: 1}]}], `+limits+`}`)
	if n := r.Total.Upstream; n < 130 || n > 170 {
		t.Errorf("%d requests of 100 calls, want about 150: half of them are tried twice", n)
	}
}

// A POST without a key that was cut off may have been done.
func TestUnsafeCallsAreNotRepeated(t *testing.T) {
	const text = `
duration: 1m
platform: {failures: [{share: 1, fault: reset}]}
bots:
  - {name: keyless, bots: 1}
  - {name: keyed, bots: 1, keyed: true}
`
	r := tried(t, text, "{}")
	if r.Groups[0].Upstream != 1 || r.Groups[1].Upstream != 4 || r.Stops["manual_review"] != 1 {
		t.Errorf("keyless sent %d times, keyed %d, stops %v; want 1, 4, one manual_review", r.Groups[0].Upstream, r.Groups[1].Upstream, r.Stops)
	}
}

// The work of a request goes on when its caller has left: the second one waits for it.
func TestPlatformWorksOnForNobody(t *testing.T) {
	const text = `
duration: 10s
platform: {slots: 1, queue: 1, service: 4s, full: 429}
bots:
  - {name: hasty, bots: 1, patience: 1s}
  - {name: second, bots: 1, from: 2s, patience: 20s}
  - {name: third, bots: 1, from: 3s, patience: 20s}
runs: [{peer: direct}]
`
	r := simulated(t, scenario(t, "test.yaml", text))["direct"]
	if r.Groups[0].Good != 0 || r.Groups[1].Good != 1 || r.Groups[1].AddedP50MS != 2000 || r.Groups[2].Good != 0 {
		t.Errorf("groups = %+v, want the second to succeed with 2 s in the queue, which is full for the third", r.Groups)
	}
}

// An answer on its way holds no slot.
func TestLatencyHoldsNoSlot(t *testing.T) {
	const text = `
duration: 2s
platform: {slots: 1, queue: 10, service: 100ms, latency: 1s}
bots: [{bots: 2, arrivals: together}]
runs: [{peer: direct}]
`
	r := simulated(t, scenario(t, "test.yaml", text))["direct"]
	if g := r.Total; g.Good != 2 || g.AddedP50MS != 0 || g.AddedP99MS != 100 {
		t.Errorf("total = %+v, want both good, one of them after 100 ms in the queue", g)
	}
}

// A bot that says how long it waits is told at once that a retry comes too late;
// of another nothing is known until it hangs up.
func TestPatienceThatTheProxyKnows(t *testing.T) {
	const text = `
duration: 5s
platform: {failures: [{share: 1, status: 503}]}
bots:
  - {name: tells, bots: 1, patience: 2s, tells_proxy: true}
  - {name: silent, bots: 1, patience: 2s}
`
	r := tried(t, text, "{retry_policies: [{name: default, base_delay: 3s}]}")
	if r.Stops["deadline_exceeded"] != 1 || r.Stops["client_gone"] != 1 || r.Total.Upstream != 2 {
		t.Errorf("stops %v, %d requests; want one of each, and no retry", r.Stops, r.Total.Upstream)
	}
}

func TestPoliciesGoByLabelsAndTime(t *testing.T) {
	const text = `
duration: 5s
start: 2026-12-01T03:00:00Z
platform: {failures: [{share: 1, status: 503}]}
bots:
  - {name: vip, bots: 1, shop: a, task_type: order, patience: 10m}
  - {name: said, bots: 1, shop: b, shop_tier: vip, task_type: order, patience: 10m}
  - {name: night, bots: 1, shop: c, task_type: upload, patience: 10m}
  - {name: usual, bots: 1, shop: d, task_type: order, patience: 10m}
`
	r := tried(t, text, `
      timezone: UTC
      shops: {a: {tier: vip}}
      retry_policies:
        - {name: vip, match: {shop_tier: vip}, max_retries: 5}
        - {name: night, match: {task_type: upload, hour_range: 2-6}, max_retries: 1}
        - {name: default, max_retries: 2}
      breakers: {host: {consecutive_failures: 100, min_calls: 100}}
      retry_limits: {shop: off}`)
	for i, want := range []int{6, 6, 2, 3} {
		if g := r.Groups[i]; g.Upstream != want {
			t.Errorf("%s: %d requests, want %d", g.Name, g.Upstream, want)
		}
	}
}

// Variants of a policy are compared within one run.
func TestVariantsAreCompared(t *testing.T) {
	const text = `
duration: 20s
platform: {failures: [{share: 0.3, status: 503}]}
bots: [{name: bots, bots: 100, every: 1s, keyed: true, shops: 10}]
runs:
  - name: both
    config:
      retry_policies:
        - {name: order, match: {shop: "*"}, variants: [{name: none, max_retries: 0}, {name: two, weight: 3, max_retries: 2}]}
      retry_limits: {global: off, task_type: off, shop: off}
`
	s := scenario(t, "test.yaml", text)
	report, err := Simulate(t.Context(), s, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.WriteText(&out); err != nil || !strings.Contains(out.String(), "both: variant") {
		t.Errorf("WriteText = %v, without the variants:\n%s", err, &out)
	}
	arms := report.Runs[0].Policies
	if len(arms) != 2 || arms[0].Name != "order/none" || arms[1].Name != "order/two" {
		t.Fatalf("policies = %+v, want the two variants", arms)
	}
	hold(t,
		goal{"calls of weight 1 in 4", float64(arms[0].Calls), 430, 570},
		goal{"success without retries", arms[0].Success, 0.65, 0.75},
		goal{"requests per call without", arms[0].Amplification, 1, 1},
		goal{"success with two", arms[1].Success, 0.955, 0.99},
		goal{"requests per call with two", arms[1].Amplification, 1.33, 1.45},
	)
}

// Naive retries are for failures of the platform, whatever it says about time.
func TestNaivePeer(t *testing.T) {
	for failure, want := range map[string]int{
		"{share: 1, status: 503, retry_after: 60s}": 4, "{share: 1, status: 429}": 4, "{share: 1, fault: refused}": 4,
		"{share: 1, fault: hang}": 4, "{share: 1, status: 404}": 1, "{share: 0, status: 500}": 1,
	} {
		text := "duration: 1s\nbots: [{bots: 1, patience: 30s}]\nruns: [{peer: naive, retries: 3, timeout: 2s, delay: 100ms}]\nplatform: {failures: [" + failure + "]}"
		if r := simulated(t, scenario(t, "test.yaml", text))["naive"]; r.Total.Upstream != want {
			t.Errorf("%s: %d requests, want %d", failure, r.Total.Upstream, want)
		}
	}
	text := "duration: 1s\nbots: [{bots: 1, patience: 5s}]\nruns: [{peer: naive, retries: 3, timeout: 2s}]\nplatform: {failures: [{share: 1, fault: hang}]}"
	if r := simulated(t, scenario(t, "test.yaml", text))["naive"]; r.Total.Upstream != 3 {
		t.Errorf("%d requests, want 3: the bot hangs up in the third", r.Total.Upstream)
	}
}

func TestClosedLoopWaitsForAnswers(t *testing.T) {
	const text = `
duration: 20s
platform: {service: 3s}
bots:
  - {name: open, bots: 1, every: 1s}
  - {name: closed, bots: 1, every: 1s, loop: closed}
runs: [{peer: direct}]
`
	r := simulated(t, scenario(t, "test.yaml", text))["direct"]
	if r.Groups[0].Calls != 20 || r.Groups[1].Calls != 5 {
		t.Errorf("open %d calls, closed %d; want 20 and one each 4 s", r.Groups[0].Calls, r.Groups[1].Calls)
	}
}

// Shops that the platform sends away rest, with all their retries.
func TestRetryAfterOf429PausesTheShop(t *testing.T) {
	const text = `
duration: 10s
platform: {failures: [{share: 1, status: 429, retry_after: 5s}]}
bots: [{bots: 3, every: 0, from: 1s, to: 4s, shop: a, keyed: true}]
`
	r := tried(t, text, "{retry_limits: {global: off, task_type: off, shop: off}}")
	for _, b := range r.Wakeups.Bins {
		if b.AtMS < 8200 { // the last of the first three is sent away at 3.2 s
			t.Errorf("a retry at %d ms, want none before the pause is over", b.AtMS)
		}
	}
	if r.Wakeups.Retries == 0 {
		t.Error("no retries, want some")
	}
}

func TestSameSeedSameNumbers(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	once := func(seed int) *Report {
		s := shipped(t, "storm-slow")
		s.shorten(30 * time.Second)
		s.Seed, s.Bots[0].Arrivals, s.Platform.Service = seed, arriveRandom, Spread{kind: kindExponential, a: 200 * time.Millisecond}
		r, err := Simulate(t.Context(), s, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r.scenario = nil
		return r
	}
	first, again, other := once(1), once(1), once(2)
	if diff := cmp.Diff(first.Runs, again.Runs); diff != "" {
		t.Errorf("two runs with one seed differ:\n%s", diff)
	}
	if cmp.Equal(first.Runs, other.Runs) {
		t.Error("another seed makes no difference")
	}
	if a, b := first.Runs[0].Total.Calls, first.Runs[2].Total.Calls; a != b {
		t.Errorf("the runs of a scenario have %d and %d calls, want the same ones", a, b)
	}
}

// shorten ends a scenario of one group earlier.
func (s *Scenario) shorten(d time.Duration) { s.Duration, s.Bots[0].To = d, d }

func TestAgainstOtherConfigurations(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "retry_policies: [{name: default, max_retries: 0}]", "b.yaml": "retry_policies: [{name: default, max_retries: 3}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := shipped(t, "independent")
	s.shorten(30 * time.Second)
	s.Against([]string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")})
	runs := simulated(t, s)
	a, b := runs["a.yaml"], runs["b.yaml"]
	if len(runs) != 4 || a == nil || b == nil || a.Total.Upstream != a.Total.Calls || b.Total.Success < 0.99 {
		t.Errorf("runs = %v, want the two peers, a.yaml without retries and b.yaml with them", runs)
	}
	s.Against([]string{filepath.Join(dir, "none.yaml")})
	if _, err := Simulate(t.Context(), s, config.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Simulate with a missing file = %v, want that it does not exist", err)
	}
}

func TestSpreads(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	tests := []struct {
		text      string
		mean      time.Duration
		low, high time.Duration
	}{
		{"200ms", 200 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
		{"2", 2 * time.Second, 2 * time.Second, 2 * time.Second},
		{"uniform 100ms 300ms", 200 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond},
		{"exponential 1s", time.Second, 0, longest},
		{"lognormal 200ms 0.5", 226600 * time.Microsecond, 0, longest}, // the mean is exp(sigma²/2) times the median
		{"lognormal 200ms 0", 200 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
	}
	for _, test := range tests {
		var s Spread
		if err := s.UnmarshalText([]byte(test.text)); err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if mean := s.mean(); (mean - test.mean).Abs() > test.mean/200 {
			t.Errorf("the mean of %q is %v, want %v", test.text, mean, test.mean)
		}
		sum := time.Duration(0)
		for range 20_000 {
			d := s.sample(dice)
			if d < test.low || d > test.high {
				t.Errorf("%q gave %v, want %v to %v", test.text, d, test.low, test.high)
			}
			sum += d
		}
		if mean := sum / 20_000; (mean - test.mean).Abs() > test.mean/50 {
			t.Errorf("%q has the mean %v, want %v", test.text, mean, test.mean)
		}
	}
	for _, text := range []string{"", "soon", "uniform 3s", "uniform 3s 1s", "normal 3s 1s", "lognormal 1s x", "lognormal 1s 9", "exponential -1s"} {
		var s Spread
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestFaultsOfScenarios(t *testing.T) {
	const bots = "\nbots: [{bots: 1}]"
	tests := []struct{ text, want string }{
		{"duration: 1m", "s.yaml: bots: there must be at least one group"},
		{"durations: 1m" + bots, "s.yaml:1: durations: unknown key; did you mean duration?"},
		{bots, "s.yaml: duration: 0s must be from 1s to 168h0m0s"},
		{"duration: 1m\nplatform: {service: often}" + bots, `s.yaml:2: platform.service: want a duration such as 200ms`},
		{"duration: 1m\nplatform: {full: 200}" + bots, "s.yaml:2: platform.full: 200 must be from 400 to 599"},
		{"duration: 1m\nplatform: {failures: [{share: 2, status: 503}]}" + bots, "s.yaml:2: platform.failures[0].share: 2 must be from 0 to 1"},
		{"duration: 1m\nplatform: {failures: [{share: 0.1}]}" + bots, "s.yaml:2: platform.failures[0].status: 0 must be from 400 to 599"},
		{"duration: 1m\nplatform: {failures: [{share: 0.1, fault: flood}]}" + bots, `s.yaml:2: platform.failures[0].fault: "flood" must be one of`},
		{"duration: 1m\nplatform: {failures: [{share: 0.7, status: 500}, {share: 0.7, status: 503}]}" + bots, "s.yaml:2: platform.failures: the shares add up to 1.4"},
		{"duration: 1m\nphases: [{from: 9s, to: 8s}]" + bots, "s.yaml:2: phases[0].to: 8s is not after from 9s"},
		{"duration: 1m\nphases: [{from: 1s, to: 8s}, {from: 7s, to: 9s}]" + bots, "s.yaml:2: phases[1].from: 7s is before 8s"},
		{"duration: 1m\nbots: [{bots: 0}]", "s.yaml:2: bots[0].bots: 0 must be from 1 to 100000"},
		{"duration: 1m\nbots: [{bots: 1, loop: circle}]", `s.yaml:2: bots[0].loop: "circle" must be one of [open closed]`},
		{"duration: 1m\nbots: [{bots: 1, from: 2m}]", "s.yaml:2: bots[0].to: calls begin from 2m0s until 1m0s"},
		{"duration: 1m\nbots: [{bots: 1, name: a}, {bots: 1, name: a}]", `s.yaml:2: bots[1].name: "a" is already another's name`},
		{"duration: 24h\nbots: [{bots: 100000, every: 1s}]", "s.yaml:2: bots: they make some 8640100000 calls"},
		{"duration: 1m\nruns: [{peer: nginx}]" + bots, `s.yaml:2: runs[0].peer: "nginx" must be one of`},
		{"duration: 1m\nruns: [{name: =1+1}]" + bots, `s.yaml:2: runs[0].name: "=1+1" must begin with a letter or a digit`},
		{"duration: 1m\nruns: [{retries: 3}]" + bots, "s.yaml:2: runs[0]: retries, timeout and delay are those of peer naive"},
		{"duration: 1m\nruns: [{peer: naive}]" + bots, "s.yaml:2: runs[0].retries: must be at least 1"},
		{"duration: 1m\nruns: [{peer: direct, config: {}}]" + bots, "s.yaml:2: runs[0]: a peer has no configuration"},
		{"duration: 1m\nruns: [{config: {slots: {max_in_flight: 0}}}]" + bots, "s.yaml:2: runs[0].config.slots.max_in_flight: 0 must be from 1"},
	}
	for _, test := range tests {
		s, err := Parse("s.yaml", []byte(test.text))
		if err == nil {
			_, err = Simulate(t.Context(), s, config.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
}

func TestReports(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	s := shipped(t, "storm-slow")
	s.Runs[0].Name = "a < b & c"
	r, err := Simulate(t.Context(), s, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var text, table, svg bytes.Buffer
	for _, write := range []error{r.WriteText(&text), r.WriteCSV(&table), r.WriteSVG(&svg)} {
		if write != nil {
			t.Fatal(write)
		}
	}
	for _, want := range []string{"final success", "99.00 %", "never", "recovered after", "why calls ended: ok 12000"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) < 1+3*60 || rows[11][0] != "a < b & c" || rows[11][1] != "10" || rows[11][2] != "200" || rows[1][10] != "60" || rows[1][11] != "300.0" || rows[13][11] != "12.0" {
		t.Errorf("CSV = %d rows, %v, the eleventh %v; want one a second and run", len(rows), err, rows[11])
	}
	lines, shades := 0, 0
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		} else if ok && e.Name.Local == "rect" {
			shades++
		}
	}
	if lines != 3*7 || shades != 1+3*2 {
		t.Errorf("the SVG has %d lines and %d areas, want 7 lines and 2 shaded outages a run", lines, shades)
	}
}

// BenchmarkHalfAnHour is 30 minutes of 500 bots with an outage of five.
func BenchmarkHalfAnHour(b *testing.B) {
	s := shipped(b, "published")
	s.Duration, s.Bots = 30*time.Minute, []Bots{{
		Name: "bots", Bots: 500, Every: 5 * time.Second, Loop: loopOpen, Arrivals: arriveRandom, To: 30 * time.Minute,
		TaskType: "order_ship", Method: "POST", Path: "/", Keyed: true, Patience: 10 * time.Minute,
	}}
	s.Platform.Slots = 60
	s.Runs = []Run{{Name: "retryproxy"}}
	for b.Loop() {
		simulated(b, s)
	}
}
