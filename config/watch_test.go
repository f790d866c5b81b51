package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a file that the test writes and a watcher's record of what it did.
type fake struct {
	mu      sync.Mutex // over all fields that the watcher's calls use
	data    string
	stamp   time.Time
	missing error

	applied []string
	reports []string
	*Watcher
	stop func()
}

// start runs a watcher over an in-memory file, inside a bubble. Content that
// starts with "bad" is refused.
func start(t *testing.T, content string) *fake {
	f := &fake{data: content}
	f.Watcher = NewWatcher(File{Data: []byte(content)}, f.read, f.apply)
	f.Report = f.report
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil when its context ends", err)
		}
	}
	return f
}

func (f *fake) read() (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return File{Data: []byte(f.data), Stamp: f.stamp}, f.missing
}

func (f *fake) report(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, fmt.Sprint(err))
}

func (f *fake) apply(data []byte) error {
	if len(data) >= 3 && string(data[:3]) == "bad" {
		return errors.New("bad file")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = append(f.applied, string(data))
	return nil
}

// write saves content as a file system would: with a new stamp.
func (f *fake) write(content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.stamp, f.missing = content, time.Now(), nil
}

// lose makes the file unreadable; nil brings it back.
func (f *fake) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = err
}

// got is what was applied so far.
func (f *fake) got() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.applied)
}

func (f *fake) check(t *testing.T, applied, reports []string) {
	t.Helper()
	if diff := cmp.Diff(applied, f.got()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(reports, f.reports); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestWatchNeedsTwoEqualPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		time.Sleep(100 * time.Millisecond)
		f.write("two")
		time.Sleep(900*time.Millisecond - 1) // one poll at 500 ms
		f.check(t, nil, nil)
		time.Sleep(time.Nanosecond)
		f.check(t, []string{"two"}, []string{"<nil>"})
		time.Sleep(time.Minute)
		f.check(t, []string{"two"}, []string{"<nil>"})
		f.stop()
	})
}

func TestWatchIgnoresAFileThatWasOnlyTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		time.Sleep(time.Second)
		f.write("one")
		time.Sleep(time.Minute)
		f.check(t, nil, nil)
		f.stop()
	})
}

func TestCase_CF_01_BrokenFileKeepsTheRunningPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		f.write("bad")
		time.Sleep(time.Minute)
		f.check(t, nil, []string{"bad file"}) // reported once, not twice a second
		f.write("three")
		time.Sleep(2 * time.Second)
		f.check(t, []string{"three"}, []string{"bad file", "<nil>"})
		f.stop()
	})
}

// The old content again after a bad one is a success that must be reported.
func TestWatchGoesBackAfterABadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		f.write("bad")
		time.Sleep(time.Minute)
		f.write("one")
		time.Sleep(time.Minute)
		f.check(t, []string{"one"}, []string{"bad file", "<nil>"})
		f.stop()
	})
}

// 200 saves in place: truncated, then in three parts, with pauses up to 150 ms,
// while the polls go on. The parts of one save look like those of the next.
func TestCase_CF_02_HalfWrittenFilesAreNeverApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "head middle tail 0")
		complete := map[string]bool{}
		for save := range 200 {
			pause := time.Duration(save*37%151) * time.Millisecond
			last := fmt.Sprintf("head middle tail %d", save)
			complete[last] = true
			for _, part := range []string{"", "head ", "head middle ", last} {
				f.write(part)
				time.Sleep(pause)
			}
		}
		time.Sleep(2 * time.Second)
		for _, applied := range f.got() {
			if !complete[applied] {
				t.Errorf("applied %q, want only complete files", applied)
			}
		}
		if got := f.got()[len(f.got())-1]; got != "head middle tail 199" {
			t.Errorf("last applied %q, want the last save", got)
		}
		f.stop()
	})
}

func TestWatchNeverAppliesAnEmptyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		f.write(" \n")
		time.Sleep(time.Minute)
		f.check(t, nil, []string{ErrEmpty.Error()})
		f.write("two")
		time.Sleep(time.Minute)
		f.check(t, []string{"two"}, []string{ErrEmpty.Error(), "<nil>"})
		f.stop()
	})
}

