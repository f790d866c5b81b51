package classify

import (
	"os"
	"strings"
	"testing"
)

// Operators look reasons up: the page has to name every one that Judge gives.
func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{"suspect": true}
	for phase := PhaseNone; phase <= PhaseDone; phase++ {
		for f := FaultDNS; f <= FaultBody; f++ {
			given[Judge(defaults(t, ""), &Outcome{Phase: phase, Fault: f}).Reason] = true
		}
	}
	for _, status := range []int{408, 425, 429, 500, 501, 502, 503, 504, 505, 506, 508, 510, 511} {
		given[StatusReason(status)] = true
	}
	for reason := range given {
		if !strings.Contains(string(page), "`"+reason+"`") {
			t.Errorf("docs/outcomes.md does not explain %s", reason)
		}
	}
}
