//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// The page in a real Chromium, over the real binary under load. make page runs it.

const pageConfig = `
listen: {proxy: "127.0.0.1:0", admin: "127.0.0.1:%d"}
retry_policies:
  - {name: pdd, match: {task_type: pdd}, preset: pdd, max_retries: 0}
  - {name: once, match: {task_type: once}, max_retries: 0, dead_letter: all}
  - {name: slow, match: {task_type: slow}, max_retries: 3, base_delay: 10m, max_delay: 10m, deadline: 1h, jitter: none}
  - {name: default, max_retries: 2, base_delay: 50ms, jitter: none, dead_letter: all}
retry_limits: {global: off, task_type: off, shop: {rate: 60/m}}
slots: {max_waiting: 20000, max_wait: 1h}
breakers: {host: {open: 2s, open_max: 5s}}
store: {kind: sqlite, path: %q, durability: process}
log: {level: error}
%s
`

// stage is the proxy with its upstreams, and a browser that looks at it.
type stage struct {
	*process
	t        *testing.T
	client   *http.Client
	well     *httptest.Server // answers
	shaky    *httptest.Server // every third answer is a 503
	doubtful *httptest.Server // 500
	busy     *httptest.Server // 429
	dead     *httptest.Server // 503, unless it is well again
	revived  atomic.Bool
	picky    *httptest.Server // 503, unless dead is well again
	pdd      *httptest.Server // answers what said is
	said     atomic.Pointer[string]
	browser  context.Context
	axe      string
	asked    sync.Map // the hosts that the browser asked anything of
}

