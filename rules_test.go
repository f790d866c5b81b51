package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"retryproxy/telemetry"
)

const (
	rulesFile = "deploy/prometheus/rules.yaml"
	boardFile = "deploy/grafana/retryproxy.json"
	runbook   = "docs/alert-runbook.md"
)

// rule is an alert, or a number under a name of its own.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// shippedRules are all rules, by their names.
func shippedRules(t *testing.T) map[string]rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(readShipped(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]rule)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Record+r.Alert]; twice {
				t.Errorf("two rules are named %s", r.Record+r.Alert)
			}
			all[r.Record+r.Alert] = r
		}
	}
	return all
}

// panel is one of the board, or a row that holds none.
type panel struct {
	ID         int
	Type       string
	Title      string
	GridPos    struct{ X, Y, W, H int }
	Datasource struct{ UID string }
	Targets    []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

// board is the Grafana dashboard.
type board struct {
	Panels      []panel
	Annotations struct{ List []struct{ Expr string } }
}

func shippedBoard(t *testing.T) (b board) {
	t.Helper()
	if err := json.Unmarshal([]byte(readShipped(t, boardFile)), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// exprs are the expressions of all panels, by where they stand.
func (b *board) exprs() map[string][]string {
	all := make(map[string][]string)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	for _, a := range b.Annotations.List {
		if a.Expr != "" {
			all["annotation"] = append(all["annotation"], a.Expr)
		}
	}
	return all
}

var descText = regexp.MustCompile(`fqName: "([^"]+)".* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}`)

// exposedMetrics are the names and labels that the proxy can expose, also where it has
// nothing to count yet.
func exposedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	m := telemetry.New(telemetry.Config{Version: "v1"})
	m.Watch(telemetry.Sources{})
	all := make(map[string][]string)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.Gatherer().(prometheus.Collector).Describe(descs)
	}()
	for d := range descs {
		found := descText.FindStringSubmatch(d.String())
		if found == nil {
			t.Errorf("%s has another form than expected", d)
			continue
		}
		labels := strings.Split(found[3], ",")
		for pair := range strings.SplitSeq(found[2], ",") {
			name, _, _ := strings.Cut(pair, "=")
			labels = append(labels, name)
		}
		all[found[1]] = labels
	}
	return all
}

var (
	selector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	text     = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	grouping = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	duration = regexp.MustCompile(`\[[^\]]*\]|\b[0-9.]+[smhd]?\b`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
	matcher  = regexp.MustCompile(`([a-zA-Z_]\w*)\s*[=!]`)
)

// namesIn are the series that an expression asks for, each with the labels that it is
// selected by.
func namesIn(expr string) map[string][]string {
	expr = text.ReplaceAllString(expr, "")
	all := make(map[string][]string)
	for _, found := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			all[found[1]] = append(all[found[1]], m[1])
		}
	}
	expr = selector.ReplaceAllString(expr, "$1")
	expr = duration.ReplaceAllString(grouping.ReplaceAllString(expr, ""), "")
	for _, w := range word.FindAllString(expr, -1) {
		if strings.HasSuffix(w, "(") || slices.Contains([]string{"and", "or", "unless", "offset", "bool"}, strings.TrimSpace(w)) {
			continue
		}
		all[strings.TrimSpace(w)] = append(all[strings.TrimSpace(w)], []string{}...)
	}
	return all
}

func TestNamesIn(t *testing.T) {
	got := namesIn(`sum by (job, le) (rate(a_total{x="y{z}", le=~"0(\\.0)?"}[5m] offset 10m)) / on (job) group_left (q) b:c:rate5m > 2 and up == 1`)
	want := map[string][]string{"a_total": {"x", "le"}, "b:c:rate5m": nil, "up": nil}
	if len(got) != len(want) {
		t.Errorf("namesIn = %v, want %v", got, want)
	}
	for name, labels := range want {
		if have, ok := got[name]; !ok || !slices.Equal(have, labels) {
			t.Errorf("namesIn has %s with %v, want %v", name, have, labels)
		}
	}
}

