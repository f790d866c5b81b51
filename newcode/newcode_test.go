package newcode

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func answer(code, sub string, second int) *Answer {
	return &Answer{"pdd", "order.get", code, sub, "what is this", "h:443", "s1", "call-" + strconv.Itoa(second), began.Add(time.Duration(second) * time.Second)}
}

func TestCodes(t *testing.T) {
	b := New()
	b.Note(answer("1", "", 0))
	b.Note(answer("2", "a", 1))
	b.Note(answer("2", "b", 2))
	b.Note(answer("1", "", 4))
	b.Note(answer("1", "", 3)) // it was later
	if diff := cmp.Diff([]Code{
		{"pdd", "order.get", "1", "", "what is this", "h:443", "s1", "call-3", began, began.Add(4 * time.Second), 3},
		{"pdd", "order.get", "2", "b", "what is this", "h:443", "s1", "call-2", began.Add(2 * time.Second), began.Add(2 * time.Second), 1},
		{"pdd", "order.get", "2", "a", "what is this", "h:443", "s1", "call-1", began.Add(time.Second), began.Add(time.Second), 1},
	}, b.List()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if n := b.See("temu", "2"); n != 0 {
		t.Errorf("See of another platform = %d, want 0", n)
	}
	if n := b.See("pdd", "2"); n != 2 {
		t.Errorf("See = %d, want both sub codes", n)
	}
	b.Note(answer("2", "a", 5))
	if got := b.List(); len(got) != 1 || got[0].Code != "1" || b.Unseen() != 1 {
		t.Errorf("List after they were seen = %+v, want code 1 alone", got)
	}
	if n := b.See("pdd", "2"); n != 0 {
		t.Errorf("See again = %d, want 0", n)
	}
}

func TestBounds(t *testing.T) {
	b := New()
	for i := range 2 * most {
		b.Note(answer(strconv.Itoa(i), "", i))
	}
	if got := b.List(); len(got) != most || got[0].Code != strconv.Itoa(2*most-1) || got[most-1].Code != strconv.Itoa(most) {
		t.Errorf("%d codes, want the %d latest", len(got), most)
	}
	a := answer(strings.Repeat("码", longest), "", 0)
	a.At = began.Add(time.Hour)
	b.Note(a)
	if got := b.List()[0].Code; len(got) > longest || !utf8.ValidString(got) {
		t.Errorf("a long code is kept as %d bytes, valid %v", len(got), utf8.ValidString(got))
	}
}
