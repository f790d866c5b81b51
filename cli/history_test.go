package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// asked is an admin listener that remembers what it was asked and gives what is
// there under the path and query.
func asked(t *testing.T, there map[string]string) (addr string, paths *[]string) {
	t.Helper()
	paths = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*paths = append(*paths, r.URL.String())
		text, ok := there[r.URL.String()]
		if rest, limited := strings.CutPrefix(text, "400 "); limited {
			w.WriteHeader(http.StatusBadRequest)
			text = rest
		} else if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL, paths
}

func TestFlagsOfCalls(t *testing.T) {
	hash := idempotency.KeyHash("order-17")
	tests := []struct {
		args []string
		want string
	}{
		{nil, "/api/v1/calls?limit=50"},
		{[]string{"-key", "order-17"}, "/api/v1/calls?key_hash=" + hash + "&limit=50"},
		{[]string{"-key-hash", "ab", "-text", "a b", "-reason", "ok", "-result", "failed", "-limit", "7", "-json"}, "/api/v1/calls?key_hash=ab&limit=7&reason=ok&result=failed&text=a+b"},
		{[]string{"-since", "2026-03-01T00:00:00Z", "-until", "2026-03-02T00:00:00.5Z", "-csv"}, "/api/v1/calls?format=csv&since=2026-03-01T00%3A00%3A00Z&until=2026-03-02T00%3A00%3A00.5Z"},
		{[]string{"-csv", "-limit", "9"}, "/api/v1/calls?format=csv&limit=9"},
	}
	for _, test := range tests {
		addr, paths := asked(t, map[string]string{test.want: "[]"})
		code, _, stderr := typed(t, nil, append([]string{"calls", "-admin", addr}, test.args...)...)
		if code != OK || len(*paths) != 1 || (*paths)[0] != test.want {
			t.Errorf("calls %q = %d %s, asked %q, want %q", test.args, code, stderr, *paths, test.want)
		}
		if strings.Contains(strings.Join(*paths, ""), "order-17") {
			t.Errorf("calls %q sent the key", test.args)
		}
	}
	for _, args := range [][]string{{"-since", "soon"}, {"-limit", "0"}, {"-limit", "x"}} {
		if code, _, stderr := typed(t, nil, append([]string{"calls"}, args...)...); code != Usage || !strings.Contains(stderr, "want a") {
			t.Errorf("calls %q = %d %s, want 2 and the rule", args, code, stderr)
		}
	}
}

// A day that is given without a zone is one of the person who asks.
func TestSinceIsOfThisMachine(t *testing.T) {
	inShanghai(t)
	addr, paths := asked(t, nil)
	typed(t, nil, "calls", "-admin", addr, "-since", "2026-03-01")
	if len(*paths) != 1 || !strings.Contains((*paths)[0], "since=2026-03-01T00%3A00%3A00%2B08%3A00") {
		t.Errorf("asked %q", *paths)
	}
	addr, paths = asked(t, nil)
	typed(t, nil, "calls", "-admin", addr, "-since", "3d")
	day := time.Now().AddDate(0, 0, -3).Format(time.DateOnly)
	if len(*paths) != 1 || !strings.Contains((*paths)[0], "since="+day) {
		t.Errorf("asked %q, want since %s", *paths, day)
	}
}

const (
	oneCall  = `{"id":"c1","state":"done","result":"success","reason":"ok","status":200,"key_hash":"KEY","method":"POST","host":"a.test:80","path":"/","executed":"yes"}`
	anyLimit = "&limit=200"
)

func TestWhyLooksForIDThenKeyThenText(t *testing.T) {
	hash := idempotency.KeyHash("order-17")
	keyed := strings.ReplaceAll(oneCall, "KEY", "00000000000000aa")
	other := strings.ReplaceAll(strings.ReplaceAll(oneCall, "KEY", "00000000000000bb"), "c1", "c2")
	keyless := strings.ReplaceAll(oneCall, "KEY", "")
	records := strings.TrimSuffix(keyed, "}") + `,"records":[{"state":"done"}]}`
	const none = "[]"
	byKey, byText, ofKey := "/api/v1/calls?key_hash="+hash+anyLimit, "/api/v1/calls?limit=200&text=order-17", "/api/v1/calls?key_hash=00000000000000aa"+anyLimit
	tests := []struct {
		name  string
		asked string
		there map[string]string
		code  int
		want  []string
	}{
		{"a call without a key", "c1", map[string]string{"/api/v1/calls/c1": keyless}, OK, []string{"Call c1: POST a.test:80/\n"}},
		{"a call of a key", "c1", map[string]string{"/api/v1/calls/c1": records, ofKey: "[" + keyed + "]"}, OK, []string{"Call c1:", "Now: it is done"}},
		{"a key", "order-17", map[string]string{byKey: "[" + keyed + "," + keyed + "]", "/api/v1/calls/c1": records}, OK, []string{"1 request,", "Now: it is done"}},
		{"the hash of a key", "00000000000000aa", map[string]string{
			"/api/v1/calls?key_hash=" + idempotency.KeyHash("00000000000000aa") + anyLimit: none, ofKey: "[" + keyed + "]", "/api/v1/calls/c1": records,
		}, OK, []string{"Call c1:", "Now: it is done"}},
		{"a text of one key", "order-17", map[string]string{byKey: none, byText: "[" + keyed + "]", ofKey: "[" + keyed + "]", "/api/v1/calls/c1": records}, OK, []string{"Call c1:", "Now: it is done"}},
		{"a text of several keys", "order-17", map[string]string{byKey: none, byText: "[" + keyed + "," + other + "]"}, OK, []string{`2 calls with "order-17". Which one?`, "c2"}},
		{"a letter without a key", "c1", map[string]string{"/api/v1/calls/c1": strings.TrimSuffix(keyless, "}") + `,"records":[{"state":"dead","receipt":"c1","executed":"no","keyless":true,"advice":"Look."}]}`}, OK, []string{"Now: it was given up and is a dead letter, c1; executed: no.\nTo do: Look.\n  retryproxy deadletters show -admin ", " c1\n"}},
		{"nothing", "order-17", map[string]string{byKey: none, byText: none}, Failure, []string{
			"no call in progress or remembered has this id or key, or said this text", "whole words of 4 to 64 letters, digits, - and _", "a kill cut off are not noted", "Where store.key was changed",
		}},
		{"no history", "order-17", map[string]string{byKey: none, byText: `400 {"detail":"text: only where the store is durable"}`}, Failure, []string{"has this id or key (bad request: ", "only where the store is durable"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr, paths := asked(t, test.there)
			code, stdout, stderr := typed(t, nil, "why", "-admin", addr, test.asked)
			for _, want := range test.want {
				if code != test.code || !strings.Contains(stdout+stderr, want) {
					t.Errorf("why %s = %d %s%s, asked %q, want %d and %q", test.asked, code, stdout, stderr, *paths, test.code, want)
				}
			}
		})
	}
}
