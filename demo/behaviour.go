package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// behaviour is one way to answer, chosen by the path.
type behaviour struct {
	path  string // a trailing slash takes an argument
	usage string
	help  string
	fault bool // misbehaves: heals after times=n requests per id
	early bool // acts before the body is read
	calm  bool // answers during an outage too
	do    func(x *exchange, arg string)
}

// behaviours are all paths but the index, which lists them.
var behaviours = []behaviour{
	{
		path: "/ok", usage: "/ok",
		help: "200, always",
		do:   ok,
	},
	{
		path: "/status/", usage: "/status/503",
		help: "that status, always",
		do:   status,
	},
	{
		path: "/fail/", usage: "/fail/503?times=2&then=200&id=X",
		help:  "that status n times per id, then it heals",
		fault: true,
		do:    status,
	},
	{
		path: "/retry-after/", usage: "/retry-after/2?status=429&id=X",
		help:  "once per id 429 with Retry-After, then 200",
		fault: true,
		do:    retryAfter,
	},
	{
		path: "/reset", usage: "/reset",
		help:  "RST before any byte of an answer; nothing was done",
		fault: true, early: true,
		do: func(x *exchange, _ string) { x.reset() },
	},
	{
		path: "/reset-after", usage: "/reset-after",
		help:  "reads all, does the work, RST",
		fault: true,
		do:    func(x *exchange, _ string) { x.act(); x.reset() },
	},
	{
		path: "/close", usage: "/close",
		help:  "reads all, does the work, closes without an answer",
		fault: true,
		do:    func(x *exchange, _ string) { x.act(); x.close() },
	},
	{
		path: "/stall", usage: "/stall?for=30s",
		help:  "reads all, does the work, silent for so long, then 200",
		fault: true,
		do:    stall,
	},
	{
		path: "/truncate", usage: "/truncate",
		help:  "promises 1000 bytes, sends 300, closes",
		fault: true,
		do:    truncate,
	},
	{
		path: "/junk", usage: "/junk",
		help:  "answers with something that is not HTTP",
		fault: true,
		do:    func(x *exchange, _ string) { x.raw("this is not HTTP\r\n\r\n"); x.close() },
	},
	{
		path: "/suspect", usage: "/suspect",
		help:  "200 whose JSON says failure",
		fault: true,
		do:    suspect,
	},
	{
		path: "/slow", usage: "/slow?ms=200",
		help: "200 after that time",
		do:   slow,
	},
	{
		path: "/order", usage: "/order?lose=1&slow=400ms&fold=no",
		help: "places an order; the same key gives the same order unless fold=no; the first lose answers of an order are lost by RST",
		do:   placeOrder,
	},
	{
		path: "/outage", usage: "/outage?for=3s",
		help: "from now on, for so long, everything answers 503",
		calm: true,
		do:   outage,
	},
	{
		path: "/effects", usage: "/effects",
		help: "JSON: requests on the wire, effects, the newest requests",
		calm: true,
		do:   effects,
	},
	{
		path: "/echo", usage: "/echo",
		help: "the request line, header and body as they came",
		calm: true,
		do:   echo,
	},
}

// serve answers the request as its path says.
func (x *exchange) serve() {
	b, arg := x.behaviour()
	if !b.early && x.readBody() != nil {
		x.close()
		return
	}
	switch {
	case x.up.down() && !b.calm:
		x.answer(503, "down: an outage is being played\n")
	case b.fault && x.healed():
		if b.early && x.readBody() != nil {
			x.close()
			return
		}
		x.heal()
	default:
		b.do(x, arg)
	}
}

func (x *exchange) behaviour() (b behaviour, arg string) {
	for _, b := range behaviours {
		rest, ok := strings.CutPrefix(x.path, b.path)
		if ok && (rest == "" || strings.HasSuffix(b.path, "/")) {
			return b, rest
		}
	}
	return behaviour{calm: true, do: index}, ""
}

func (u *Upstream) down() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.ledger.downUntil)
}

// healed says whether a faulty path is to behave this time. Without times it
// heals never, but for /fail and /retry-after, which have a number of their own.
func (x *exchange) healed() bool {
	usual := map[string]int{"fail": 2, "retry-after": 1}
	kind, _, _ := strings.Cut(strings.TrimPrefix(x.path, "/"), "/")
	times := x.number("times", usual[kind])
	if times <= 0 {
		return false
	}
	x.up.mu.Lock()
	defer x.up.mu.Unlock()
	if x.up.ledger.fails(x.id(), times) {
		return false
	}
	x.up.ledger.restart(x.id())
	return true
}

