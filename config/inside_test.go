package config

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// flavour is a type of another package.
type flavour string

func (f *flavour) UnmarshalText(text []byte) error {
	*f = flavour(text)
	if *f != "sweet" && *f != "sour" {
		return errors.New("want sweet or sour")
	}
	return nil
}

type recipe struct {
	Name   string        `key:"name"`
	Bake   time.Duration `key:"bake"`
	Taste  flavour       `key:"taste"`
	Ovens  []Inside      `key:"ovens"`
	Rest   Inside        `key:"rest"`
	Copies int           `key:"copies"`
}

func TestDecodeReadsOtherFilesAsStrictly(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"well", "name: a\nbake: 5m\ntaste: sweet\n", ""},
		{"unknown key", "nam: a\n", `r.yaml:1: nam: unknown key; did you mean name?`},
		{"own type", "taste: bitter\n", `r.yaml:1: taste: want sweet or sour`},
		{"wrong type", "bake: soon\n", `r.yaml:1: bake: want a duration such as 500ms, 1s or 5m, or a number of seconds, not "soon"`},
		{"out of bounds", "name: a\ncopies: 7\n", `r.yaml:2: copies: 7 is more than 3`},
		{"both, in the order of the file", "taste: bitter\ncopies: 7\n", "r.yaml:1: taste: want sweet or sour\nr.yaml:2: copies: 7 is more than 3"},
		{"no YAML", "name: [", "r.yaml:2: not valid YAML"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var r recipe
			file := Decode("r.yaml", []byte(test.text), &r)
			if r.Copies > 3 {
				file.Fail("copies", "%d is more than 3", r.Copies)
			}
			got := ""
			if err := file.Err(); err != nil {
				got = err.Error()
			}
			if got != test.want && !(test.name == "no YAML" && strings.HasPrefix(got, test.want)) {
				t.Errorf("Decode(%q) = %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestConfigurationInsideAnotherFile(t *testing.T) {
	var r recipe
	file := Decode("r.yaml", []byte("name: a\novens:\n  - slots: {max_in_flight: 7}\n  - slots:\n      max_in_flight: 0\n"), &r)
	if err := file.Err(); err != nil || !file.Given("ovens[0]") || r.Rest.Given() {
		t.Fatalf("Decode = %v, ovens given %v, rest given %v", err, file.Given("ovens[0]"), r.Rest.Given())
	}
	c, err := r.Ovens[0].Parse("r.yaml", hermetic)
	if err != nil || c.Slots.MaxInFlight != 7 || c.Slots.MaxWaiting != Default().Slots.MaxWaiting {
		t.Errorf("Parse = %+v, %v, want 7 in flight over the defaults", c, err)
	}
	_, err = r.Ovens[1].Parse("r.yaml", hermetic)
	if want := "r.yaml:5: ovens[1].slots.max_in_flight: 0 must be from 1 to 1000000000"; err == nil || err.Error() != want {
		t.Errorf("Parse = %v, want %s", err, want)
	}
	if c, err := r.Rest.Parse("r.yaml", hermetic); err != nil || c.Slots != Default().Slots {
		t.Errorf("Parse of nothing = %v, %v, want the defaults", c, err)
	}
}
