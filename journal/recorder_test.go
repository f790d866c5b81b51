package journal

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/attempt"
)

// kept is a Journal that keeps the ids of calls.
type kept struct {
	mu     sync.Mutex
	ids    []string
	notes  int           // calls of Note that worked
	ill    error         // what Note fails with
	stands chan struct{} // Note waits for it; nil: it does not
}

func (k *kept) Note(_ context.Context, calls []*attempt.Summary) error {
	if k.stands != nil {
		<-k.stands
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ill != nil {
		return k.ill
	}
	k.notes++
	for _, c := range calls {
		k.ids = append(k.ids, c.ID)
	}
	return nil
}

func (k *kept) Find(context.Context, Query) ([]Entry, bool, error) {
	return nil, false, errors.New("not asked here")
}

func (k *kept) state() (ids []string, notes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ids, k.notes
}

func (k *kept) becomes(ill error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ill = ill
}

// running runs a Recorder that waits a second for more.
func running(t *testing.T, k *kept, lost func(int64)) *Recorder {
	r := NewRecorder(k, lost)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx, func() <-chan time.Time { return time.After(time.Second) }) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return r
}

func add(r *Recorder, from, to int) {
	for n := from; n < to; n++ {
		r.Add(&attempt.Summary{ID: strconv.Itoa(n)})
	}
}

func TestRecorderWaitsForATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		r := running(t, k, nil)
		add(r, 0, 10)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if ids, _ := k.state(); len(ids) != 0 {
			t.Errorf("%d calls were noted before the tick", len(ids))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if ids, notes := k.state(); len(ids) != 10 || notes != 1 {
			t.Errorf("%d calls in %d notes, want 10 in one", len(ids), notes)
		}
	})
}

func TestRecorderDoesNotWaitWhenManyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		r := running(t, k, nil)
		add(r, 0, enough-1)
		synctest.Wait()
		if _, notes := k.state(); notes != 0 {
			t.Errorf("%d calls do not wait for a tick", enough-1)
		}
		add(r, enough-1, 3*mostTogether+enough)
		synctest.Wait()
		ids, notes := k.state()
		if len(ids) <= 3*mostTogether || notes > 13 {
			t.Errorf("%d calls in %d notes, want all of %d but the last few, many together", len(ids), notes, 3*mostTogether+enough)
		}
		for i, id := range ids {
			if id != strconv.Itoa(i) {
				t.Fatalf("call %d is %s", i, id)
			}
		}
	})
}

// What came while others were handed on waits for a tick like the first.
func TestRecorderForgetsNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{stands: make(chan struct{})}
		r := running(t, k, nil)
		add(r, 0, enough)
		synctest.Wait()
		add(r, enough, enough+7)
		close(k.stands)
		time.Sleep(time.Second)
		synctest.Wait()
		if ids, notes := k.state(); len(ids) != enough+7 || notes != 2 {
			t.Errorf("%d calls in %d notes after a second, want all %d in 2", len(ids), notes, enough+7)
		}
	})
}

func TestRecorderTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{ill: ErrUnavailable}
		r := running(t, k, nil)
		add(r, 0, 2*mostTogether)
		time.Sleep(3 * time.Second)
		k.becomes(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if ids, _ := k.state(); len(ids) != 2*mostTogether || r.Dropped() != 0 {
			t.Errorf("%d calls were noted and %d dropped, want all %d noted", len(ids), r.Dropped(), 2*mostTogether)
		}
	})
}

func TestRecorderDropsWhatHasNoRoomAndSaysSoOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{ill: ErrUnavailable}
		var mu sync.Mutex
		var told []int64
		r := running(t, k, func(n int64) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, n)
		})
		fill := func() {
			add(r, 0, mostQueued+mostTogether)
			synctest.Wait()
		}
		fill()
		first := r.Dropped()
		fill()
		if lost := r.Dropped() - first; lost != mostQueued+mostTogether {
			t.Errorf("%d calls were dropped with no room at all, want %d", lost, mostQueued+mostTogether)
		}
		before := r.Dropped()
		time.Sleep(1500 * time.Millisecond)
		fill()
		wants := func(when string, want ...int64) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%s told %d, want %d", when, told, want)
			}
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		wants("within the first minute", before)
		time.Sleep(time.Second)
		synctest.Wait()
		wants("after it", before, r.Dropped()-before)
	})
}

func TestAddNeverWaits(t *testing.T) {
	k := &kept{stands: make(chan struct{})}
	r := NewRecorder(k, nil)
	add(r, 0, 2*mostQueued) // would stand still
	if r.Dropped() != mostQueued {
		t.Errorf("%d dropped, want %d", r.Dropped(), mostQueued)
	}
	close(k.stands)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, _ := k.state(); len(ids) != mostQueued {
		t.Errorf("%d calls were kept, want %d", len(ids), mostQueued)
	}
}

func TestFlush(t *testing.T) {
	k := &kept{}
	r := NewRecorder(k, nil)
	add(r, 0, mostTogether+7)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, notes := k.state(); len(ids) != mostTogether+7 || notes != 2 {
		t.Errorf("%d calls in %d notes, want %d in 2", len(ids), notes, mostTogether+7)
	}
	k.becomes(ErrUnavailable)
	add(r, 0, 1)
	if err := r.Flush(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Flush = %v, want what Note said", err)
	}
}
