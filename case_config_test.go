package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/config"
)

// withFile runs f with a rig that watches a configuration file, in a bubble. The
// file begins with what retrying(1) says.
func withFile(t *testing.T, f func(r *rig, file string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, file, retrying(1))
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, retrying(1), watching(file))
		f(r, file)
		r.close()
	})
}

// watching makes an app watch a file, as serve does.
func watching(file string) func(*app) {
	return func(a *app) {
		a.parse = func(data []byte) (*config.Config, error) {
			return parseConfig(file, data, &serveFlags{}, func(string) string { return "" })
		}
		a.watcher = config.NewWatcher(config.File{Data: []byte(retrying(1))}, func() (config.File, error) { return config.ReadFile(file) }, a.apply)
		a.watcher.Report = a.reported
	}
}

// retrying is the configuration of the cases with so many retries and no breaker.
// The policy that says so is the last line: without it the built-in one has three.
func retrying(retries int) string {
	return strings.NewReplacer("retry_policies:\n", "retry_policies:\n  - {name: bulk, match: {task_type: bulk}, max_retries: 0}\n",
		"max_retries: 3", fmt.Sprintf("max_retries: %d", retries), breakerOff[0], breakerOff[1]).Replace(caseConfig[1:])
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rename writes a file beside and moves it over.
func rename(t *testing.T, file, text string) {
	t.Helper()
	write(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// wantAttempts makes one call and checks how often it was tried.
func (r *rig) wantAttempts(n int) {
	r.t.Helper()
	r.get("http://u1.test/x")
	if got := len(r.last().Attempts); got != n {
		r.t.Errorf("attempts = %d, want %d", got, n)
	}
}

func TestCase_CF_01_BrokenFileKeepsTheRules(t *testing.T) {
	withFile(t, func(r *rig, file string) {
		r.upstream("u1.test:80", answer(503, ""))
		r.wantMetric(1, "config_last_reload_successful")
		r.wantAttempts(2)
		applied := r.metric("config_last_reload_success_timestamp_seconds")

		broken := strings.Replace(retrying(1), "multiplier: 2", "multiplier: two", 1)
		write(r.t, file, broken)
		rest(3 * time.Second)
		r.wantAttempts(2)
		r.wantMetric(0, "config_last_reload_successful")
		r.wantMetric(applied, "config_last_reload_success_timestamp_seconds")
		failed := r.logged("the changed configuration is not used; the old one stays in force")
		if len(failed) != 1 || !strings.Contains(fmt.Sprint(failed[0]["error"]), "policy.yaml:9: retry_policies[1].multiplier") {
			t.Errorf("logged %v, want one refusal with line and key", failed)
		}

		write(r.t, file, retrying(2))
		rest(2 * time.Second)
		r.wantAttempts(3)
		r.wantMetric(1, "config_last_reload_successful")
		if got := r.metric("config_last_reload_success_timestamp_seconds"); got <= applied {
			t.Errorf("time of the last reload = %v, want later than %v", got, applied)
		}
		if n := len(r.logged("configuration reloaded")); n != 1 {
			t.Errorf("reloads = %d, want 1", n)
		}
	})
}

func TestCase_CF_02_HalfWrittenFilesAreNeverApplied(t *testing.T) {
	withFile(t, func(r *rig, file string) {
		u := r.upstream("u1.test:80", answer(503, ""))
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() { // ten calls a second
			for {
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
					group.Go(func() { r.get("http://u1.test/x") })
				}
			}
		})
		for i := range 200 {
			text := fmt.Sprintf("# save %d\n", i) + retrying(1)
			parts := []string{"", text[:len(text)/3], text[:len(text)*2/3], text}
			for _, part := range parts {
				write(r.t, file, part)
				time.Sleep(rand.N(150 * time.Millisecond))
			}
		}
		rest(2 * time.Second)
		close(done)
		group.Wait()
		calls := r.ended()
		for _, c := range calls {
			if len(c.Attempts) != 2 {
				t.Errorf("a call at %v made %d attempts, want 2", c.Started, len(c.Attempts))
			}
		}
		if u.count() < 200 {
			t.Errorf("requests at the upstream = %d, want calls all along", u.count())
		}
		if yaml := r.admin("GET", "/api/v1/config?format=yaml", "", nil).Body; !strings.Contains(yaml, "bulk") {
			t.Errorf("the configuration in force lacks a policy:\n%s", yaml)
		}
		write(r.t, file, retrying(2))
		rest(2 * time.Second)
		r.wantAttempts(3)
	})
}

func TestCase_CF_03_ConfigMapSwaps(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "..data")
	mount := func(i, retries int) { // as the kubelet does it
		t.Helper()
		version := fmt.Sprintf("..2026_%d", i)
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "policy.yaml"), retrying(retries))
		if err := os.Symlink(version, data+"_tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(data+"_tmp", data); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i-1)))
	}
	mount(0, 1)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.Symlink(filepath.Join("..data", "policy.yaml"), file); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, retrying(1), watching(file))
		r.upstream("u1.test:80", answer(503, ""))
		for i := range 5 {
			mount(i+1, i)
			rest(3 * time.Second)
			r.wantAttempts(i + 1)
		}
		r.close()
	})
}

