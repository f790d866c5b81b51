package presets

import "testing"

// Each built-in preset understands its own fixtures as it says.
func TestFixtures(t *testing.T) {
	set, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.List() {
		t.Run(p.Name, func(t *testing.T) {
			if len(p.Fixtures) == 0 {
				t.Error("it has none")
			}
			for _, err := range p.Test() {
				t.Error(err)
			}
		})
	}
}
