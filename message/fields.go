package message

import (
	"slices"
	"strings"
)

// Field is one header or trailer line.
type Field struct{ Name, Value string }

// Fields are header lines in the order in which they came. Names compare
// without regard to case (RFC 9110 section 5.1).
type Fields []Field

// Get returns the value of the first line of that name, or "".
func (f Fields) Get(name string) string {
	for i := range f {
		if equalFold(f[i].Name, name) {
			return f[i].Value
		}
	}
	return ""
}

// Has says whether a line of that name exists.
func (f Fields) Has(name string) bool {
	for i := range f {
		if equalFold(f[i].Name, name) {
			return true
		}
	}
	return false
}

// Values returns the values of all lines of that name, in order.
func (f Fields) Values(name string) []string {
	var out []string
	for i := range f {
		if equalFold(f[i].Name, name) {
			out = append(out, f[i].Value)
		}
	}
	return out
}

// Add appends a line.
func (f *Fields) Add(name, value string) { *f = append(*f, Field{name, value}) }

// Set replaces all lines of that name by one; it stands where the first stood.
func (f *Fields) Set(name, value string) {
	for i := range *f {
		if equalFold((*f)[i].Name, name) {
			(*f)[i].Value = value
			rest := (*f)[i+1:]
			rest.Del(name)
			*f = (*f)[:i+1+len(rest)]
			return
		}
	}
	f.Add(name, value)
}

// Del removes all lines of that name, in place.
func (f *Fields) Del(name string) {
	*f = slices.DeleteFunc(*f, func(x Field) bool { return equalFold(x.Name, name) })
}

// Clone returns a copy with room for extra more lines.
func (f Fields) Clone(extra int) Fields {
	return append(make(Fields, 0, len(f)+extra), f...)
}

// Listed says whether the comma-separated lists under name hold token,
// as "close" in Connection.
func (f Fields) Listed(name, token string) bool {
	for i := range f {
		if !equalFold(f[i].Name, name) {
			continue
		}
		for part := range strings.SplitSeq(f[i].Value, ",") {
			if equalFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// equalFold is strings.EqualFold with the length checked first: nearly all
// comparisons end there.
func equalFold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }
