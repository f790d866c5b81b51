package doctor

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// examineNode tells what Node makes of the proxy variables.
func examineNode(f *Facts) []Finding {
	major, minor, ok := nodeVersion(f.Shell.Node)
	if !ok {
		return nil
	}
	asked := f.Shell.Vars["NODE_USE_ENV_PROXY"] == "1" || strings.Contains(f.Shell.Vars["NODE_OPTIONS"], "--use-env-proxy")
	if able := major > 24 || major == 24 && minor >= 5 || major == 22 && minor >= 21; able {
		if asked {
			return nil
		}
		return []Finding{{
			"env.node_flag", groupShell, Note, "NODE_USE_ENV_PROXY is not set for Node " + f.Shell.Node,
			"Node's own fetch and http read the proxy variables only with it.", inShell("NODE_USE_ENV_PROXY", "1"),
		}}
	}
	severity := Note
	if asked {
		severity = Warning
	}
	return []Finding{{
		"env.node_old", groupShell, severity, "Node " + f.Shell.Node + " cannot use the proxy variables",
		"Its own fetch and http go past the proxy; that came with 22.21 and 24.5. Undici's agent does it for fetch.",
		[]Fix{
			{"javascript", `const u = require("undici"); u.setGlobalDispatcher(new u.EnvHttpProxyAgent()) // npm install undici@6`},
		},
	}}
}

// nodeVersion reads v20.11.1.
func nodeVersion(text string) (major, minor int, ok bool) {
	parts := strings.Split(strings.TrimPrefix(text, "v"), ".")
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}

// examineJava tells what Java makes of them: nothing.
func examineJava(f *Facts) []Finding {
	options := f.Shell.Vars["JAVA_TOOL_OPTIONS"]
	host, port, err := net.SplitHostPort(f.Setup.Proxy)
	if err != nil || !f.Shell.Java {
		return nil
	}
	plain, tls := strings.Contains(options, "-Dhttp.proxyHost="), strings.Contains(options, "-Dhttps.proxyHost=")
	mended := func(protocols ...string) []Fix {
		var add []string
		for _, p := range protocols {
			add = append(add, fmt.Sprintf("-D%[1]s.proxyHost=%[2]s -D%[1]s.proxyPort=%[3]s", p, host, port))
		}
		return inShell("JAVA_TOOL_OPTIONS", strings.TrimSpace(options+" "+strings.Join(add, " ")))
	}
	switch {
	case plain && tls:
		return nil
	case plain:
		return []Finding{{
			"env.java_https", groupShell, Warning, "JAVA_TOOL_OPTIONS names a proxy for http alone",
			"Java's https calls go past it.", mended("https"),
		}}
	}
	return []Finding{{
		"env.java", groupShell, Note, "Java ignores the proxy variables", "It takes the proxy from system properties.", mended("http", "https"),
	}}
}
