package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// text is a key of the operator's, all of whose bytes are b.
func text(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keySize))
}

func parsed(t testing.TB, text string) *Keys {
	t.Helper()
	k, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParse(t *testing.T) {
	long := strings.Repeat("x", longestID)
	tests := []struct {
		name, text string
		want       []string // ids; nil: no keys
		fault      string   // part of the error
	}{
		{"none", "", nil, ""},
		{"single without an id", text(1), []string{"1"}, ""},
		{"single with an id", "2026.a_b-c:" + text(1), []string{"2026.a_b-c"}, ""},
		{"two", "new:" + text(2) + ",old:" + text(1), []string{"new", "old"}, ""},
		{"one a line, with blanks", "new:" + text(2) + "\r\n\n  old: " + text(1) + " \n", []string{"new", "old"}, ""},
		{"longest id", long + ":" + text(1), []string{long}, ""},
		{"id too long", long + "x:" + text(1), nil, "key 1: its id must be 1 to 32"},
		{"empty id", ":" + text(1), nil, "key 1: its id"},
		{"key in the place of the id", text(9) + ":new", nil, "key 1: its id"},
		{"second without an id", "new:" + text(2) + "," + text(1), nil, "key 2: want id:base64"},
		{"ids alike", "a:" + text(2) + ",a:" + text(1), nil, "key 2: its id is that of an earlier one"},
		{"too short", base64.StdEncoding.EncodeToString(make([]byte, 31)), nil, "key 1: want 32 bytes in base64"},
		{"too long", "a:" + base64.StdEncoding.EncodeToString(make([]byte, 33)), nil, "key 1: want 32 bytes"},
		{"no base64", "a:" + text(1)[:43] + "!", nil, "key 1: want 32 bytes"},
		{"a password", "correct horse battery staple", nil, "key 1: want 32 bytes"},
		{"commas alone", " , ,", nil, "there is no key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, err := Parse(tt.text)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Fatalf("Parse = %v, want %q", err, tt.fault)
				}
				for _, word := range strings.FieldsFunc(tt.text, func(r rune) bool { return strings.ContainsRune(":, \n", r) }) {
					if len(word) > 8 && strings.Contains(err.Error(), word) {
						t.Errorf("Parse = %v, which shows a part of the key", err)
					}
				}
				return
			}
			if err != nil || (k == nil) != (tt.want == nil) {
				t.Fatalf("Parse = %v, %v", k, err)
			}
			if k != nil && (!slices.Equal(k.IDs(), tt.want) || k.ID() != tt.want[0]) {
				t.Errorf("ids = %q, seals with %q, want %q", k.IDs(), k.ID(), tt.want)
			}
		})
	}
}

func TestNewKeyCanBeRead(t *testing.T) {
	first, err := New("a")
	if err != nil {
		t.Fatal(err)
	}
	second, _ := New("b")
	if k := parsed(t, first+","+second); !slices.Equal(k.IDs(), []string{"a", "b"}) || bytes.Equal(k.list[0].secret, k.list[1].secret) {
		t.Errorf("%q and %q are not two keys", first, second)
	}
	if _, err := New("no id"); err == nil {
		t.Error("New took an id with a blank")
	}
}

func TestSealAndOpen(t *testing.T) {
	k := parsed(t, text(1))
	for _, plain := range [][]byte{{}, []byte("x"), []byte("Authorization: Bearer secret-token"), bytes.Repeat([]byte{0}, 1<<20)} {
		a, b := k.Seal(plain, []byte("row 1")), k.Seal(plain, []byte("row 1"))
		if bytes.Equal(a, b) {
			t.Error("the same text was sealed to the same bytes twice")
		}
		if len(plain) > 1 && len(plain) < 100 && bytes.Contains(a, plain) {
			t.Errorf("%q can be read in what is sealed", plain)
		}
		if id, ok := KeyID(a); id != "1" || !ok {
			t.Errorf("KeyID = %q, %v, want 1", id, ok)
		}
		got, err := k.Open(a, []byte("row 1"))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("Open gave %d bytes, %v, want %d", len(got), err, len(plain))
		}
	}
}

func TestOpenAfterARestart(t *testing.T) {
	sealed := parsed(t, text(1)).Seal([]byte("text"), nil)
	if got, err := parsed(t, text(1)).Open(sealed, nil); err != nil || string(got) != "text" {
		t.Errorf("Open = %q, %v", got, err)
	}
}

