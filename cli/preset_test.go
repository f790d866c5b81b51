package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPresetCommands(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("own.yaml", "preset: own\nrules: [{name: no, code: [1], is: refused}]\nanswer: {code: [$.c]}\nfixtures: [{name: first, body: '{\"c\":1}', is: refused}, {name: second, body: '{\"c\":2}', is: refused}]\n")
	cfg := file("config.yml.txt", "presets: {dir: '"+dir+"'}\nretry_policies: [{name: mine, match: {operation: pdd.order.ship}}]\n")
	body := file("body.json", `{"error_response":{"error_msg":"slow","error_code":52101}}`)
	whole := file("whole.txt", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>x</html>")
	broken := file("broken.txt", "HTTP/1.1 what\r\n")
	const form, pdd = "Content-Type: application/x-www-form-urlencoded", "http://gw-api.pinduoduo.com/api/router"
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"preset", "ls"}, OK, []string{"pdd ", "gw-api.pinduoduo.com", "built in", "(where it is named)"}},
		{[]string{"preset", "ls", "-dir", dir}, OK, []string{"own ", "yours"}},
		{[]string{"preset", "show", "pdd"}, OK, []string{"confidence high", "open.pinduoduo.com", "52101 70031", "OFF: our inference", "pdd.waybill.get", "client_secret"}},
		{[]string{"preset", "show", "nobody"}, Usage, nil},
		{[]string{"preset", "test"}, OK, []string{", 0 failed"}},
		{[]string{"preset", "test", "temu"}, OK, []string{"1 presets, "}},
		{[]string{"preset", "test", "nobody"}, Usage, nil},
		{[]string{"preset", "test", "-dir", dir, "own"}, Failure, []string{"own: second: it is status", "1 presets, 2 fixtures, 1 failed"}},
		{[]string{"preset", "test", "-config", cfg, "own"}, Failure, []string{"1 failed"}},
		{[]string{"explain", "-response", body, "-H", form, "-d", "type=pdd.order.ship", pdd}, OK, []string{"pdd.order.ship, a write", "throttled (rule throttled)", "transient, throttled; executed: no", "for 1s", "So: retried"}},
		{[]string{"explain", "-config", cfg, "-response", body, "-H", form, "-d", "type=pdd.order.ship", pdd}, OK, []string{"policy mine"}},
		{[]string{"explain", "-response", body, "-json", "-H", form, "-d", "type=pdd.open.decrypt.batch", pdd}, OK, []string{`"rule": "throttled"`, "scarce"}},
		{[]string{"explain", "-response", whole, "-H", form, "-d", "type=pdd.order.ship", pdd}, OK, []string{"unreadable", "unknown, unreadable; executed: maybe", "manual_review"}},
		{[]string{"explain", "-response", whole, "-H", form, "-d", "type=pdd.order.list.get", pdd}, OK, []string{"a read", "transient, unreadable"}},
		{[]string{"explain", "-response", body, "-status", "503", "http://example.com/"}, Usage, nil},
		{[]string{"explain", "-response", body, "-status", "503", "-preset", "walmart", "http://example.com/"}, OK, []string{"not_now (rule gateway)"}},
		{[]string{"explain", "-response", broken, pdd}, Usage, nil},
		{[]string{"explain", "-response", filepath.Join(dir, "gone"), pdd}, Usage, nil},
	} {
		code, stdout, stderr := typed(t, nil, tt.args...)
		if code != tt.code {
			t.Errorf("%q = %d, want %d: %s%s", tt.args, code, tt.code, stdout, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q does not print %q: %s", tt.args, want, stdout)
			}
		}
	}
}
