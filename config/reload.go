package config

import (
	"errors"
	"reflect"
)

// ErrRestart is wrapped by what CheckReload refuses.
var ErrRestart = errors.New("cannot change while running; restart to apply it")

// CheckReload says whether next may replace c without a restart. The error names
// every key that may not change.
func (c *Config) CheckReload(next *Config) error {
	var errs []error
	was, is := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for _, key := range []string{"instance", "listen", "listeners", "store", "tracing", "log"} {
		i := field(was.Type(), key)
		for _, path := range changed(key, was.Field(i), is.Field(i)) {
			if path != "listen.h2c" && path != "log.level" { // what is spoken, not where; what is said
				errs = append(errs, restartProblem(next, path))
			}
		}
	}
	return errors.Join(errs...)
}

// restartError is a Problem that is ErrRestart.
type restartError struct{ Problem }

func (restartError) Unwrap() error { return ErrRestart }

func restartProblem(next *Config, path string) error {
	return restartError{Problem{File: next.source.file, Line: next.source.line(path), Path: path, Rule: ErrRestart.Error()}}
}

// changed lists the keys below path that differ.
func changed(path string, a, b reflect.Value) []string {
	if a.Kind() != reflect.Struct {
		if reflect.DeepEqual(a.Interface(), b.Interface()) {
			return nil
		}
		return []string{path}
	}
	var paths []string
	for i := range a.NumField() {
		if name := tagOf(a.Type().Field(i)); name != "" {
			paths = append(paths, changed(path+"."+name, a.Field(i), b.Field(i))...)
		}
	}
	return paths
}
