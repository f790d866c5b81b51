package proxy

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"retryproxy/classify"
)

// docs/outcomes.md tells of every answer of our own, with the status and the advice
// that it really has.
func TestPageHasOurOwnAnswers(t *testing.T) {
	text, err := os.ReadFile("../docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|")
	told := map[string][]string{}
	calls, _, _ := strings.Cut(string(text), "## What an attempt came to")
	for line := range strings.Lines(calls) {
		if m := row.FindStringSubmatch(line); m != nil {
			told[m[1]] = m[2:]
		}
	}
	status := map[string]string{"auth_required": "407"}
	for reason, code := range own {
		status[reason] = strconv.Itoa(code)
	}
	for reason, code := range status {
		cells := told[reason]
		if cells == nil {
			t.Errorf("the page does not tell of %s", reason)
			continue
		}
		if !strings.Contains(cells[0], code) {
			t.Errorf("the page gives %s the status %q, want %s", reason, cells[0], code)
		}
		if want := cells[2]; want != "by executed" {
			executed := classify.ExecutedNo
			if strings.Contains(cells[1], "maybe") || strings.Contains(cells[1], "yes") {
				executed = classify.ExecutedMaybe
			}
			if got := "`" + advice(reason, executed) + "`"; got != want {
				t.Errorf("the page gives %s the advice %s, it is %s", reason, want, got)
			}
		}
	}
	for reason := range titles {
		if told[reason] == nil {
			t.Errorf("the page does not tell of %s", reason)
		}
	}
}
