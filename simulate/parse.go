package simulate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"retryproxy/config"
)

// Bounds of a scenario: what a machine does in a minute or so.
const (
	longestRun = 7 * 24 * time.Hour
	mostBots   = 100_000
	mostCalls  = 5_000_000
	mostSlots  = 1_000_000
	mostTries  = 100
	mostRuns   = 16
)

// Parse reads a scenario called name over the defaults and checks it, but not the
// configurations in it. The error joins one config.Problem for each fault.
func Parse(name string, data []byte) (*Scenario, error) {
	s := &Scenario{file: name, Seed: 1}
	s.Platform = Platform{Host: "api.example.com:443", Full: 503}
	k := checker{config.Decode(name, data, s)}
	s.complete(name)
	k.scenario(s)
	return s, k.Err()
}

// complete fills in what was left out.
func (s *Scenario) complete(name string) {
	s.Name = cmp.Or(s.Name, trimExt(filepath.Base(name)))
	if !s.Platform.Service.given() {
		s.Platform.Service = Spread{kind: kindFixed, a: 200 * time.Millisecond}
	}
	for i := range s.Bots {
		b := &s.Bots[i]
		b.Name = cmp.Or(b.Name, b.TaskType, fmt.Sprintf("bots_%d", i+1))
		b.Loop, b.Arrivals = cmp.Or(b.Loop, loopOpen), cmp.Or(b.Arrivals, arriveEven)
		b.Method, b.Path = cmp.Or(b.Method, "POST"), cmp.Or(b.Path, "/")
		b.Patience = cmp.Or(b.Patience, 30*time.Second)
		b.To = cmp.Or(b.To, s.Duration)
	}
	if len(s.Runs) == 0 {
		s.Runs = []Run{{Name: peerDirect, Peer: peerDirect}, {}}
	}
	for i := range s.Runs {
		r := &s.Runs[i]
		r.Name = cmp.Or(r.Name, r.Peer, ours)
		if r.ConfigFile != "" && !filepath.IsAbs(r.ConfigFile) {
			r.ConfigFile = filepath.Join(filepath.Dir(name), r.ConfigFile)
		}
	}
}

// Against replaces the runs of retryproxy by one for each configuration file, so
// that these are compared. The peers stay.
func (s *Scenario) Against(files []string) {
	s.Runs = slices.DeleteFunc(s.Runs, func(r Run) bool { return r.Peer == "" })
	names := map[string]int{}
	for _, file := range files {
		name := filepath.Base(file)
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, names[name])
		}
		s.Runs = append(s.Runs, Run{Name: name, ConfigFile: file})
	}
}

// ours is what a run of the proxy is called where it has no name.
const ours = "retryproxy"

func trimExt(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// checker collects what is out of bounds.
type checker struct{ *config.Reading }

func (k checker) scenario(s *Scenario) {
	between(k, "duration", s.Duration, time.Second, longestRun)
	between(k, "seed", s.Seed, 0, 1<<31-1)
	k.platform(&s.Platform)
	if len(s.Bots) == 0 {
		k.Fail("bots", "there must be at least one group")
	}
	calls := 0.0
	names := map[string]bool{}
	for i := range s.Bots {
		at := fmt.Sprintf("bots[%d]", i)
		k.bots(at, &s.Bots[i], s.Duration)
		k.unique(names, at+".name", s.Bots[i].Name)
		calls += s.Bots[i].calls()
	}
	if calls > mostCalls {
		k.Fail("bots", "they make some %.0f calls in %v; at most %d", calls, s.Duration, mostCalls)
	}
	k.phases(s)
	k.runs(s.Runs)
}

// calls is how many calls a group begins at most.
func (b *Bots) calls() float64 {
	if b.Every <= 0 {
		return float64(b.Bots)
	}
	return float64(b.Bots) * (1 + float64(b.To-b.From)/float64(b.Every))
}

func between[T cmp.Ordered](k checker, path string, n, low, high T) {
	if n < low || n > high {
		k.Fail(path, "%v must be from %v to %v", n, low, high)
	}
}

func (k checker) oneOf(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		k.Fail(path, "%q must be one of %v", word, words)
	}
}

func (k checker) unique(names map[string]bool, path, name string) {
	if first, _ := utf8.DecodeRuneInString(name); !unicode.IsLetter(first) && !unicode.IsDigit(first) {
		k.Fail(path, "%q must begin with a letter or a digit", name) // no spreadsheet takes it for a formula
	}
	if names[name] {
		k.Fail(path, "%q is already another's name", name)
	}
	names[name] = true
}

