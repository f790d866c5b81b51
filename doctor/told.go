package doctor

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readMetrics takes what is needed from the Prometheus text.
func (r *Running) readMetrics(text string) {
	for line := range strings.Lines(text) {
		name, value, ok := cutSample(line)
		switch {
		case !ok:
		case strings.HasPrefix(name, "retryproxy_build_info{"):
			r.Version = labelOf(name, "version")
		case name == "retryproxy_config_last_reload_successful":
			r.Reload = value == 0
		case name == `retryproxy_ignored_values_total{field="user_name"}`:
			r.Misspelt = int64(value)
		case name == "retryproxy_records" || strings.HasPrefix(name, "retryproxy_records{"):
			r.Records += int64(value)
		}
	}
}

// cutSample reads one line: a name with labels, and a value.
func cutSample(line string) (name string, value float64, ok bool) {
	line = strings.TrimSpace(line)
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || line[0] == '#' {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[i+1:], 64)
	return line[:i], value, err == nil
}

// labelOf is the value of a label.
func labelOf(name, label string) string {
	_, rest, ok := strings.Cut(name, "{"+label+`="`)
	if !ok {
		_, rest, _ = strings.Cut(name, ","+label+`="`)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// drifted lists the top-level keys in which two configurations differ.
func drifted(file, running []byte) []string {
	var a, b map[string]any
	if yaml.Unmarshal(file, &a) != nil || yaml.Unmarshal(running, &b) != nil {
		return nil
	}
	var out []string
	for key := range a {
		if !reflect.DeepEqual(a[key], b[key]) {
			out = append(out, key)
		}
	}
	for key := range b {
		if _, known := a[key]; !known {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

func statusText(status int) string { return fmt.Sprintf("%d %s", status, http.StatusText(status)) }