func TestAChangedPieceDoesNotOpen(t *testing.T) {
	k := parsed(t, text(1))
	sealed := k.Seal([]byte("some text"), []byte("row 1"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if got, err := k.Open(bad, []byte("row 1")); err == nil {
			t.Fatalf("Open with byte %d changed = %q", i, got)
		}
	}
	for n := range sealed {
		if _, err := k.Open(sealed[:n], []byte("row 1")); err == nil {
			t.Fatalf("the first %d of %d bytes open", n, len(sealed))
		}
	}
	if _, err := k.Open(sealed, []byte("row 2")); !errors.Is(err, ErrDamaged) {
		t.Errorf("Open in another place = %v, want ErrDamaged", err)
	}
	if _, err := parsed(t, text(2)).Open(sealed, []byte("row 1")); !errors.Is(err, ErrDamaged) {
		t.Errorf("Open with another key of the same id = %v, want ErrDamaged", err)
	}
}

func TestRotation(t *testing.T) {
	old := parsed(t, "old:"+text(1)).Seal([]byte("text"), nil)
	both := parsed(t, "new:"+text(2)+",old:"+text(1))
	if got, err := both.Open(old, nil); err != nil || string(got) != "text" {
		t.Errorf("Open of what the old key sealed = %q, %v", got, err)
	}
	fresh := both.Seal([]byte("text"), nil)
	if id, _ := KeyID(fresh); id != "new" {
		t.Errorf("sealed by %q, want the first key, new", id)
	}
	unknown := new(UnknownKeyError)
	if _, err := parsed(t, "new:"+text(2)).Open(old, nil); !errors.As(err, &unknown) || unknown.ID != "old" {
		t.Errorf("Open without the old key = %v, want one that names old", err)
	}
}

func TestWhatIsNotSealedIsToldApart(t *testing.T) {
	k := parsed(t, text(1))
	for _, plain := range []string{"", "[]", `[["Host","a"]]`, "/path", "null", "\x00", "\x00se\x01", "\x00se\x01\x05ab", "\x00se\x01\x00" + strings.Repeat("x", 80)} {
		if _, err := k.Open([]byte(plain), nil); !errors.Is(err, ErrNotSealed) {
			t.Errorf("Open(%q) = %v, want ErrNotSealed", plain, err)
		}
		if id, ok := KeyID([]byte(plain)); ok {
			t.Errorf("KeyID(%q) = %q", plain, id)
		}
	}
}

func TestASaltServesABoundedNumberOfPieces(t *testing.T) {
	k := parsed(t, text(1))
	first := k.Seal(nil, nil)
	k.seal.left = 1
	second, third := k.Seal(nil, nil), k.Seal(nil, nil)
	size := len(k.seal.head)
	if !bytes.Equal(first[:size], second[:size]) || bytes.Equal(second[:size], third[:size]) {
		t.Error("the salt must change after mostSealed pieces, and not before")
	}
	for _, piece := range [][]byte{first, second, third} {
		if _, err := k.Open(piece, nil); err != nil {
			t.Errorf("Open = %v", err)
		}
	}
}

func TestDerive(t *testing.T) {
	k := parsed(t, "new:"+text(2)+",old:"+text(1))
	terms := k.Derive("terms", 16)
	if len(terms) != 2 || len(terms[0]) != 16 || bytes.Equal(terms[0], terms[1]) {
		t.Fatalf("Derive = %x", terms)
	}
	if other := k.Derive("other", 16); bytes.Equal(other[0], terms[0]) {
		t.Error("two purposes share a secret")
	}
	if again := parsed(t, "x:"+text(1)).Derive("terms", 16); !bytes.Equal(again[0], terms[1]) {
		t.Error("the secret depends on more than key and purpose")
	}
	if none := (*Keys)(nil).Derive("terms", 16); none != nil {
		t.Errorf("no keys give %x", none)
	}
}

func TestKeysAreUsedAtOnce(t *testing.T) {
	k := parsed(t, text(1))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 100 {
				place := fmt.Append(nil, i, n)
				if got, err := k.Open(k.Seal(place, place), place); err != nil || !bytes.Equal(got, place) {
					t.Errorf("Open = %q, %v", got, err)
				}
			}
		})
	}
	group.Wait()
}

func FuzzOpen(f *testing.F) {
	k, _ := Parse(text(1))
	f.Add(k.Seal([]byte("text"), nil))
	f.Add([]byte("\x00se\x01\x011"))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := k.Open(sealed, []byte("elsewhere")); err == nil {
			t.Errorf("Open(%x) = %q", sealed, plain)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	k, _ := Parse(text(1))
	place := []byte("requests.body")
	for _, size := range []int{100, 1024, 64 << 10} {
		plain := make([]byte, size)
		sealed := k.Seal(plain, place)
		b.Run(fmt.Sprintf("seal-%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k.Seal(plain, place)
			}
		})
		b.Run(fmt.Sprintf("open-%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Open(sealed, place); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestNote(t *testing.T) {
	name, value := parsed(t, "a:"+text(1)).Note()
	if name != "sealed:a" {
		t.Errorf("the note is named %q", name)
	}
	for _, x := range []struct {
		keys  *Keys
		value string
		held  bool
		err   error
	}{
		{parsed(t, "a:"+text(1)), value, true, nil},
		{parsed(t, "b:"+text(2)+",a:"+text(1)), value, true, nil},
		{parsed(t, "b:"+text(1)), value, false, nil},
		{nil, value, false, nil},
		{parsed(t, "a:"+text(2)), value, false, ErrOtherKey},
		{parsed(t, "a:"+text(1)), "?", false, ErrOtherKey},
	} {
		if held, err := x.keys.Holds(name, x.value); held != x.held || !errors.Is(err, x.err) {
			t.Errorf("Holds = %v, %v, want %v, %v", held, err, x.held, x.err)
		}
	}
}
