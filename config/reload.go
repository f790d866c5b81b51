package config

import (
	"errors"
	"fmt"
	"reflect"
	"time"
)

// ErrRestart is wrapped by what CheckReload refuses.
var ErrRestart = errors.New("cannot change while running; restart to apply it")

// CheckReload says whether next may replace c without a restart. The error names
// every key that may not change.
func (c *Config) CheckReload(next *Config) error {
	var errs []error
	was, is := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for _, key := range []string{"instance", "listen", "listeners", "store"} {
		i, _ := field(was.Type(), key)
		for _, path := range changed(key, was.Field(i), is.Field(i)) {
			errs = append(errs, restartProblem(next, path))
		}
	}
	if c.Log.Format != next.Log.Format {
		errs = append(errs, restartProblem(next, "log.format"))
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
		if name, _ := tagOf(a.Type().Field(i)); name != "" {
			paths = append(paths, changed(path+"."+name, a.Field(i), b.Field(i))...)
		}
	}
	return paths
}

// Warnings are things that are allowed and yet probably not meant.
func (c *Config) Warnings() []string {
	var out []string
	if c.Timezone == "Local" && c.usesHours() && isUTC(c.zone) {
		out = append(out, "timezone: Local is UTC here, so hour_range is read in UTC; set timezone, such as Asia/Shanghai, when that is not meant")
	}
	for i := range c.RetryPolicies {
		if rest := c.RetryPolicies[i+1:]; c.RetryPolicies[i].Match.empty() && len(rest) > 0 {
			out = append(out, fmt.Sprintf("retry_policies: %s matches every call, so the %d after it never apply", c.RetryPolicies[i].Name, len(rest)))
			break
		}
	}
	return out
}

// usesHours says whether any policy or scope depends on the time of day.
func (c *Config) usesHours() bool {
	for i := range c.RetryPolicies {
		if len(c.RetryPolicies[i].Match.HourRange) > 0 {
			return true
		}
	}
	for i := range c.Retries.Scopes {
		if len(c.Retries.Scopes[i].Match.HourRange) > 0 {
			return true
		}
	}
	return false
}

// isUTC says whether a zone is UTC by another name, as in a container without one.
func isUTC(zone *time.Location) bool {
	name, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, zone).Zone()
	return offset == 0 && name == "UTC"
}
