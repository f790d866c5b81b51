package alert

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	shanghai = time.FixedZone("CST", 8*3600)
	sender   = Sender{Instance: "studio-7", Machine: "vm-3", Zone: shanghai}
)

// samples are an alarm, its recovery, a shop that is cut off and a test.
func samples() []Message {
	letters := Labels{Host: "a.test:443", Reason: "manual_review", TaskType: "order_ship"}
	where := letters
	where.Shop = "店铺17"
	return []Message{
		{
			Rule: "letters", On: DeadLetters, State: Firing, Group: letters, Where: where, Shops: []string{"店铺17", "s2"}, More: true,
			What: "5 dead letters in 10m", Since: start, At: start.Add(time.Minute), Count: 5, Total: 9, Call: "0af3",
			Do: []string{"these may have been executed: look at the platform before anything is repeated", "retryproxy deadletters ls -reason manual_review -host a.test:443"},
		},
		{Rule: "letters", On: DeadLetters, State: Recovered, Group: letters, What: "no new dead letters for 10m, after 9; 14 letters still wait to be settled", Since: start, At: start.Add(time.Hour), Do: []string{"retryproxy deadletters ls"}},
		{
			Rule: "cut", On: Breakers, State: Still, Group: Labels{Scope: "shop", Host: "a.test:443", Shop: "<@all> [x](http://evil) `*_\n&\x1b"},
			What: "the shop at this host is still cut off, for 5m now", Since: start, At: start.Add(time.Minute), Count: 1, Total: 1, Detail: "status_401",
		},
		{Rule: "test", On: "test", State: Test, At: start},
	}
}

func TestGoldenBodies(t *testing.T) {
	for _, name := range []string{"wecom", "dingtalk", "feishu", "slack", "json"} {
		t.Run(name, func(t *testing.T) {
			w := way{Target: Target{Format: name}, from: sender}
			batch, seal := w.pack(samples(), 2, start)
			if len(batch) != 4 {
				t.Fatalf("%d messages in one request, want all 4", len(batch))
			}
			var got any
			if err := json.Unmarshal(seal(start).body, &got); err != nil {
				t.Fatal(err)
			}
			text, _ := json.MarshalIndent(got, "", "  ")
			file := filepath.Join("testdata", name+".golden")
			text = []byte(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\n`, "\n").Replace(string(text)) + "\n")
			if *update {
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(text)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// The signatures were computed with Python's hmac, as the services' pages show it;
// that of JSON is the example of the Standard Webhooks specification.
func TestSignatures(t *testing.T) {
	const secret = "SEC0123456789abcdef"
	ding := dingTalkBody("x", secret, start)
	if got := ding.query.Get("sign"); got != "Izjp9A5a4NNKXKxzhm/zGYcx5iPmFStXH6UdBknngT8=" || ding.query.Get("timestamp") != "1772600400000" {
		t.Errorf("DingTalk: sign = %q at %q", got, ding.query.Get("timestamp"))
	}
	var fei struct{ Timestamp, Sign string }
	if err := json.Unmarshal(feishuBody("x", secret, start).body, &fei); err != nil {
		t.Fatal(err)
	}
	if fei.Sign != "2tfm7gbySxP5ugFp98tVokPECGUzef96YkMbhs4ObfE=" || fei.Timestamp != "1772600400" {
		t.Errorf("Feishu: %+v", fei)
	}
	e := jsonBody([]byte(`{"test": 2432232314}`), "msg_p5jXN8AQM9LWM0D4loKWxJek", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", time.Unix(1614265330, 0))
	if got := e.header["Webhook-Signature"]; got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("JSON: signature = %q", got)
	}
	for name, e := range map[string]envelope{"dingtalk": dingTalkBody("x", "", start), "feishu": feishuBody("x", "", start), "json": jsonBody([]byte("{}"), "i", "", start)} {
		if len(e.query) > 0 || strings.Contains(string(e.body), "sign") || e.header["Webhook-Signature"] != "" {
			t.Errorf("%s is signed without a secret: %+v", name, e)
		}
	}
}

func TestTextsAreBounded(t *testing.T) {
	huge := strings.Repeat("店", 5000)
	m := samples()[0]
	m.Group = Labels{Host: huge, Reason: huge, TaskType: huge, Shop: huge}
	m.Where, m.Detail, m.Call, m.What, m.Do = Labels{Host: huge + "1", Shop: huge + "2"}, huge, huge, huge, []string{huge, huge, huge, huge}
	for name, f := range formats {
		if f.render == nil {
			continue
		}
		text, n := f.texts([]Message{m}, 7, Sender{Instance: strings.Repeat("i", 64), Machine: strings.Repeat("m", 200), Zone: shanghai})
		if n != 1 || len(text) > f.text || !utf8.ValidString(text) {
			t.Errorf("%s: %d messages in %d bytes, valid %v, want 1 in at most %d", name, n, len(text), utf8.ValidString(text), f.text)
		}
		if strings.Count(text, "\n") < 14 || !strings.Contains(text, "2026-03-04 13:01:00 +08:00 CST") || !strings.Contains(text, "7 older messages") {
			t.Errorf("%s: a line is missing: %q", name, text)
		}
		many := make([]Message, 200)
		for i := range many {
			many[i] = samples()[0]
		}
		text, n = f.texts(many, 0, sender)
		if n < 2 || n > f.most || len(text) > f.text || strings.Contains(text, cutMark) {
			t.Errorf("%s: %d messages in %d bytes, want several whole ones", name, n, len(text))
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"店铺店铺", 12, "店铺店铺"},
		{"店铺店铺", 11, "店铺…"},
		{"店铺店铺", 8, "店…"},
		{"a店", 3, "…"},
		{"😀😀", 7, "😀…"},
	} {
		if got := cut(tt.text, tt.n); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		format, body string
		ok, busy     bool
	}{
		{"wecom", `{"errcode":0,"errmsg":"ok"}`, true, false},
		{"wecom", `{"errcode":93000,"errmsg":"invalid webhook url"}`, false, false},
		{"wecom", `{"errcode":45009,"errmsg":"api freq out of limit"}`, false, true},
		{"wecom", `<html>log in to this network</html>`, false, true},
		{"wecom", `{}`, false, true},
		{"dingtalk", `{"errcode":0,"errmsg":"ok"}`, true, false},
		{"dingtalk", `{"errcode":310000,"errmsg":"sign not match"}`, false, false},
		{"dingtalk", `{"errcode":130101,"errmsg":"send too fast"}`, false, true},
		{"feishu", `{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}`, true, false},
		{"feishu", `{"StatusCode":0,"StatusMessage":"success"}`, true, false},
		{"feishu", `{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}`, false, false},
		{"feishu", `{"code":11232,"msg":"frequency limited"}`, false, true},
	} {
		err := formats[tt.format].judge([]byte(tt.body))
		no, _ := errors.AsType[*answerError](err)
		if (err == nil) != tt.ok || !tt.ok && no.busy != tt.busy {
			t.Errorf("%s: %s is judged %v, want ok %v, busy %v", tt.format, tt.body, err, tt.ok, tt.busy)
		}
	}
}
