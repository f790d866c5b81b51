package service

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// told notes reports with their time since the start.
type notes struct {
	start time.Time
	list  []string
}

func (n *notes) report(s Status) {
	n.list = append(n.list, fmt.Sprintf("%v %s #%d %v", time.Since(n.start), [...]string{"starting", "running", "stopping"}[s.State], s.CheckPoint, s.Hint))
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(n.list, want) {
		t.Errorf("reports =\n%q, want\n%q", n.list, want)
	}
}

// supervised runs a program and gives what it is asked by, and its exit code.
func supervised(n *notes, p Program) (asked chan Request, code chan int) {
	asked, code = make(chan Request), make(chan int, 1)
	n.start = time.Now()
	go func() { code <- supervise(p, io.Discard, asked, n.report) }()
	return asked, code
}

func TestAServiceFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		asked, code := supervised(&n, func(life context.Context, stdout, _ io.Writer) int {
			time.Sleep(5 * time.Second) // opens a large store
			fmt.Fprintln(stdout, "listens")
			fmt.Fprintln(stdout, "more")
			<-life.Done()
			time.Sleep(3 * time.Second) // drains
			return 0
		})
		time.Sleep(time.Minute)
		asked <- Report
		asked <- Stop
		asked <- Stop // an impatient person
		if got := <-code; got != 0 {
			t.Errorf("exit code = %d, want 0", got)
		}
		n.want(t,
			"0s starting #0 15s", "2s starting #1 15s", "4s starting #2 15s", "5s running #0 0s",
			"1m0s running #0 0s", "1m0s stopping #0 15s", "1m0s stopping #0 15s", "1m2s stopping #1 15s")
	})
}

func TestAServiceThatCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		_, code := supervised(&n, func(context.Context, io.Writer, io.Writer) int { return 2 })
		if got := <-code; got != 2 {
			t.Errorf("exit code = %d, want that of the program", got)
		}
		n.want(t, "0s starting #0 15s")
	})
}

// TestAServiceStoppedBeforeItServes never says that it runs.
func TestAServiceStoppedBeforeItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		asked, code := supervised(&n, func(life context.Context, stdout, _ io.Writer) int {
			<-life.Done()
			fmt.Fprintln(stdout, "listens")
			time.Sleep(time.Second)
			return 1
		})
		synctest.Wait()
		asked <- Stop
		if got := <-code; got != 1 {
			t.Errorf("exit code = %d, want 1", got)
		}
		n.want(t, "0s starting #0 15s", "0s stopping #0 15s")
	})
}
