package idempotency

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"retryproxy/classify"
)

// page is docs/state-machine.md by its headings; what comes before the first is "".
func page(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/state-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	parts, at := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			at = name
		}
		parts[at] = append(parts[at], line)
	}
	return parts
}

// rows are the cells of the tables in a part, without their heads.
func rows(lines []string) (out [][]string) {
	body := false
	for _, line := range lines {
		switch {
		case !strings.HasPrefix(line, "|"):
			body = false
		case strings.HasPrefix(line, "|---"):
			body = true
		case body:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			out = append(out, cells)
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([a-z_]+)`")

// statesIn are the states that a text quotes.
func statesIn(text string) (out []State) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if i := slices.Index(stateNames[:], m[1]); i > 0 {
			out = append(out, State(i))
		}
	}
	return out
}

// wantMoves checks that moves are told once each, and exactly those.
func wantMoves(t *testing.T, where string, told map[[2]State]int, allowed func(from, to State) bool) {
	t.Helper()
	for _, from := range States() {
		for _, to := range States() {
			want := 0
			if allowed(from, to) {
				want = 1
			}
			if got := told[[2]State{from, to}]; got != want {
				t.Errorf("%s tells of %s to %s %d times, want %d", where, from, to, got, want)
			}
		}
	}
}

// The page names every move that Advance allows, and no other.
func TestPageHasTheTransitionTable(t *testing.T) {
	told := map[[2]State]int{}
	for _, row := range rows(page(t)["Who moves it"]) {
		for _, from := range statesIn(row[0]) {
			for _, to := range statesIn(row[1]) {
				told[[2]State{from, to}]++
			}
		}
	}
	wantMoves(t, "the table", told, State.CanBecome)
}

// So does its diagram, but for those that stay; Begin's and Bury's are labelled.
func TestPageHasTheDiagram(t *testing.T) {
	moved, begun, born := map[[2]State]int{}, map[[2]State]int{}, map[string]int{}
	edge := regexp.MustCompile(`^(\S+) --> (\S+)(?: : (\w+))?$`)
	for _, line := range page(t)[""] {
		m := edge.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if m[1] == "[*]" {
			born[m[2]+" "+m[3]]++
			continue
		}
		move := [2]State{State(slices.Index(stateNames[:], m[1])), State(slices.Index(stateNames[:], m[2]))}
		if m[3] == "Begin" {
			begun[move]++
		} else {
			moved[move]++
		}
	}
	wantMoves(t, "the diagram", moved, func(from, to State) bool { return from != to && from.CanBecome(to) })
	wantMoves(t, "the diagram, by Begin,", begun, func(from, to State) bool {
		rec := Record{State: from, Expires: t0.Add(time.Hour)}
		return Admit(&rec, Claim{}, t0).Result == Fresh && to == StateRunning
	})
	if len(born) != 2 || born["running Begin"] != 1 || born["dead Bury"] != 1 {
		t.Errorf("the diagram begins with %v, want running by Begin and dead by Bury", born)
	}
}

// What a request gets is what the page says, for every state, executed or not, over
// or not.
func TestPageHasWhatBeginGives(t *testing.T) {
	type held struct {
		state    State
		executed classify.Executed
		over     bool
	}
	seen := map[held]int{}
	for _, row := range rows(page(t)["What a request with the key gets"]) {
		over, every := strings.Contains(row[0], "its time over"), []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes}
		if _, list, ok := strings.Cut(row[0], "executed"); ok {
			every = slices.DeleteFunc(every, func(e classify.Executed) bool { return !strings.Contains(list, "`"+e.String()+"`") })
		}
		if row[0] == "none" {
			checkBegin(t, row, nil)
		}
		for _, state := range statesIn(row[0]) {
			for _, executed := range every {
				seen[held{state, executed, over}]++
				rec := Record{
					ID: ID{NoTenant, "k"}, State: state, Executed: executed, Fingerprint: [32]byte{1}, Credentials: [32]byte{1},
					Attempts: 3, ClientCount: 2, Receipt: "r", Expires: t0.Add(time.Hour),
				}
				if over {
					rec.Expires = t0
				}
				checkBegin(t, row, &rec)
			}
		}
	}
	for _, state := range States() {
		for _, executed := range []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes} {
			for _, over := range []bool{false, true} {
				want := 1
				if over && !state.Ended() {
					want = 0 // it has no time of its own
				}
				if got := seen[held{state, executed, over}]; got != want {
					t.Errorf("the table tells %d times of %s, executed %s, over %v, want %d", got, state, executed, over, want)
				}
			}
		}
	}
}

// checkBegin makes the three requests of a row.
func checkBegin(t *testing.T, row []string, rec *Record) {
	t.Helper()
	for i, c := range []Claim{
		{Fingerprint: [32]byte{1}, Credentials: [32]byte{1}},
		{Fingerprint: [32]byte{2}, Credentials: [32]byte{1}},
		{Fingerprint: [32]byte{1}, Credentials: [32]byte{2}},
	} {
		c.ID = ID{NoTenant, "k"}
		got := Admit(rec, c, t0)
		told := "`" + got.Result.String() + "`"
		if got.Result == Fresh {
			told += map[bool]string{true: ", goes on", false: ", anew"}[got.Record.Attempts > 0]
			switch {
			case got.Record.Attempts > 0 && got.Record.Receipt == "":
				told += " with a new receipt"
			case got.Record.Attempts == 0 && got.Record.ClientCount > 0:
				told += " with its count"
			}
		}
		if told != row[i+1] {
			t.Errorf("%s, request %d: Admit gives %s (%+v), the table says %s", row[0], i+1, told, rec, row[i+1])
		}
	}
}

// Every state is explained, with whether it is over, and what a kill leaves of it.
func TestPageHasEveryState(t *testing.T) {
	var explained, left []State
	for _, row := range rows(page(t)[""]) {
		of := statesIn(row[0])
		explained = append(explained, of...)
		if over := row[3] == "yes"; over != of[0].Ended() {
			t.Errorf("the page says that %s is over: %v, want %v", of[0], over, of[0].Ended())
		}
		if held := strings.Contains(row[2], "owner"); held != owned.has(of[0]) {
			t.Errorf("the page says that a call holds %s: %v, want %v", of[0], held, owned.has(of[0]))
		}
	}
	for _, row := range rows(page(t)["What a kill leaves"]) {
		left = append(left, statesIn(row[0])...)
	}
	if !slices.Equal(explained, States()) || !slices.Equal(left, States()) {
		t.Errorf("the page explains %v, and says of %v what a kill leaves, want all states", explained, left)
	}
}
