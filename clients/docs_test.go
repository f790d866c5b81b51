//go:build unix

package clients

import (
	"os"
	"strings"
	"testing"
)

// Every client has a row in both tables of docs/clients.md: what to set, and what
// was seen.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	settings, seen, found := strings.Cut(string(text), "## What was seen")
	if !found {
		t.Fatal("docs/clients.md has no part about what was seen")
	}
	for _, c := range clients {
		for part, text := range map[string]string{"what to set": settings, "what was seen": seen} {
			if strings.Count(text, "\n| "+c.name+" |") != 1 {
				t.Errorf("docs/clients.md has no row, or two, for %s under %s", c.name, part)
			}
		}
	}
	for _, w := range []way{plain, upgrade, intercept, absolute} {
		if !strings.Contains(settings, "\n| "+w.name+" |") {
			t.Errorf("docs/clients.md does not explain the way %s", w.name)
		}
	}
}
