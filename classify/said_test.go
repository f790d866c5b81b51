package classify

import (
	"os"
	"strings"
	"testing"
)

// rowOfKind is a row of the table of docs/presets.md.
type rowOfKind struct{ is, class, executed string }

// tableOfKinds reads the table that says what a rule may say and what follows.
func tableOfKinds(t *testing.T) (rows []rowOfKind) {
	t.Helper()
	text, err := os.ReadFile("../docs/presets.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| `is` |")
	if !found {
		t.Fatal("docs/presets.md has no table of verdicts")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) != 7 {
			t.Fatalf("the row %q has %d cells", line, len(cells))
		}
		rows = append(rows, rowOfKind{strings.Trim(cells[1], " `"), strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])})
	}
	return rows
}

// What a rule may say and what follows from it are those of docs/presets.md, whatever
// the status, the method and the policy are.
func TestJudgeSaidAsDocumented(t *testing.T) {
	rows := tableOfKinds(t)
	if len(rows) != int(NewCode-Done) {
		t.Errorf("the table has %d rows, want one for each of %d kinds", len(rows), NewCode-Done)
	}
	retry := defaults(t, "")
	retry.OnUnknown = "retry"
	for _, rules := range []*Rules{defaults(t, ""), defaults(t, BasisMethod), defaults(t, BasisKey), retry} {
		asA500 := Judge(rules, &Outcome{Phase: PhaseDone, Status: 500})
		for _, row := range rows {
			kind, ok := ParseKind(row.is)
			if !ok {
				t.Fatalf("%q is in the table and no rule may say it", row.is)
			}
			for _, status := range []int{200, 404, 500, 503} {
				v := Judge(rules, &Outcome{Phase: PhaseDone, Status: status, Said: Said{Kind: kind, Write: true}})
				class, basis := row.class, Basis("")
				if class == "transient" {
					basis = BasisRefused
				}
				if class == "as a 500" {
					class, basis = asA500.Class.String(), asA500.Basis
				}
				reason := row.is
				if kind == Done {
					reason = StatusReason(status)
				}
				if v.Class.String() != class || v.Basis != basis || v.Executed.String() != row.executed || v.Reason != reason || v.Kind != kind {
					t.Errorf("%s at %d, safe %q: %s; want %s %s %q %s", row.is, status, rules.Safe, show(v), class, reason, basis, row.executed)
				}
			}
		}
	}
}

// The three that no rule says: a code that nobody knows is a doubt of a write alone.
func TestJudgeSaidUnruled(t *testing.T) {
	for _, tt := range []struct {
		kind         Kind
		write        bool
		status       int
		safe, unsafe string
	}{
		{NewCode, true, 200, "transient new_code method maybe alive", "unknown new_code - maybe alive"},
		{NewCode, false, 200, "permanent new_code - maybe alive", "permanent new_code - maybe alive"},
		{Unreadable, true, 200, "transient unreadable method maybe alive", "unknown unreadable - maybe alive"},
		{Unreadable, false, 200, "transient unreadable method maybe alive", "unknown unreadable - maybe alive"},
		{Unsaid, true, 503, "transient status_503 refused no fault", "transient status_503 refused no fault"},
		{Unsaid, true, 200, "success status_200 - yes alive", "success status_200 - yes alive"},
	} {
		o := Outcome{Phase: PhaseDone, Status: tt.status, Said: Said{Kind: tt.kind, Write: tt.write}}
		if got := show(Judge(defaults(t, BasisMethod), &o)); got != tt.safe {
			t.Errorf("%s, write %v, safe: %s, want %s", tt.kind, tt.write, got, tt.safe)
		}
		if got := show(Judge(defaults(t, ""), &o)); got != tt.unsafe {
			t.Errorf("%s, write %v: %s, want %s", tt.kind, tt.write, got, tt.unsafe)
		}
	}
}

// A platform that decides works, whatever its status says. A gateway that takes nothing
// may be ill.
func TestJudgeSaidBlames(t *testing.T) {
	for kind := Done; kind <= Unreadable; kind++ {
		for _, status := range []int{200, 429, 500, 501, 503} {
			v := Judge(defaults(t, ""), &Outcome{Phase: PhaseDone, Status: status, Said: Said{Kind: kind}})
			ill := (kind == NotNow || kind == Doubt || kind == Unreadable) && (status == 500 || status == 503)
			if v.HostFault != ill || v.Alive == ill || v.EgressFault {
				t.Errorf("%s at %d: %s", kind, status, show(v))
			}
		}
	}
	v := Judge(defaults(t, ""), &Outcome{Phase: PhaseBody, Fault: FaultEOF, Status: 200, Said: Said{Kind: Done}})
	if got := show(v); got != "unknown truncated - maybe fault" {
		t.Errorf("a fault of the transport: %s; what was said before it counts", got)
	}
}

func TestParseKind(t *testing.T) {
	for kind := Done; kind < NewCode; kind++ {
		if got, ok := ParseKind(kind.String()); got != kind || !ok {
			t.Errorf("ParseKind(%s) = %s, %v", kind, got, ok)
		}
	}
	for _, text := range []string{"", "new_code", "unreadable", "Throttled", "throttled ", "status"} {
		if got, ok := ParseKind(text); got != Unsaid || ok {
			t.Errorf("ParseKind(%q) = %s, %v; want none", text, got, ok)
		}
	}
}
