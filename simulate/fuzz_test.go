package simulate

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse: no text breaks the reader, and what it takes is within bounds.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../example/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("Glob = %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"duration": "1h", "bots": [{"bots": 3, "every": 0, "from": "59m"}], "platform": {"service": "lognormal 1 1"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		calls := 0.0
		for i := range s.Bots {
			calls += s.Bots[i].calls()
		}
		if s.Duration > longestRun || calls > mostCalls || len(s.Runs) > mostRuns || len(s.Runs) == 0 {
			t.Errorf("%q is taken, with %v, %.0f calls, %d runs", data, s.Duration, calls, len(s.Runs))
		}
	})
}
