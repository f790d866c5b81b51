package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// examineConfig tells what serve would refuse or warn of.
func examineConfig(f *Facts) []Finding {
	var out []Finding
	for _, fault := range f.Setup.Faults {
		out = append(out, Finding{
			"config.fault", groupConfig, Problem, fault,
			"serve refuses to start with it, and a running proxy keeps its old rules.",
			[]Fix{toRun("retryproxy check%s", f.fileFlag())},
		})
	}
	for _, text := range f.Setup.Warnings {
		w := Finding{"config.warning", groupConfig, Warning, text, "", []Fix{toRun("retryproxy check%s", f.fileFlag())}}
		if strings.HasPrefix(text, "timezone:") {
			w = Finding{"config.timezone", groupConfig, Note, "hour_range is read in UTC", "", []Fix{inConfig("timezone: Asia/Shanghai")}}
		}
		out = append(out, w)
	}
	if len(f.Setup.Unset) > 0 {
		var pairs []string
		for _, name := range f.Setup.Unset {
			pairs = append(pairs, name, "VALUE")
		}
		out = append(out, Finding{
			"config.unset", groupConfig, Note, fmt.Sprintf("%s %s not set in this shell; the running proxy has %s, so its configuration was examined", strings.Join(f.Setup.Unset, ", "), plural(len(f.Setup.Unset), "is", "are"), plural(len(f.Setup.Unset), "it", "them")),
			"", inShell(pairs...),
		})
	}
	return out
}

// fileFlag names the configuration file for a command.
func (f *Facts) fileFlag() string {
	if f.Setup.File == "" {
		return ""
	}
	return " -config " + quoted(f.Setup.File)
}

// examineProxy judges the running proxy.
func examineProxy(f *Facts) []Finding {
	r := &f.Running
	switch {
	case r.AdminFault != "" && r.ProxyFault != "":
		return []Finding{{
			"proxy.down", groupProxy, Problem, "the proxy does not run: " + r.ProxyFault,
			"Every call that is sent to it fails.",
			[]Fix{toRun("retryproxy serve%s", f.fileFlag())},
		}}
	case r.ProxyFault != "":
		return append([]Finding{{
			"proxy.port", groupProxy, Problem, "the admin listener answers, but the proxy cannot be reached: " + r.ProxyFault,
			"Clients that call this address fail; the running proxy may listen elsewhere.",
			[]Fix{inConfig("listen: {proxy: %q}", f.Setup.Proxy)},
		}}, inForce(f)...)
	case r.Token:
		return append([]Finding{{
			"proxy.token", groupProxy, Warning, "the admin listener wants another token: " + r.AdminFault,
			"What the running proxy saw cannot be examined.", inShell("RETRYPROXY_TOKEN", "TOKEN"),
		}}, spoolSpace(f)...)
	case r.Admin == "":
		return append([]Finding{{
			"proxy.no_admin", groupProxy, Note, "the configuration has no admin listener",
			"What the running proxy saw cannot be examined.",
			[]Fix{inConfig("listen: {admin: 127.0.0.1:9090}")},
		}}, spoolSpace(f)...)
	case r.AdminFault != "":
		return append([]Finding{{
			"proxy.admin", groupProxy, Warning, "the proxy takes connections, but its admin listener does not answer: " + r.AdminFault,
			"What it saw cannot be examined.",
			[]Fix{toRun("retryproxy doctor%s -admin ADDRESS:PORT", f.fileFlag())},
		}}, spoolSpace(f)...)
	}
	return append(inForce(f), spoolSpace(f)...)
}

