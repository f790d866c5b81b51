package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection to a browser that takes everything.
type wire struct{ *httptest.ResponseRecorder }

func (wire) SetWriteDeadline(time.Time) error { return nil }

// Somebody looks: the API is asked every two seconds. Nobody does: it is left alone.
func TestLiveCostsNothingUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := busyDay()
		var asked atomic.Int64
		h := New(Deps{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			f.ServeHTTP(w, r)
		}), Instance: "retryproxy"})
		time.Sleep(time.Hour)
		if n := asked.Load(); n != 0 {
			t.Errorf("before anybody looked the API was asked %d times", n)
		}
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(wire{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/live", nil).WithContext(ctx))
		}()
		time.Sleep(time.Minute - time.Millisecond)
		seen := asked.Load()
		if want := 2 * int64(time.Minute/tick); seen != want {
			t.Errorf("in a minute of looking the API was asked %d times, want %d", seen, want)
		}
		leave()
		<-done
		time.Sleep(time.Hour)
		if n := asked.Load(); n != seen {
			t.Errorf("after everybody left the API was asked %d times", n-seen)
		}
	})
}
