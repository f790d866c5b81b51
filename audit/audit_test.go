package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func open(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func entry(i int) Entry {
	return Entry{At: began.Add(time.Duration(i) * time.Second), Name: fmt.Sprintf("n%d", i), Role: "admin", Action: "breaker.reset", Result: "ok"}
}

// names are those of a list.
func names(t *testing.T, l *Log, after string, limit int) (string, string) {
	t.Helper()
	list, next, err := l.List(after, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name)
	}
	return strings.Join(out, " "), next
}

func TestListsTheNewestFirst(t *testing.T) {
	l := open(t, "")
	for i := range 5 {
		l.Add(entry(i))
	}
	got, next := names(t, l, "", 2)
	if got != "n4 n3" {
		t.Errorf("the first piece is %q, want n4 n3", got)
	}
	l.Add(entry(5)) // places stay what they are
	if got, next = names(t, l, next, 2); got != "n2 n1" {
		t.Errorf("the next piece is %q, want n2 n1", got)
	}
	if got, next = names(t, l, next, 2); got != "n0" || next != "" {
		t.Errorf("the last piece is %q and then %q, want n0 and nothing", got, next)
	}
	for _, place := range []string{"x", "-1"} {
		if _, _, err := l.List(place, 1); !errors.Is(err, ErrPlace) {
			t.Errorf("List(%q) = %v, want ErrPlace", place, err)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := open(t, "")
	for i := range kept + 10 {
		l.Add(entry(i))
	}
	list, next, _ := l.List("", kept+10)
	if len(list) != kept || next != "" || list[kept-1].Name != "n10" {
		t.Errorf("%d entries down to %s, want %d down to n10", len(list), list[len(list)-1].Name, kept)
	}
	if got, _ := names(t, l, "3", 5); got != "" {
		t.Errorf("a place that was forgotten has %q", got)
	}
}

// Entries outlive the process, whatever a crash left of the last line.
func TestOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path)
	l.Add(entry(1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"at":"2026-03-04T05:0`)
	_ = f.Close()
	l = open(t, path)
	l.Add(entry(2))
	_ = l.Close()
	if got, _ := names(t, open(t, path), "", 9); got != "n2 n1" {
		t.Errorf("after two restarts: %q, want n2 n1", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want it for its owner alone", info.Mode(), err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	l := open(t, path)
	big := entry(1)
	big.Note = strings.Repeat("x", 50<<10)
	for range (oldFiles + 3) * fileBytes / len(big.Note) {
		l.Add(big)
	}
	files, _ := filepath.Glob(path + "*")
	if len(files) != oldFiles+1 {
		t.Errorf("files: %v, want %d", files, oldFiles+1)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() > fileBytes {
			t.Errorf("%s has %d bytes, want at most %d", name, info.Size(), fileBytes)
		}
	}
	l.Add(entry(7))
	_ = l.Close()
	if got, _ := names(t, open(t, path), "", 1); got != "n7" {
		t.Errorf("the newest after a restart is %q, want n7", got)
	}
}

// A start reads the end of full files only, and misses none of the latest.
func TestReadsTheEndOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path)
	big := entry(1)
	big.Note = strings.Repeat("x", 1000)
	for range tailBytes/1000 + kept {
		l.Add(big)
	}
	for i := range kept {
		l.Add(entry(i))
	}
	_ = l.Close()
	got, _, _ := open(t, path).List("", kept)
	if len(got) != kept || got[0].Name != fmt.Sprintf("n%d", kept-1) || got[kept-1].Name != "n0" {
		t.Errorf("%d entries from %s to %s, want %d from n%d to n0", len(got), got[0].Name, got[len(got)-1].Name, kept, kept-1)
	}
}

// What cannot be written is told, and shown all the same.
func TestFileThatCannotBeWritten(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "audit.jsonl"), slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	l.Add(entry(1))
	if got, _ := names(t, l, "", 9); got != "n1" || strings.Count(out.String(), "the audit log cannot be written") != 2 || !strings.Contains(out.String(), `\"name\":\"n1\"`) {
		t.Errorf("entries %q, log %s; want the entry in both, and why", got, out.String())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.Add(entry(2))
	_ = l.Close()
	if got, _ := names(t, open(t, filepath.Join(dir, "audit.jsonl")), "", 9); got != "n2" {
		t.Errorf("once it can be written again the file has %q, want n2", got)
	}
}

func TestIsLogged(t *testing.T) {
	var out bytes.Buffer
	l, err := Open("", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{At: began, Name: "li", Action: "call.cancel", Target: "c1", Note: "a\nb", Result: "ok"})
	if got := out.String(); !strings.Contains(got, "msg=audit by=li") || !strings.Contains(got, `note="a\nb"`) {
		t.Errorf("the log says %q", got)
	}
}

func TestFolderThatIsNone(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none", "audit.jsonl"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file in no folder is opened")
	}
}