func TestCase_CF_04_TheLastOfTwoWritesWins(t *testing.T) {
	withFile(t, func(r *rig, file string) {
		r.upstream("u1.test:80", answer(503, ""))
		for round := range 100 {
			write(r.t, file, fmt.Sprintf("# %d\n", round)+retrying(1))
			time.Sleep(5 * time.Millisecond)
			rename(r.t, file, fmt.Sprintf("# %d\n", round)+retrying(2))
			rest(2 * time.Second)
			r.wantAttempts(3)
		}
	})
}

// The contract: the first policy that matches wins, not the most specific one.
func TestCase_CF_06_TheFirstPolicyWins(t *testing.T) {
	const policies = `retry_policies:
  - {name: night, match: {task_type: order, hour_range: 22-6}, max_retries: 0}
  - {name: vip, match: {shop_tier: vip}, max_retries: 1}
  - {name: order, match: {task_type: order}, max_retries: 2}
  - {name: host, match: {host: u1.test}, max_retries: 4}
`
	for range 20 {
		bubble(t, func(r *rig) {
			r.upstream("u1.test:80", answer(503, ""))
			for _, tt := range []struct {
				clock    string
				policy   string
				attempts int
				labels   []string
			}{
				{"00:00:00", "night", 1, []string{"X-Task-Type: order", "X-Shop-Tier: vip"}},
				{"05:59:59", "night", 1, []string{"X-Task-Type: order", "X-Shop-Tier: vip"}},
				{"06:00:00", "vip", 2, []string{"X-Task-Type: order", "X-Shop-Tier: vip"}},
				{"12:00:00", "order", 3, []string{"X-Task-Type: order"}},
				{"13:00:00", "host", 5, nil},
				{"21:59:00", "order", 3, []string{"X-Task-Type: order"}},
				{"23:30:00", "night", 1, []string{"X-Task-Type: order"}},
			} {
				at, err := time.Parse(time.TimeOnly, tt.clock)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Until(time.Date(2000, 1, 1, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)))
				r.get("http://u1.test/x", tt.labels...)
				if c := r.last(); c.Policy != tt.policy || len(c.Attempts) != tt.attempts {
					t.Errorf("%s %v: policy %s, %d attempts; want %s, %d", tt.clock, tt.labels, c.Policy, len(c.Attempts), tt.policy, tt.attempts)
				}
			}
		}, "retry_policies:\n", policies, "\nlisten:", "\ntimezone: UTC\nlisten:", "consecutive_failures: 5", "consecutive_failures: 50")
	}
}
