package simulate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"retryproxy/config"
	"retryproxy/internal/race"
)

// shipped is a scenario that comes with the program.
func shipped(t testing.TB, name string) *Scenario {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "example", "scenarios", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return scenario(t, name+".yaml", string(data))
}

func scenario(t testing.TB, name, text string) *Scenario {
	t.Helper()
	s, err := Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", name, err)
	}
	return s
}

// simulated runs a scenario; the results are by the names of its runs.
func simulated(t testing.TB, s *Scenario) map[string]*Result {
	t.Helper()
	report, err := Simulate(t.Context(), s, config.Options{})
	if err != nil {
		t.Fatalf("Simulate(%s) = %v", s.Name, err)
	}
	runs := map[string]*Result{}
	for i := range report.Runs {
		runs[report.Runs[i].Name] = &report.Runs[i]
	}
	return runs
}

// goal is what a number has to be.
type goal struct {
	what           string
	got, low, high float64
}

func hold(t *testing.T, goals ...goal) {
	t.Helper()
	for _, g := range goals {
		if g.got < g.low || g.got > g.high {
			t.Errorf("%s = %v, want %v to %v", g.what, g.got, g.low, g.high)
		}
	}
}

// The published case: without smart retry about 82 % and forty minutes, with it
// everything is held and done.
func TestPublishedCase(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	runs := simulated(t, shipped(t, "published"))
	naive, ours := runs["bots, 5 retries"], runs["retryproxy"]
	hold(t,
		goal{"success without smart retry", naive.Total.Success, 0.80, 0.84},
		goal{"recovery without it, min", float64(naive.Recovery) / 60, 37, 43},
		goal{"success", ours.Total.Success, 0.985, 1},
		goal{"amplification", ours.Total.Amplification, 1, 1.08},
		goal{"backlog done after, s", float64(ours.BacklogMS) / 1000, 0, 180},
		goal{"over capacity for, s", float64(ours.OverloadMS) / 1000, 0, 5},
		goal{"recovery, s", float64(ours.Recovery), 0, 0},
	)
}

// The peers do what direct calls and nginx did as real processes
// (docs/benchmarks.md): the platform is a fair one.
func TestPeersDoAsMeasured(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	slow, quick := simulated(t, shipped(t, "storm-slow")), simulated(t, shipped(t, "storm-fast"))
	direct, naive := slow["direct"], slow["proxy, 3 retries"]
	hold(t,
		goal{"slow, direct: success, measured 0.990", direct.Total.Success, 0.985, 0.995},
		goal{"slow, direct: of the outage, measured 0.940", direct.OutageSuccess, 0.93, 0.95},
		goal{"slow, direct: quick answers again, measured 17 s", float64(direct.RecoveryFast), 15, 19},
		goal{"slow, naive: success, measured 0.214", naive.Total.Success, 0.15, 0.25},
		goal{"slow, naive: amplification, measured 3.46", naive.Total.Amplification, 3.4, 3.55},
		goal{"slow, naive: recovery, measured never", float64(naive.Recovery), -1, -1},
		goal{"fast, direct: success, measured 0.833", quick["direct"].Total.Success, 0.83, 0.84},
		goal{"fast, naive: success, measured 0.836", quick["proxy, 3 retries"].Total.Success, 0.83, 0.84},
		goal{"fast, naive: amplification, measured 1.49", quick["proxy, 3 retries"].Total.Amplification, 1.47, 1.51},
	)
}

// The lab's storms by their names, and the requests per call that each may cost.
func TestStorms(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	for name, most := range map[string]float64{"storm-slow": 1.05, "storm-fast": 1.08} {
		t.Run(name, func(t *testing.T) {
			ours := simulated(t, shipped(t, name))["retryproxy"]
			hold(t,
				goal{"success", ours.Total.Success, 0.995, 1},
				goal{"amplification", ours.Total.Amplification, 1, most},
				goal{"recovery, s", float64(ours.Recovery), 0, 0},
				goal{"recovery with answers within 1 s, s", float64(ours.RecoveryFast), 0, 5},
				goal{"over capacity for, s", float64(ours.OverloadMS) / 1000, 0, 5},
			)
		})
	}
}

func TestIndependentFailures(t *testing.T) {
	ours := simulated(t, shipped(t, "independent"))["retryproxy"]
	hold(t,
		goal{"success", ours.Total.Success, 0.999, 1},
		goal{"amplification", ours.Total.Amplification, 1.1, 1.12},
	)
}

func TestThunderingHerd(t *testing.T) {
	ours := simulated(t, shipped(t, "thundering"))["retryproxy"]
	hold(t,
		goal{"retries", float64(ours.Wakeups.Retries), 10000, 10000},
		goal{"fullest bin against the mean of the jitter window", ours.Wakeups.Ratio, 0.5, 3},
		goal{"success", ours.Total.Success, 1, 1},
	)
}

// While fresh calls want more than is left, retries have three tenths of the slots;
// alone they use all of them.
func TestSaturatedSlots(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	ours := simulated(t, shipped(t, "saturated"))["retryproxy"]
	share := func(from, to int) (perSecond, retries float64) {
		sent, again := 0, 0
		for _, s := range ours.Seconds[from:to] {
			sent, again = sent+s.Upstream, again+s.Retries
		}
		return float64(sent) / float64(to-from), float64(again) / float64(sent)
	}
	both, among := share(14, 40)
	alone, all := share(52, 60)
	hold(t,
		goal{"requests per second, 20 slots of 200 ms", both, 99, 101},
		goal{"share of retries beside fresh calls", among, 0.28, 0.3},
		goal{"requests per second of retries alone", alone, 99, 101},
		goal{"share of retries alone", all, 1, 1},
	)
}

func TestOneShopFails(t *testing.T) {
	ours := simulated(t, shipped(t, "one-shop"))["retryproxy"]
	others, x := ours.Groups[0], ours.Groups[1]
	hold(t,
		goal{"others: success", others.Success, 1, 1},
		goal{"others: amplification", others.Amplification, 1, 1},
		goal{"shop x: success", x.Success, 0.5, 0.7},
		goal{"retries of shop x", float64(ours.Wakeups.Retries), 9, 30},
	)
	var states []string
	for _, e := range ours.Breakers {
		states = append(states, e.Scope+" "+e.Shop+" "+e.To)
	}
	if got := strings.Join(states, ", "); got != "shop x open, shop x closed" {
		t.Errorf("breakers: %s, want those of shop x alone: open, closed", got)
	}
}

// TestAllScenariosAreTested keeps a new one from being forgotten here.
func TestAllScenariosAreTested(t *testing.T) {
	files, err := filepath.Glob("../example/scenarios/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("shipped_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := trimExt(filepath.Base(file))
		s := shipped(t, name)
		if s.Name != name || s.About == "" || !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("%s: named %q, about %q; want its own name, an about, and a test in this file", file, s.Name, s.About)
		}
	}
}
