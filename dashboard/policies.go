package dashboard

import (
	"cmp"
	"encoding/json"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// policy is one of the rules in force.
type policy struct {
	Name    string          `json:"name"`
	Match   json.RawMessage `json:"match"`
	Retries int             `json:"max_retries"`
	Delays  []int64         `json:"delays_ms"` // planned, without jitter
	Longest int64           `json:"longest_ms"`
	Safe    string          `json:"safe"`
	Preset  string          `json:"preset"`
	Colour  int             `json:"-"`
}

// Conditions are the match in a few words.
func (p *policy) Conditions() string {
	var m map[string]any
	if json.Unmarshal(p.Match, &m) != nil || len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		return ""
	}
	return strings.NewReplacer(`"`, "", "{", "", "}", "", ",", ", ", ":", ": ").Replace(string(text))
}

// estimate is a figure with its interval; nil: not known.
type estimate struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// arm is a policy, or a variant of one.
type arm struct {
	Name      string    `json:"name"`
	Variant   string    `json:"variant"`
	Weight    int       `json:"weight"`
	Since     time.Time `json:"since"`
	Calls     int       `json:"calls"`
	Succeeded int       `json:"succeeded"`
	Saved     int       `json:"saved"`
	Left      int       `json:"left"`
	Healed    []int     `json:"healed"`

	Success       estimate `json:"success"`
	Amplification estimate `json:"amplification"`
	Added         estimate `json:"added_latency_ms"`
	Against       *struct {
		Success struct {
			Verdict string `json:"verdict"`
		} `json:"success"`
		Amplification struct {
			Verdict string `json:"verdict"`
		} `json:"amplification"`
		Added struct {
			Verdict string `json:"verdict"`
		} `json:"added_latency_ms"`
	} `json:"against_first"`

	Bars     template.HTML `json:"-"` // healed on attempt n
	Interval template.HTML `json:"-"` // of success
}

type policyReport struct {
	Policy string `json:"policy"`
	Arms   []arm  `json:"arms"`
}

// problems are those of the configuration.
type problems struct {
	File     string   `json:"file"`
	Warnings []string `json:"warnings"`
	Last     struct {
		At    time.Time `json:"at"`
		OK    bool      `json:"ok"`
		Error string    `json:"error"`
	} `json:"last_reload"`
}

type policiesView struct {
	Policies []policy
	Curves   template.HTML
	Reports  []policyReport
	Problems *problems
	Retries  struct {
		Default string `json:"default"`
		Scopes  []struct {
			Match json.RawMessage `json:"match"`
			Value string          `json:"value"`
			Until time.Time       `json:"until"`
		} `json:"scopes"`
	}
	Presets []string

	Form    url.Values // of the form that was sent
	Explain *explained
	Verdict *judged
	Fault   *problem
}