// inForce judges what the admin listener told.
func inForce(f *Facts) []Finding {
	r := &f.Running
	var out []Finding
	add := func(when bool, x Finding) {
		if when {
			out = append(out, x)
		}
	}
	add(r.NotReady != "", Finding{
		"proxy.not_ready", groupProxy, Problem, "it takes no calls: " + r.NotReady,
		"New calls are refused with 503.",
		[]Fix{toRun("retryproxy serve%s", f.fileFlag())},
	})
	add(r.Reload, Finding{
		"proxy.reload_failed", groupProxy, Problem, "the last change of the configuration was refused" + f.refusal(),
		"The old rules are in force. Once the file is mended it is read by itself; this reads it at once and names each fault:",
		[]Fix{f.askAdmin("-X POST ", "/api/v1/config/reload")},
	})
	add(r.Version != "" && r.OwnVersion != "" && r.Version != r.OwnVersion, Finding{
		"proxy.version", groupProxy, Warning, fmt.Sprintf("it runs %s, this command is %s", r.Version, r.OwnVersion),
		"What this command knows of keys and findings may not fit.",
		[]Fix{toRun("retryproxy serve%s   # stop the old one first", f.fileFlag())},
	})
	add(len(r.Hidden) > 0 && !f.Offline, Finding{
		"proxy.hidden", groupProxy, Note, "it does not tell passwords: of egress " + some(r.Hidden, 4) + " only the address was tried",
		"",
		[]Fix{toRun("retryproxy doctor -config %s   # where the variables that it names are set", quoted(cmp.Or(f.Setup.File, "FILE")))},
	})
	add(r.Unexamined, Finding{
		"proxy.other_config", groupProxy, Note, "it runs on a configuration that could not be read from it; the built-in one was examined",
		"Its upstreams were not asked.",
		[]Fix{toRun("retryproxy doctor -config FILE")},
	})
	add(len(r.Drift) > 0, drift(f))
	add(f.Setup.Store == "memory", Finding{
		"proxy.memory", groupProxy, Note, "keys are kept in memory: " + keysLost(r.Records), "",
		[]Fix{toRun("retryproxy calls -state waiting   # before a restart: should be empty")},
	})
	add(f.Setup.Kept != "", Finding{
		"proxy.data", groupProxy, Note, "keyed calls are kept in " + f.Setup.Kept + " because it was started with -data: the file names no store",
		"A start without it knows nothing of them.",
		[]Fix{inConfig("store: {kind: sqlite, path: %q}", f.Setup.Kept)},
	})
	return out
}

// keysLost says what a restart costs.
func keysLost(n int64) string {
	if n == 0 {
		return "a restart forgets them"
	}
	return fmt.Sprintf("a restart forgets %d", n)
}

// refusal is what is known of a refused reload.
func (f *Facts) refusal() string {
	if f.Seen == nil || f.Seen.Reload == "" {
		return ""
	}
	return ": " + f.Seen.Reload
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// fixedKeys need a restart.
var fixedKeys = []string{"instance", "listen", "listeners", "store"}

func drift(f *Facts) Finding {
	x := Finding{
		"proxy.drift", groupProxy, Warning, "its configuration is not the file's: " + strings.Join(f.Running.Drift, ", "),
		"The file, or the flags that it was started with, changed since.",
		[]Fix{f.askAdmin("-X POST ", "/api/v1/config/reload")},
	}
	if slices.ContainsFunc(f.Running.Drift, func(key string) bool { return slices.Contains(fixedKeys, key) }) {
		x.Why = "Some of these keys need a restart (instance, listen, listeners, store)."
		x.Fix = []Fix{toRun("retryproxy serve%s   # stop the old one first", f.fileFlag())}
	}
	return x
}

// leastSpace is what large bodies should find.
const leastSpace = 1 << 30

// spoolSpace judges the disk for bodies.
func spoolSpace(f *Facts) []Finding {
	free := f.Running.SpoolFree
	if free == 0 || free >= leastSpace {
		return nil
	}
	dir := f.Setup.BodyDir
	if dir == "" {
		dir = "the system's folder for temporary files"
	}
	return []Finding{{
		"proxy.disk", groupProxy, Warning, fmt.Sprintf("%d MiB are free in %s", free>>20, dir),
		"Large bodies are kept there while a call may be repeated; without space such calls fail with local_resource.",
		[]Fix{inConfig("body: {dir: /path/with/space}")},
	}}
}
