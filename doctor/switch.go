package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"retryproxy/config"
)

// configured is the switch of a configuration.
func configured(c *config.Config) Switch {
	s := Switch{Default: c.Retries.Default}
	for i := range c.Retries.Scopes {
		from := &c.Retries.Scopes[i]
		match := map[string]any{}
		for key, list := range map[string][]string{
			"host": from.Match.Host, "shop": from.Match.Shop, "shop_tier": from.Match.ShopTier,
			"task_type": from.Match.TaskType, "path": from.Match.Path, "method": from.Match.Method,
		} {
			if len(list) > 0 {
				match[key] = strings.Join(list, "|")
			}
		}
		for _, h := range from.Match.HourRange {
			match["hour_range"] = fmt.Sprintf("%d-%d", h.From, h.To)
		}
		s.Scopes = append(s.Scopes, Scope{match, from.Value, from.Until})
	}
	return s
}

// examineSwitch tells where nothing is retried.
func examineSwitch(f *Facts) []Finding {
	s, running := &f.Setup.Retries, f.Running.Retries != nil
	if running {
		s = f.Running.Retries
	}
	var where []string
	severity := Warning
	for _, c := range s.inForce(f.Now) {
		if c.Value == "on" {
			continue
		}
		where = append(where, c.String())
		if len(c.Match) == 0 {
			severity = Problem
		}
	}
	if len(where) == 0 {
		return nil
	}
	return []Finding{{
		"proxy.retries_off", groupProxy, severity, "retries are " + some(where, mostListed),
		"These calls are not retried: clients get the failure as it came.", f.switchOn(running),
	}}
}

// inForce are the scopes that calls meet, the default as the last one.
func (s *Switch) inForce(now time.Time) []Scope {
	var out []Scope
	for _, c := range s.Scopes {
		if !c.Until.IsZero() && !now.Before(c.Until) {
			continue
		}
		out = append(out, c)
		if len(c.Match) == 0 {
			return out // what follows never matches
		}
	}
	if s.Default != "" {
		out = append(out, Scope{Value: s.Default})
	}
	return out
}

// switchOn are the lines that turn retries on, now and for good.
func (f *Facts) switchOn(running bool) []Fix {
	var fix []Fix
	if running {
		fix = append(fix, toRun("retryproxy retries on%s", f.adminFlag()))
	}
	kept := &f.Setup.Retries
	off := slices.ContainsFunc(kept.Scopes, func(c Scope) bool { return c.Value != "on" })
	switch {
	case off:
		fix = append(fix, inConfig(`retries: {default: "on", scopes: []}   # or it is so again after the next start`))
	case !running || kept.Default != "on" && kept.Default != "":
		fix = append(fix, inConfig(`retries: {default: "on"}   # or it is so again after the next start`))
	}
	return fix
}

// String says it in words.
func (c *Scope) String() string {
	text := c.what() + " for " + c.calls()
	if !c.Until.IsZero() {
		text += " until " + c.Until.Format(time.RFC3339)
	}
	return text
}

// what is the value in words.
func (c *Scope) what() string {
	if c.Value == "observe" {
		return "only observed"
	}
	return c.Value
}

// calls says which ones the scope is for.
func (c *Scope) calls() string {
	if len(c.Match) == 0 {
		return "every call"
	}
	var parts []string
	for key, value := range c.Match {
		text, isText := value.(string)
		if !isText {
			raw, _ := json.Marshal(value)
			text = strings.NewReplacer(`["`, "", `"]`, "", `","`, "|").Replace(string(raw))
		}
		parts = append(parts, fmt.Sprintf("%s %s", key, text))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// usualAdmin is where the commands look for the admin listener by themselves.
const usualAdmin = "127.0.0.1:9090"

// adminFlag names the admin listener for a command.
func (f *Facts) adminFlag() string {
	if f.Running.Admin == "" || f.Running.Admin == usualAdmin {
		return ""
	}
	return " -admin " + f.Running.Admin
}

// askAdmin is a curl of the admin listener. A proxy variable must not lead it
// through the proxy, which does not call itself.
func (f *Facts) askAdmin(options, path string) Fix {
	return toRun("curl -sS --noproxy '*' %shttp://%s%s", options, f.Running.Admin, path)
}
