package codec

import (
	"bytes"
	"errors"
	"testing"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

func TestValuesOpenInTheirPlaceOnly(t *testing.T) {
	text, err := seal.New("a")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	id := idempotency.ID{Tenant: "t", Key: "k"}
	by := Sealer{keys, id}
	sealed := by.Seal("answers.body", []byte("hush"))
	if by.KeyID() != "a" || bytes.Contains(sealed, []byte("hush")) {
		t.Fatalf("sealed by %q: %q", by.KeyID(), sealed)
	}
	o := Opener{Keys: keys, ID: id}
	if got := o.Open("answers.body", sealed); o.Err != nil || string(got) != "hush" {
		t.Errorf("Open = %q, %v", got, o.Err)
	}
	for name, x := range map[string]struct {
		o     Opener
		field string
	}{
		"another field":  {Opener{Keys: keys, ID: id}, "answers.fields"},
		"another record": {Opener{Keys: keys, ID: idempotency.ID{Tenant: "t", Key: "l"}}, "answers.body"},
		"no key":         {Opener{ID: id}, "answers.body"},
	} {
		if got := x.o.Open(x.field, sealed); !errors.Is(x.o.Err, ErrSealed) || got != nil {
			t.Errorf("%s: Open = %q, %v, want %v", name, got, x.o.Err, ErrSealed)
		}
		first := x.o.Err
		if got := x.o.Open("answers.body", sealed); got != nil || x.o.Err != first {
			t.Errorf("%s: after that Open = %q, %v", name, got, x.o.Err)
		}
	}
	if none := (Sealer{ID: id}); none.KeyID() != "" || string(none.Seal("f", []byte("x"))) != "x" {
		t.Error("without keys something is sealed")
	}
}
