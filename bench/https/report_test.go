package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReportHoldsGoals compares round by round and judges the median.
func TestReportHoldsGoals(t *testing.T) {
	fast, slow := sample{1000, 13 * time.Millisecond, time.Second}, sample{1000, 14 * time.Millisecond, time.Second}
	bare := sample{1000, 10 * time.Millisecond, time.Second}
	many, few := sample{90, 0, time.Second}, sample{89, 0, time.Second}
	tests := []struct {
		name, workload string
		ours, theirs   []sample
		missed         bool
	}{
		{"cheap enough", "get100", []sample{fast, slow, fast}, []sample{bare, bare, bare}, false},
		{"too dear", "get100", []sample{slow, fast, slow}, []sample{bare, bare, bare}, true},
		{"wide enough", "download", []sample{many}, []sample{{100, 0, time.Second}}, false},
		{"too narrow", "download", []sample{few}, []sample{{100, 0, time.Second}}, true},
		{"without a goal", "tunnels", []sample{slow}, []sample{{1000, time.Millisecond, time.Second}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := &lab{options: options{only: regexp.MustCompile("^" + test.workload + "$")}, samples: map[cell][]sample{
				{test.workload, product}: test.ours, {test.workload, roleLoop}: test.theirs,
			}}
			if got := l.report(io.Discard); got != test.missed {
				t.Errorf("report(%v) = %v, want %v", test.name, got, test.missed)
			}
		})
	}
}

func TestContentLength(t *testing.T) {
	for head, want := range map[string]int{
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n":           100,
		"HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 7\r\nC: d": 7,
		"GET / HTTP/1.1\r\nHost: x\r\n":                        0,
	} {
		if got := contentLength(head); got != want {
			t.Errorf("contentLength(%q) = %d, want %d", strings.TrimSpace(head), got, want)
		}
	}
}
