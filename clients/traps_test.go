//go:build unix

package clients

import (
	"net"
	"os"
	"strings"
	"testing"
)

// trap is a setting that does less, or more, than it seems to. The target is on
// loopback, so that a client that goes past the proxy gets somewhere.
type trap struct {
	name     string
	client   string
	settings []string // variables, or options of Java; one without a value names the proxy
	past     bool     // it goes past the proxy
}

// traps are those that docs/clients.md names and that loopback can show.
var traps = []trap{
	{"HTTP_PROXY in upper case", "curl", []string{"HTTP_PROXY"}, true},
	{"loopback", "curl", []string{"http_proxy"}, false},
	{"NO_PROXY", "curl", []string{"http_proxy", "NO_PROXY=127.0.0.1"}, true},
	{"loopback", "Python urllib", []string{"HTTP_PROXY"}, false},
	{"loopback", "Python requests", []string{"HTTP_PROXY"}, false},
	{"HTTPS_PROXY alone", "Python requests", []string{"HTTPS_PROXY"}, true},
	{"without NODE_USE_ENV_PROXY", "Node fetch", []string{"HTTP_PROXY"}, true},
	{"loopback", "Node fetch", []string{"HTTP_PROXY", "NODE_USE_ENV_PROXY=1"}, false},
	{"loopback", "Go net/http", []string{"HTTP_PROXY"}, true},
	{"loopback", "Java HttpClient", nil, true},
	{"loopback", "Java HttpURLConnection", nil, true},
	{"loopback with nonProxyHosts", "Java HttpClient", []string{"-Dhttp.nonProxyHosts="}, false},
	{"loopback with nonProxyHosts", "Java HttpURLConnection", []string{"-Dhttp.nonProxyHosts="}, false},
}

// fallInto calls the upstream without a name, where the proxy does not go: what
// came by the proxy is refused, what came past it gets the upstream's own 404.
func fallInto(t *testing.T, p *product, up *upstream, tools *tools) {
	for _, x := range traps {
		t.Run(x.client+"/"+x.name, func(t *testing.T) {
			t.Parallel()
			c := clientNamed(x.client)
			c.here(t)
			got := x.play(t, p.proxy, "http://"+up.plain+"/", tools)
			if len(got) != 1 {
				t.Fatalf("%d results, want one: %v", len(got), got)
			}
			if past := got[0].status == "404" && got[0].reason == ""; past != x.past {
				t.Errorf("%v, so past the proxy = %t, want %t", got[0], past, x.past)
			}
		})
	}
}

// play makes one call with the client.
func (x *trap) play(t *testing.T, proxy, target string, tools *tools) []result {
	var env []string
	for _, s := range x.settings {
		if !strings.Contains(s, "=") {
			s += "=http://" + proxy
		}
		env = append(env, s)
	}
	step := "GET\t" + target + "\t\t\n"
	switch x.client {
	case "curl":
		return play(t, "", env, "curl", "-sS", "-m", "60", "-o", os.DevNull, "-w", curlFormat, target)
	case "Go net/http":
		return play(t, step, env, must(t, tools.goClient))
	case "Node fetch":
		return play(t, step, env, nodeBinary(), "testdata/node/clients.mjs", "fetch")
	case "Python urllib", "Python requests":
		return play(t, step, env, pythonBinary, "testdata/python.py", strings.TrimPrefix(x.client, "Python "))
	}
	host, port, _ := net.SplitHostPort(proxy)
	args := append(x.settings[:len(x.settings):len(x.settings)], "-Dhttp.proxyHost="+host, "-Dhttp.proxyPort="+port,
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", must(t, tools.javaDir), "Main", strings.TrimPrefix(x.client, "Java "))
	return play(t, step, nil, "java", args...)
}