// TestRulesAndBoardAskForWhatThereIs: a metric that was renamed would leave an alert
// silent for ever and a panel empty.
func TestRulesAndBoardAskForWhatThereIs(t *testing.T) {
	exposed, rules, shown := exposedMetrics(t), shippedRules(t), shippedBoard(t)
	asked := shown.exprs()
	for name, r := range rules {
		asked[name] = append(asked[name], r.Expr)
	}
	ofPrometheus := []string{"up", "ALERTS"}
	always := []string{"job", "instance", "le", "quantile"}
	for where, exprs := range asked {
		for _, expr := range exprs {
			for name, labels := range namesIn(expr) {
				if _, recorded := rules[name]; recorded || slices.Contains(ofPrometheus, name) {
					continue
				}
				has, ok := exposed[name]
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
						has, ok = exposed[base]
					}
				}
				if !ok {
					t.Errorf("%s asks for %s, which is not exposed", where, name)
				}
				for _, l := range labels {
					if ok && !slices.Contains(has, l) && !slices.Contains(always, l) {
						t.Errorf("%s selects %s by %s, which it does not have; it has %v", where, name, l, has)
					}
				}
			}
		}
	}
}

// TestBoardIsWhole: what Grafana would show wrong without a word.
func TestBoardIsWhole(t *testing.T) {
	b := shippedBoard(t)
	var rows []string
	taken, titles, ids := make(map[[2]int]string), make(map[string]bool), make(map[int]bool)
	for _, p := range b.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q: another one has its id or title", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			name, _, _ := strings.Cut(p.Title, " ")
			rows = append(rows, strings.ToLower(name))
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%q asks nothing, or another source than the one that is chosen", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%q asks %q, want the source that is chosen", p.Title, target.Datasource.UID)
			}
		}
	}
	if want := []string{"traffic", "retries", "latency", "protection", "idempotency", "letters", "store", "process"}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

var (
	chinese      = regexp.MustCompile(`\p{Han}`)
	labelOf      = regexp.MustCompile(`\$labels\.(\w+)`)
	alertInTests = regexp.MustCompile(`alertname="(\w+)"`)
)

// alertsTested gives the labels that each alert is seen to fire with, and those which
// are seen not to.
func alertsTested(t *testing.T) (fires map[string][]string, silent map[string]bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			Exprs []struct {
				Expr    string
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(readShipped(t, strings.Replace(rulesFile, ".yaml", "_test.yaml", 1))), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent = make(map[string][]string), make(map[string]bool)
	for _, test := range file.Tests {
		for _, e := range test.Exprs {
			name := alertInTests.FindStringSubmatch(e.Expr)
			switch {
			case name == nil:
			case len(e.Samples) == 0:
				silent[name[1]] = true
			default:
				fires[name[1]] = namesIn(e.Samples[0].Labels)["ALERTS"]
			}
		}
	}
	return fires, silent
}

// TestAlertsAreWhole: each alert is tested both ways, tells in two languages what to do,
// names only labels that it has, and stands in the runbook.
func TestAlertsAreWhole(t *testing.T) {
	fires, silent := alertsTested(t)
	pages, alerts := readShipped(t, runbook), 0
	for name, r := range shippedRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		if fires[name] == nil || !silent[name] {
			t.Errorf("%s is not tested to fire and not to", name)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has severity %q", name, r.Labels["severity"])
		}
		for key, inChinese := range map[string]bool{"summary": false, "summary_zh": true, "description": false, "description_zh": true} {
			text := r.Annotations[key]
			if text == "" || chinese.MatchString(text) != inChinese {
				t.Errorf("%s has the %s %q", name, key, text)
			}
			for _, l := range labelOf.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(fires[name], l[1]) {
					t.Errorf("the %s of %s names the label %s, and it fires with %v", key, name, l[1], fires[name])
				}
			}
		}
		if want := runbook + "#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s sends to %q, want %q", name, r.Annotations["runbook_url"], want)
		}
		_, entry, ok := strings.Cut(pages, "\n### "+name+"\n")
		entry, _, _ = strings.Cut(entry, "\n### ")
		for _, part := range []string{"- **Means:** ", "- **Look:** ", "- **Do:** ", "- **中文：** "} {
			if !ok || !strings.Contains(entry, part) {
				t.Errorf("%s has no %q for %s", runbook, part, name)
			}
		}
	}
	if n := strings.Count(pages, "\n### "); n != alerts {
		t.Errorf("%s has %d entries for %d alerts", runbook, n, alerts)
	}
}

// ofPrometheus finds a program of Prometheus. Without it a test is skipped, in CI it fails.
func ofPrometheus(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not here: apt-get install --no-install-recommends prometheus", name)
	default:
		t.Skipf("%s is not here: apt-get install --no-install-recommends prometheus", name)
	}
	return path
}

// TestPromtool: what only Prometheus itself can say of its files.
func TestPromtool(t *testing.T) {
	t.Parallel()
	path := ofPrometheus(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yaml"}, // with the rules it names
		{"test", "rules", "rules_test.yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = "deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
