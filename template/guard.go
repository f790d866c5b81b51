package template

import (
	"math/big"
	"regexp"
	"strings"
)

// Guard bounds a number of the call: an order that would cost more is not sent.
type Guard struct {
	Value Value `key:"value"`
	Most  Value `key:"most"` // a number, or a placeholder that becomes one
}

var decimal = regexp.MustCompile(`^-?[0-9]{1,30}(\.[0-9]{1,30})?$`)

// Check says whether the value is within its bound. The error is a *Fault of path;
// what is no plain decimal number is one.
func (g *Guard) Check(path string, f *Facts, tables map[string]map[string]string) error {
	b := builder{facts: f, tables: tables}
	value := b.number(path+".value", &g.Value.text)
	most := b.number(path+".most", &g.Most.text)
	if b.fault == nil && value.Cmp(most) > 0 {
		b.fail(path, "%s is above %s", shown(g.Value.source), shown(g.Most.source))
	}
	if b.fault != nil {
		return b.fault
	}
	return nil
}

// number is a text that becomes a number.
func (b *builder) number(path string, t *text) *big.Rat {
	s := strings.TrimSpace(b.fill(path, t))
	if b.fault != nil {
		return nil
	}
	if !decimal.MatchString(s) {
		b.fail(path, "%s is not a plain decimal number", shown(t.source))
		return nil
	}
	r, _ := new(big.Rat).SetString(s)
	return r
}

// Validate says what is wrong with a guard at path.
func (g *Guard) Validate(path string, tables map[string]map[string]string) []*Fault {
	var faults []*Fault
	for _, at := range []placed{{path + ".value", &g.Value.text}, {path + ".most", &g.Most.text}} {
		if at.text.empty() {
			faults = append(faults, fault(at.path, "is missing"))
		}
		for _, name := range at.text.tables() {
			if _, ok := tables[name]; !ok {
				faults = append(faults, fault(at.path, "there is no table %s", name))
			}
		}
	}
	if len(faults) == 0 && !strings.Contains(g.Most.source, "{") && !decimal.MatchString(g.Most.source) {
		faults = append(faults, fault(path+".most", "must be a plain decimal number, or a placeholder that becomes one"))
	}
	return faults
}
