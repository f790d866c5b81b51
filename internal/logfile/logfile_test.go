package logfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents are the files of a folder by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // a folder
		}
		out[e.Name()] = string(text)
	}
	return out
}

func open(t *testing.T, c Config) *File {
	t.Helper()
	c.Name, c.Mode = "log.file", 0o640
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t *testing.T, l *File, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if n, err := l.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", line, n, err)
		}
	}
}

func TestAFullFileGivesWay(t *testing.T) {
	for _, c := range []struct {
		name  string
		keep  int
		lines []string
		want  map[string]string
	}{
		{"it fits", 2, []string{"aaaa\n", "bbbb\n"}, map[string]string{"x.log": "aaaa\nbbbb\n"}},
		{"one more begins a new one", 2, []string{"aaaa\n", "bbbb\n", "c\n"}, map[string]string{"x.log": "c\n", "x.log.1": "aaaa\nbbbb\n"}},
		{"a long line is whole", 2, []string{"a\n", "0123456789abcdef\n", "c\n"}, map[string]string{"x.log": "c\n", "x.log.1": "0123456789abcdef\n", "x.log.2": "a\n"}},
		{
			"the oldest goes", 2,
			[]string{"aaaaaaaaa\n", "bbbbbbbbb\n", "ccccccccc\n", "ddddddddd\n"},
			map[string]string{"x.log": "ddddddddd\n", "x.log.1": "ccccccccc\n", "x.log.2": "bbbbbbbbb\n"},
		},
		{"none is kept", 0, []string{"aaaaaaaaa\n", "bbbbbbbbb\n"}, map[string]string{"x.log": "bbbbbbbbb\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, open(t, Config{Path: filepath.Join(dir, "x.log"), Max: 10, Keep: c.keep}), c.lines...)
			if diff := cmp.Diff(c.want, contents(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARestartGoesOn: what is there counts, and is not overwritten.
func TestARestartGoesOn(t *testing.T) {
	dir := t.TempDir()
	c := Config{Path: filepath.Join(dir, "x.log"), Max: 10, Keep: 1}
	first := open(t, c)
	write(t, first, "aaaa\n")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, c), "bbbb\n", "cccc\n")
	if diff := cmp.Diff(map[string]string{"x.log": "cccc\n", "x.log.1": "aaaa\nbbbb\n"}, contents(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestALineThatWasCut: what a crash left of a line does not take the next one with it.
func TestALineThatWasCut(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.log")
	if err := os.WriteFile(name, []byte("aaaa\nbb"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, Config{Path: name, Max: 100, Keep: 1}), "cccc\n", "dddd\n")
	if diff := cmp.Diff(map[string]string{"x.log": "aaaa\nbb\ncccc\ndddd\n"}, contents(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestAFileThatCannotBeRenamed: a folder that is not empty stands where it should go.
func TestAFileThatCannotBeRenamed(t *testing.T) {
	dir := t.TempDir()
	stone := filepath.Join(dir, "x.log.1")
	if err := os.MkdirAll(filepath.Join(stone, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := open(t, Config{Path: filepath.Join(dir, "x.log"), Max: 16, Keep: 1})
	line := "1234567\n"
	write(t, l, line, line, line, line)
	if got := contents(t, dir)["x.log"]; got != strings.Repeat(line, 4) {
		t.Errorf("up to twice the size the file holds %q, want all lines", got)
	}
	write(t, l, line)
	if got := contents(t, dir)["x.log"]; got != line {
		t.Errorf("then the file holds %q, want the new line", got)
	}
	if err := os.RemoveAll(stone); err != nil {
		t.Fatal(err)
	}
	write(t, l, line, line)
	if diff := cmp.Diff(map[string]string{"x.log": line, "x.log.1": line + line}, contents(t, dir)); diff != "" {
		t.Errorf("once it can be renamed (-want +got):\n%s", diff)
	}
}

// TestAGapIsFilled: after a rotation that failed half way no further file is lost.
func TestAGapIsFilled(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"x.log": "now\n", "x.log.1": "1\n", "x.log.3": "3\n", "x.log.4": "4\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, open(t, Config{Path: filepath.Join(dir, "x.log"), Max: 5, Keep: 4}), "next\n")
	want := map[string]string{"x.log": "next\n", "x.log.1": "now\n", "x.log.2": "1\n", "x.log.3": "3\n", "x.log.4": "4\n"}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestLinesGoToTheSpareMeanwhile: no line is lost while the file cannot be written.
func TestLinesGoToTheSpareMeanwhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var spare bytes.Buffer
	l := open(t, Config{Path: filepath.Join(dir, "x.log"), Max: 10, Keep: 1, Spare: &spare})
	write(t, l, "aaaa\n")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, l, "bbbb\n", "cccc\n")
	said, rest, _ := strings.Cut(spare.String(), "\n")
	if !strings.HasPrefix(said, "retryproxy: log.file: open ") || rest != "bbbb\ncccc\n" {
		t.Errorf("the spare got %q, want why once, and both lines", spare.String())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, l, "dddd\n")
	if got := contents(t, dir)["x.log"]; got != "dddd\n" {
		t.Errorf("afterwards the file holds %q, want the new line", got)
	}
}

func TestADiskThatIsFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/dev/full is Linux's")
	}
	var spare bytes.Buffer
	l := open(t, Config{Path: "/dev/full", Max: 10, Keep: 1, Spare: &spare})
	write(t, l, "aaaa\n")
	if got := spare.String(); !strings.Contains(got, "no space left") || !strings.HasSuffix(got, "\naaaa\n") {
		t.Errorf("the spare got %q, want the reason and the line", got)
	}
}

func TestOpenSaysWhy(t *testing.T) {
	if _, err := Open(Config{Path: filepath.Join(t.TempDir(), "none", "x.log")}); !os.IsNotExist(err) {
		t.Errorf("Open in no folder = %v, want that it is not there", err)
	}
}

func TestManyWritersAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Path: filepath.Join(dir, "x.log"), Max: 100, Keep: 1000})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 50 {
				_, _ = fmt.Fprintf(l, "%d %02d\n", w, i)
			}
		})
	}
	all.Wait()
	lines := map[string]bool{}
	for name, text := range contents(t, dir) {
		if len(text) > 100 {
			t.Errorf("%s has %d bytes, want at most 100", name, len(text))
		}
		for _, line := range strings.SplitAfter(text, "\n") {
			lines[line] = true
		}
	}
	delete(lines, "")
	if len(lines) != 400 {
		t.Errorf("%d different lines, want 400", len(lines))
	}
}