// onStage needs further lines of the configuration.
func onStage(t *testing.T, more string) *stage {
	if os.Getenv("RETRYPROXY_PAGE") == "" {
		t.Skip("needs Chromium and axe-core: make page")
	}
	s := &stage{t: t}
	axe, err := os.ReadFile("dashboard/testdata/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("axe-core is missing, make page installs it: %v", err)
	}
	s.axe = string(axe)
	answer := func(f func(n int64) int) *httptest.Server {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(f(n.Add(1)))
		}))
		t.Cleanup(server.Close)
		return server
	}
	s.well = answer(func(int64) int { return 200 })
	s.shaky = answer(func(n int64) int { return map[bool]int{true: 503, false: 200}[n%3 == 0] })
	s.busy = answer(func(int64) int { return 429 })
	s.doubtful = answer(func(int64) int { return 500 })
	s.dead = answer(func(int64) int { return map[bool]int{true: 200, false: 503}[s.revived.Load()] })
	s.picky = answer(func(int64) int { return map[bool]int{true: 200, false: 503}[s.revived.Load()] })
	s.pdd = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, *s.said.Load())
	}))
	t.Cleanup(s.pdd.Close)
	dir, port := t.TempDir(), freePort(t)
	s.start(dir, port, more)
	s.browser = browser(t)
	err = chromedp.Listen(s.browser, func(ev any) {
		if e, ok := ev.(*network.EventRequestWillBeSent); ok {
			if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" {
				s.asked.Store(u.Host, true)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs the binary; again on the same folder and port after it was killed.
func (s *stage) start(dir string, port int, more string) {
	s.t.Helper()
	s.process = runBinary(s.t, filepath.Join(dir, "c.yaml"), port, fmt.Sprintf(pageConfig, port, filepath.Join(dir, "data"), more))
	proxy, _ := url.Parse("http://" + s.proxy)
	s.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
}

// browser is a Chromium without a window.
func browser(t *testing.T) context.Context {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.Flag("no-proxy-server", true))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(end)
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("Chromium does not start: %v", err)
	}
	return ctx
}

// send makes one call through the proxy and gives its status; 0: none came.
func (s *stage) send(method, to, body string, fields ...string) int {
	r, err := http.NewRequestWithContext(s.t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// load makes calls of some shops until stop is called.
func (s *stage) load(each time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			tick := time.NewTicker(each)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				to := s.well.URL
				if n%10 == 0 {
					to = s.shaky.URL
				}
				s.send("GET", to+"/items", "", fmt.Sprintf("X-Shop-Id: s%d", i), "X-Task-Type: report")
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// troubles leaves letters, a doubt, an outage and waiting calls behind.
func (s *stage) troubles(waiting int) {
	s.t.Helper()
	for i := range 3 {
		s.send("POST", s.doubtful.URL+"/order", fmt.Sprintf(`{"order":"doubt-%04d"}`, i), "X-Shop-Id: s1", "X-Task-Type: order_ship", fmt.Sprintf("X-Request-Id: bot-doubt-%04d", i))
	}
	for range 8 {
		s.send("GET", s.dead.URL+"/", "", "X-Shop-Id: s2", "X-Request-Timeout: 1")
	}
	for i := range 4 { // too few for its breaker
		s.send("POST", s.picky.URL+"/order", "{}", "X-Shop-Id: s3", "X-Task-Type: once", fmt.Sprintf("X-Idempotency-Key: picky-%d", i))
	}
	var all sync.WaitGroup
	each := make(chan int)
	for range 32 {
		all.Go(func() {
			for i := range each {
				if got := s.send("POST", s.busy.URL+"/later", "{}", "X-Task-Type: slow", "Prefer: respond-async", fmt.Sprintf("X-Shop-Id: s%d", i%50), fmt.Sprintf("X-Idempotency-Key: later-%d", i)); got == 0 {
					s.t.Errorf("call %d got no answer", i)
					return
				}
			}
		})
	}
	for i := range waiting {
		each <- i
	}
	close(each)
	all.Wait()
}

// at is the address of a page.
func (s *stage) at(path string) string { return "http://" + s.admin + path }

// do takes one step in the browser.
func do[T any](s *stage, what string, step chromedp.Action[T]) T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.browser, 30*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, step)
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	return v
}

// eval is what a script says about the page that is open; a promise is waited for.
func eval[T any](s *stage, script string) T {
	s.t.Helper()
	return do(s, script[:min(len(script), 80)], chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// open loads a page.
func (s *stage) open(path string) {
	s.t.Helper()
	do(s, path, chromedp.Navigate(s.at(path)))
}

// look sets how pages are looked at.
func (s *stage) look(lang, theme string, width int64) {
	s.t.Helper()
	do(s, "width", chromedp.EmulateViewport(width, 900))
	do(s, "theme", func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
		})
		if err == nil {
			_, err = cdp.Call(ctx, t, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": lang}})
		}
		return chromedp.Void{}, err
	})
}

// paint is when the page that is open was first painted, in ms after it was asked for.
func (s *stage) paint() float64 {
	return eval[float64](s, `new Promise((done) => {
		const look = () => { const p = performance.getEntriesByName("first-contentful-paint"); p.length ? done(p[0].startTime) : setTimeout(look, 10); };
		look();
	})`)
}

// flaws are what axe finds on the page that is open.
func (s *stage) flaws() []string {
	return eval[[]string](s, s.axe+`; axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")))`)
}

// keepShot keeps what the page looks like for review.
func (s *stage) keepShot(name string) {
	png := do(s, "screenshot", chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(s.t.ArtifactDir(), name+".png"), png, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// tooWide names the elements without which the page would fit.
const tooWide = `[...document.querySelectorAll("body *")].filter((e) => { const was = e.style.display; e.style.display = "none"; const fits = document.documentElement.scrollWidth <= innerWidth; e.style.display = was; return fits; }).map((e) => e.outerHTML.slice(0, 120))`

var pagePaths = []string{"/trace", "/trace?q=bot-doubt-0001", "/person", "/now", "/shops", "/line", "/line?state=parked", "/policies", "/coverage", "/audit", "/nothing"}

// paintBudget is the goal for the median on a machine that does nothing else, in ms. On
// one that does, slower paints are no fault of the page.
const (
	paintBudget = 200.0
	paintSlack  = 3
	cpuBudget   = 2.0 // percent of a core
)

// each opens every page in both languages and themes, wide and narrow.
func (s *stage) each(look func(lang, theme string, width int64, path string)) {
	for _, as := range []struct {
		lang, theme string
		width       int64
	}{{"en", "light", 1280}, {"zh-CN", "dark", 1280}, {"zh-CN", "light", 360}, {"en", "dark", 360}} {
		s.look(as.lang, as.theme, as.width)
		for _, path := range pagePaths {
			s.open(path)
			look(as.lang, as.theme, as.width, path)
		}
	}
}

func TestPageEveryOne(t *testing.T) {
	s := onStage(t, "")
	s.troubles(10000)
	stop := s.load(8 * time.Millisecond)
	defer stop()
	s.open("/now")
	s.wait(`fetch("/api/v1/overview").then((r) => r.json()).then((o) => o.waiting >= 10000)`)
	var paints []float64
	s.each(func(_, _ string, _ int64, _ string) { paints = append(paints, s.paint()) })
	stop()
	s.each(func(lang, theme string, width int64, path string) {
		as := fmt.Sprintf("%s (%s, %s, %d px)", path, lang, theme, width)
		in, light := eval[string](s, `document.documentElement.lang`), eval[string](s, `document.getElementById("light").textContent`)
		if !strings.HasPrefix(in, lang[:2]) || light == "" {
			t.Errorf("%s: lang = %q, the light says %q", as, in, light)
		}
		if fault := eval[string](s, `document.querySelector(".fault:not([hidden])")?.textContent ?? ""`); fault != "" {
			t.Errorf("%s says %q", as, fault)
		}
		if wide := eval[int64](s, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("%s is %d px wide: %v", as, wide, eval[[]string](s, tooWide))
		}
		for _, flaw := range s.flaws() {
			t.Errorf("%s: %s", as, flaw)
		}
		s.keepShot(fmt.Sprintf("%s-%s-%s-%d", strings.Trim(strings.NewReplacer("/", "", "?", "-", "=", "-").Replace(path), "-"), lang[:2], theme, width))
	})
	s.asked.Range(func(host, _ any) bool {
		if host != s.admin {
			t.Errorf("a page asked %v", host)
		}
		return true
	})
	if _, any := s.asked.Load(s.admin); !any {
		t.Error("it is not seen whom pages ask")
	}
	slices.Sort(paints)
	if median, most := paints[len(paints)/2], paints[len(paints)-1]; median > paintBudget*paintSlack {
		t.Errorf("first paint after %.0f ms at the median, %.0f at most; want %.0f", median, most, paintBudget)
	} else {
		t.Logf("first paint after %.0f ms at the median, %.0f at most", median, most)
	}
	s.costs()
}

// costs sees to it that a page that is looked at costs little. What it costs does not
// depend on the calls that pass, but without them it can be told apart.
func (s *stage) costs() {
	if runtime.GOOS != "linux" {
		return
	}
	do(s, "no page", chromedp.Navigate("about:blank"))
	alone := s.share(3 * time.Second)
	s.open("/now")
	s.wait(`seen > 0`)
	if with := s.share(8 * time.Second); with-alone > cpuBudget {
		s.t.Errorf("the page costs %.1f %% of a core, and %.1f %% without it; want %.0f %% at most", with, alone, cpuBudget)
	} else {
		s.t.Logf("the page costs %.1f %% of a core, and %.1f %% without it", with, alone)
	}
}

// share is the part of a core, in percent, that the process uses for a while.
func (s *stage) share(d time.Duration) float64 {
	s.t.Helper()
	used := func() (ticks int) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil {
			s.t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), ") ")
		for _, field := range strings.Fields(after)[11:13] { // utime and stime, a hundred a second (proc(5))
			n, _ := strconv.Atoi(field)
			ticks += n
		}
		return ticks
	}
	from, at := used(), time.Now()
	<-time.After(d)
	return float64(used()-from) / time.Since(at).Seconds()
}