// explained is what would become of a call.
type explained struct {
	Mode      string `json:"mode"`
	Policy    string `json:"policy"`
	PolicyWhy string `json:"policy_why"`
	Operation string `json:"operation"`
	Keyed     bool   `json:"keyed"`
	KeyWhy    string `json:"key_why"`
	SafeWhy   string `json:"safe_why"`
	Retries   int    `json:"retries"`
	Why       string `json:"retries_why"`
	Switch    string `json:"switch"`
	Refused   *struct {
		Status int    `json:"status"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	} `json:"refused"`
	Notes  []string `json:"notes"`
	Labels []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		From  string `json:"from"`
	} `json:"labels"`
	Delays []struct {
		Retry int   `json:"retry"`
		Ms    int64 `json:"nominal_ms"`
		Min   int64 `json:"min_ms"`
		Max   int64 `json:"max_ms"`
	} `json:"delays"`
	Outcomes []struct {
		Outcome  string `json:"outcome"`
		Executed string `json:"executed"`
		Next     string `json:"next"`
		Why      string `json:"why"`
		Wait     int64  `json:"wait_ms"`
		Attempts int    `json:"attempts"`
		After    int64  `json:"after_ms"`
	} `json:"outcomes"`
}

// judged is what an answer of a platform means.
type judged struct {
	Preset    string `json:"preset"`
	Policy    string `json:"policy"`
	Operation string `json:"operation"`
	Code      string `json:"code"`
	SubCode   string `json:"sub_code"`
	Message   string `json:"message"`
	Is        string `json:"is"`
	Rule      string `json:"rule"`
	Class     string `json:"class"`
	Reason    string `json:"reason"`
	Executed  string `json:"executed"`
	Wait      int64  `json:"wait_ms"`
	Next      string `json:"next"`
}

func fillPolicies(v *visit) (any, error) {
	out := policiesView{Form: v.r.Form}
	if err := v.get("/api/v1/policies", &out.Policies); err != nil {
		return nil, err
	}
	out.Curves = v.curves(out.Policies)
	var report struct{ Policies []policyReport }
	if err := v.get("/api/v1/report", &report); err != nil {
		return nil, err
	}
	out.Reports = report.Policies
	for i := range out.Reports {
		for j := range out.Reports[i].Arms {
			a := &out.Reports[i].Arms[j]
			a.Bars, a.Interval = v.healed(a), v.interval(a)
		}
	}
	out.Problems = &problems{}
	if v.get("/api/v1/config/problems", out.Problems) != nil {
		out.Problems = nil
	}
	if err := v.get("/api/v1/retries", &out.Retries); err != nil {
		return nil, err
	}
	v.ask(&out)
	return out, nil
}

// ask answers the form that was sent: what would become of a call, or what an answer means.
func (v *visit) ask(out *policiesView) {
	q := out.Form
	headers := strings.FieldsFunc(q.Get("headers"), func(r rune) bool { return r == '\n' || r == '\r' })
	switch q.Get("ask") {
	case "explain":
		v.explain(out, q, headers)
	case "verdict":
		v.judge(out, q, headers)
	}
}

// judge asks what an answer means.
func (v *visit) judge(out *policiesView, q url.Values, headers []string) {
	status, err := strconv.Atoi(cmp.Or(strings.TrimSpace(q.Get("status")), "200"))
	if err != nil {
		out.Fault = &problem{Status: http.StatusBadRequest, Reason: "bad_request", Detail: v.words.say("verdict.status")}
		return
	}
	out.Verdict = &judged{}
	_, err = v.send(http.MethodPost, "/api/v1/verdict", map[string]any{
		"platform": q.Get("platform"), "operation": strings.TrimSpace(q.Get("operation")), "method": q.Get("method"), "status": status, "headers": headers, "body": q.Get("body"),
	}, out.Verdict)
	if err != nil {
		out.Verdict, out.Fault = nil, faultOf(err)
	}
}

// explain asks what would become of a call.
func (v *visit) explain(out *policiesView, q url.Values, headers []string) {
	out.Explain = &explained{}
	_, err := v.send(http.MethodPost, "/api/v1/explain", map[string]any{
		"method": q.Get("method"), "url": strings.TrimSpace(q.Get("url")), "headers": headers, "body": q.Get("body"),
	}, out.Explain)
	if err != nil {
		out.Explain, out.Fault = nil, faultOf(err)
	}
}

// curves draws the planned delays of each policy, by retry.
func (v *visit) curves(list []policy) template.HTML {
	most, longest := 0, int64(1)
	for i := range list {
		list[i].Colour = i%8 + 1
		most = max(most, len(list[i].Delays))
		for _, d := range list[i].Delays {
			longest = max(longest, d)
		}
	}
	if most == 0 {
		return ""
	}
	const w, h = 640.0, 180.0
	p := draw(w, h, v.words.say("policies.curves"))
	step := (w - plotLeft - 20) / float64(max(most-1, 1))
	room := h - plotBottom - plotTop
	p.line(plotLeft, h-plotBottom, w, h-plotBottom, "axis")
	p.write(plotLeft-4, plotTop+9, "end", "faint", v.words.lasts(time.Duration(longest)*time.Millisecond))
	for i := range most {
		p.write(plotLeft+10+float64(i)*step, h-3, "middle", "faint", strconv.Itoa(i+1))
	}
	for i := range list {
		one := &list[i]
		var xs, ys []float64
		for j, d := range one.Delays {
			xs = append(xs, plotLeft+10+float64(j)*step)
			ys = append(ys, h-plotBottom-room*math.Sqrt(float64(d)/float64(longest)))
		}
		p.curve(xs, ys, "s"+strconv.Itoa(one.Colour), one.Name)
		for j := range xs {
			p.rect(xs[j]-2.5, ys[j]-2.5, 5, 5, "f"+strconv.Itoa(one.Colour), one.Name+" "+strconv.Itoa(j+1)+": "+v.words.lasts(time.Duration(one.Delays[j])*time.Millisecond))
		}
	}
	return p.done()
}

// healed draws on which attempt calls succeeded.
func (v *visit) healed(a *arm) template.HTML {
	if sum(a.Healed) == 0 {
		return ""
	}
	n := len(a.Healed)
	for n > 1 && a.Healed[n-1] == 0 {
		n--
	}
	const row, left, w = 16.0, 24.0, 260.0
	p := draw(w, row*float64(n)+2, v.words.say("policies.healed"))
	for i, k := range a.Healed[:n] {
		y := float64(i) * row
		p.write(left-6, y+12, "end", "faint", strconv.Itoa(i+1))
		class := "f2"
		if i == 0 {
			class = "f3"
		}
		long := 150 * float64(k) / float64(a.Succeeded)
		p.rect(left, y+2, long, row-4, class, "")
		p.write(left+long+4, y+12, "start", "", number(k)+" · "+percent(k, a.Succeeded))
	}
	return p.done()
}

// interval draws the success of an arm with what chance alone may make of it.
func (v *visit) interval(a *arm) template.HTML {
	s := a.Success
	if s.Value == nil || s.Low == nil || s.High == nil {
		return ""
	}
	const w, h = 200.0, 18.0
	text := part(*s.Value) + " (" + part(*s.Low) + "–" + part(*s.High) + ")"
	p := draw(w, h, text)
	p.line(0, h-3, w, h-3, "axis")
	p.rect(*s.Low*w, 6, max((*s.High-*s.Low)*w, 1), 4, "f7", text)
	p.rect(*s.Value*w-2, 3, 4, 10, "f1", text)
	return p.done()
}

// part is a share of 1 in percent.
func part(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

// Percent is the success in words.
func (e estimate) Percent() string {
	if e.Value == nil {
		return "–"
	}
	if e.Low == nil || e.High == nil {
		return part(*e.Value)
	}
	return part(*e.Value) + " (" + part(*e.Low) + "–" + part(*e.High) + ")"
}

// Plain is a figure that is no share.
func (e estimate) Plain() string {
	if e.Value == nil {
		return "–"
	}
	text := strconv.FormatFloat(*e.Value, 'f', 2, 64)
	if e.Low != nil && e.High != nil {
		text += " (" + strconv.FormatFloat(*e.Low, 'f', 2, 64) + "–" + strconv.FormatFloat(*e.High, 'f', 2, 64) + ")"
	}
	return text
}