func (x *exchange) heal() {
	if then := x.number("then", 200); then != 200 {
		x.answer(then, http.StatusText(then)+"\n")
		return
	}
	ok(x, "")
}

// id names the row of failures a request belongs to.
func (x *exchange) id() string {
	if id := x.query.Get("id"); id != "" {
		return id
	}
	return x.path + " " + x.key()
}

func (x *exchange) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(x.query.Get(name)); err == nil {
		return n
	}
	return otherwise
}

func (x *exchange) duration(name string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(x.query.Get(name)); err == nil {
		return d
	}
	return otherwise
}

// act does what the request asks for, unless it only reads.
func (x *exchange) act() (o order, folded bool) {
	switch x.method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return order{}, false
	}
	x.up.mu.Lock()
	defer x.up.mu.Unlock()
	return x.up.ledger.act(x.key(), x.query.Get("fold") != "no")
}

func ok(x *exchange, _ string) {
	x.act()
	x.answer(200, "{\"ok\":true}\n")
}

func status(x *exchange, arg string) {
	code, err := strconv.Atoi(arg)
	if err != nil || code < 200 || code > 999 {
		x.answer(400, "the path must end in a status, such as 503\n")
		return
	}
	x.answer(code, fmt.Sprintf("%d, as asked for\n", code))
}

func retryAfter(x *exchange, arg string) {
	x.answer(x.number("status", 429), "not now\n", "Retry-After: "+strings.Map(noControl, arg))
}

// noControl keeps line ends of a decoded path out of a header.
func noControl(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

func stall(x *exchange, _ string) {
	x.act()
	if !x.up.pause(x.duration("for", 30*time.Second)) {
		x.close()
		return
	}
	x.answer(200, "{\"ok\":true,\"late\":true}\n")
}

func truncate(x *exchange, _ string) {
	x.act()
	x.raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 300))
	x.close()
}

func suspect(x *exchange, _ string) {
	x.answer(200, "{\"success\":false,\"error_code\":50001,\"error_msg\":\"system busy\"}\n")
}

func slow(x *exchange, _ string) {
	if !x.up.pause(time.Duration(x.number("ms", 200)) * time.Millisecond) {
		x.close()
		return
	}
	ok(x, "")
}

func placeOrder(x *exchange, _ string) {
	if x.method == http.MethodGet || x.method == http.MethodHead {
		effects(x, "")
		return
	}
	o, folded := x.act()
	if !x.up.pause(x.duration("slow", 0)) || x.loses(o) {
		x.reset()
		return
	}
	reply, _ := json.Marshal(struct {
		order
		Again bool `json:"already_placed,omitempty"`
	}{o, folded})
	x.answer(201, string(reply)+"\n")
}

// loses says whether this answer to an order gets lost on its way.
func (x *exchange) loses(o order) bool {
	lose := x.number("lose", 0)
	if lose <= 0 {
		return false
	}
	x.up.mu.Lock()
	defer x.up.mu.Unlock()
	return x.up.ledger.fails("order "+o.ID, lose)
}

func outage(x *exchange, _ string) {
	d := x.duration("for", 3*time.Second)
	x.up.Outage(d)
	x.answer(200, fmt.Sprintf("down for %v from now\n", d))
}

func effects(x *exchange, _ string) {
	x.up.mu.Lock()
	reply, _ := json.MarshalIndent(struct {
		Requests int    `json:"requests"`
		Effects  int    `json:"effects"`
		Recent   []seen `json:"recent"`
	}{x.up.ledger.requests, x.up.ledger.effects, x.up.ledger.recent}, "", "  ")
	x.up.mu.Unlock()
	x.answer(200, string(reply)+"\n")
}

func echo(x *exchange, _ string) {
	x.answer(200, x.line+"\r\n"+strings.Join(x.fields, "\r\n")+"\r\n\r\n"+string(x.body))
}

// index lists the behaviours: at / as 200, at a path that is none as 404.
func index(x *exchange, _ string) {
	code := 200
	if x.path != "/" && x.path != "" {
		code = 404
	}
	var b strings.Builder
	b.WriteString("The misbehaving upstream: ask for trouble by path.\n\n")
	for _, known := range behaviours {
		fmt.Fprintf(&b, "  %-36s %s\n", known.usage, known.help)
	}
	b.WriteString("\nWith times=n a faulty path behaves after n requests of the same id (id=X, else the path and key).\n" +
		"Effects are counted for every method that writes; requests with one X-Idempotency-Key have one effect together, unless fold=no.\n")
	x.answer(code, b.String())
}