func (k checker) platform(p *Platform) {
	if p.Host == "" {
		k.Fail("platform.host", "must not be empty")
	}
	between(k, "platform.slots", p.Slots, 0, mostSlots)
	between(k, "platform.queue", p.Queue, 0, mostSlots)
	between(k, "platform.full", p.Full, 400, 599)
	k.failures("platform.failures", p.Failure)
}

func (k checker) failures(path string, all []Fail) {
	sum := 0.0
	for i := range all {
		f, at := &all[i], fmt.Sprintf("%s[%d]", path, i)
		between(k, at+".share", f.Share, 0, 1)
		if len(f.Shops) == 0 {
			sum += f.Share
		}
		switch {
		case f.Fault != "" && f.Status != 0:
			k.Fail(at, "has both a status and a fault; a request fails in one way")
		case f.Fault != "":
			k.oneOf(at+".fault", f.Fault, faultRefused, faultReset, faultHang)
		default:
			between(k, at+".status", f.Status, 400, 599)
		}
		if f.RetryAfter > 0 && f.Status == 0 {
			k.Fail(at+".retry_after", "only an answer with a status has it")
		}
		if f.Fault == faultRefused && f.After > 0 {
			k.Fail(at+".after", "a refused connection takes no time")
		}
	}
	if sum > 1 {
		k.Fail(path, "the shares add up to %v, which is more than 1", sum)
	}
}

func (k checker) phases(s *Scenario) {
	var last time.Duration
	for i := range s.Phases {
		p, at := &s.Phases[i], fmt.Sprintf("phases[%d]", i)
		if p.From < last {
			k.Fail(at+".from", "%v is before %v, where the phase before it ends", p.From, last)
		}
		if p.To <= p.From {
			k.Fail(at+".to", "%v is not after from %v", p.To, p.From)
		}
		if p.From > s.Duration {
			k.Fail(at+".from", "%v is after the end, duration is %v", p.From, s.Duration)
		}
		last = p.To
		between(k, at+".slots", p.Slots, 0, mostSlots)
		if p.Slots > 0 && s.Platform.Slots == 0 {
			k.Fail(at+".slots", "platform.slots sets no bound that could change")
		}
		k.failures(at+".failures", p.Failure)
	}
}

func (k checker) bots(at string, b *Bots, duration time.Duration) {
	between(k, at+".bots", b.Bots, 1, mostBots)
	k.oneOf(at+".loop", b.Loop, loopOpen, loopClosed)
	k.oneOf(at+".arrivals", b.Arrivals, arriveEven, arriveRandom, arriveTogether)
	between(k, at+".shops", b.Shops, 0, mostBots)
	if b.Shop != "" && b.Shops > 0 {
		k.Fail(at, "has both shop and shops")
	}
	between(k, at+".patience", b.Patience, time.Millisecond, longestRun)
	if b.Every > 0 && b.Every < time.Millisecond {
		k.Fail(at+".every", "%v is below %v", b.Every, time.Millisecond)
	}
	if b.From >= b.To || b.To > duration {
		k.Fail(at+".to", "calls begin from %v until %v, which must be after that and at most duration %v", b.From, b.To, duration)
	}
	if b.Loop == loopClosed && b.Arrivals == arriveRandom {
		k.Fail(at+".arrivals", "random is for an open loop: in a closed one the answer sets the time")
	}
	if b.Every == 0 && b.Arrivals == arriveRandom {
		k.Fail(at+".arrivals", "random needs every: each bot makes one call only")
	}
}

func (k checker) runs(runs []Run) {
	names := map[string]bool{}
	if len(runs) > mostRuns {
		k.Fail("runs", "%d are more than %d", len(runs), mostRuns)
	}
	for i := range runs {
		r, at := &runs[i], fmt.Sprintf("runs[%d]", i)
		k.unique(names, at+".name", r.Name)
		k.oneOf(at+".peer", r.Peer, "", peerDirect, peerNaive)
		between(k, at+".retries", r.Retries, 0, mostTries)
		if r.Peer != peerNaive && (r.Retries != 0 || r.Timeout != 0 || r.Delay != 0) {
			k.Fail(at, "retries, timeout and delay are those of peer naive; retryproxy has its policies")
		}
		if r.Peer == peerNaive && r.Retries == 0 {
			k.Fail(at+".retries", "must be at least 1; direct makes none")
		}
		if r.Config.Given() && r.ConfigFile != "" {
			k.Fail(at, "has both config and config_file")
		}
		if r.Peer != "" && (r.Config.Given() || r.ConfigFile != "") {
			k.Fail(at, "a peer has no configuration")
		}
	}
}
