package config

import (
	"reflect"
)

// field finds the struct field for a key; -1: there is none.
func field(t reflect.Type, key string) (index int) {
	for i := range t.NumField() {
		if tagOf(t.Field(i)) == key && key != "" {
			return i
		}
	}
	return -1
}

// tagOf reads a field's key tag; empty: the field is not in the file.
func tagOf(f reflect.StructField) (name string) { return f.Tag.Get("key") }

// suggestion names the key that was probably meant, of a struct or a further one:
// in a long one a third of the letters may differ.
func suggestion(t reflect.Type, key string, further ...string) string {
	best, least := "", max(2, len(key)/3)+1
	names := further
	for i := range t.NumField() {
		name := tagOf(t.Field(i))
		names = append(names, name)
	}
	for _, name := range names {
		if d := distance(key, name); name != "" && d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance is the number of characters to add, drop or change to get from a to b.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