func TestCase_CF_04_LastOfTwoWritesWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "start")
		for round := range 100 {
			f.write(fmt.Sprint("2 in round ", round))
			time.Sleep(5 * time.Millisecond)
			last := fmt.Sprint("3 in round ", round)
			f.write(last)
			time.Sleep(2 * time.Second)
			if got := f.got(); len(got) != round+1 || got[round] != last {
				t.Fatalf("round %d: applied %v, want only %q new", round, got, last)
			}
			time.Sleep(time.Duration(round) * 7 * time.Millisecond)
		}
		f.stop()
	})
}

// One poll may fall into a swap; a file that stays away is reported once, and
// once more when it is back.
func TestWatchMissingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		gone := errors.New("gone")
		time.Sleep(750 * time.Millisecond)
		f.lose(gone)
		time.Sleep(500 * time.Millisecond)
		f.lose(nil)
		time.Sleep(time.Minute)
		f.check(t, nil, nil)
		f.lose(gone)
		time.Sleep(time.Minute)
		f.check(t, nil, []string{"gone"})
		f.lose(nil)
		time.Sleep(time.Minute)
		f.check(t, []string{"one"}, []string{"gone", "<nil>"})
		f.stop()
	})
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, "one")
		if err := f.Reload(t.Context()); err != nil {
			t.Errorf("Reload = %v, want nil", err)
		}
		f.write("two")
		if err := f.Reload(t.Context()); err != nil {
			t.Errorf("Reload = %v, want nil", err)
		}
		f.write("bad")
		if err := f.Reload(t.Context()); err == nil || err.Error() != "bad file" {
			t.Errorf("Reload of a bad file = %v, want what is wrong with it", err)
		}
		gone := errors.New("gone")
		f.lose(gone)
		if err := f.Reload(t.Context()); !errors.Is(err, gone) {
			t.Errorf("Reload without a file = %v, want %v", err, gone)
		}
		f.lose(nil)
		time.Sleep(time.Minute)
		f.check(t, []string{"one", "two"}, []string{"<nil>", "<nil>", "bad file", "gone"})
		f.stop()
		if err := f.Reload(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("Reload after Run = %v, want ErrStopped", err)
		}
	})
}

func TestReloadGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(File{Data: nil}, nil, nil) // Run was never called
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Reload(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reload = %v, want context.DeadlineExceeded", err)
		}
	})
}

// swap does what the kubelet does when a ConfigMap changes.
func swap(t *testing.T, dir string, n int) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	name := fmt.Sprintf("..2026_%d", n)
	must(os.Mkdir(filepath.Join(dir, name), 0o755))
	must(os.WriteFile(filepath.Join(dir, name, "policy.yaml"), fmt.Appendf(nil, "n: %d", n), 0o644))
	must(os.Symlink(name, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if n > 0 {
		must(os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", n-1))))
	}
}

func TestCase_CF_03_ConfigMapSwapsAreNoticed(t *testing.T) {
	dir := t.TempDir()
	swap(t, dir, 0)
	path := filepath.Join(dir, "policy.yaml")
	if err := os.Symlink(filepath.Join("..data", "policy.yaml"), path); err != nil {
		t.Skip(err) // no symlinks here
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.Watcher = NewWatcher(File{Data: []byte("n: 0")}, func() (File, error) { return ReadFile(path) }, f.apply)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = f.Run(ctx) }()
		for n := 1; n <= 5; n++ {
			swap(t, dir, n)
			time.Sleep(3 * time.Second)
			if got := f.got(); len(got) != n || got[n-1] != fmt.Sprintf("n: %d", n) {
				t.Fatalf("after swap %d: applied %v, want each once", n, got)
			}
		}
		cancel()
		<-done
	})
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if _, err := ReadFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile of nothing = %v, want os.ErrNotExist", err)
	}
	if err := os.WriteFile(path, []byte("a: 1"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := ReadFile(path)
	if err != nil || string(file.Data) != "a: 1" || file.Stamp.IsZero() {
		t.Errorf("ReadFile = %q at %v, %v, want a: 1 and when it was written", file.Data, file.Stamp, err)
	}
}
