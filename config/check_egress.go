package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// intercept checks which tunnels are opened; the files are read by whoever uses
// them, since they may be made on first use.
func (c *checker) intercept(i *Intercept) {
	switch {
	case i.CACert == "" && i.CAKey != "":
		c.fail("intercept.ca_cert", "is missing; it and ca_key go together")
	case i.CACert != "" && i.CAKey == "":
		c.fail("intercept.ca_key", "is missing; it and ca_cert go together")
	}
	c.hostPatterns("intercept.hosts", i.Hosts)
}

// egress checks the rules and that shops name some of them.
func (c *checker) egress(conf *Config) {
	c.oneOf("egress_default", conf.EgressDefault, directEgress, "deny")
	names := map[string]string{}
	for i := range conf.Egress {
		e, path := &conf.Egress[i], fmt.Sprintf("egress[%d]", i)
		c.label(path+".name", e.Name)
		if e.Name != "" {
			c.unique(names, e.Name, path+".name")
		}
		c.match(path+".match", &Match{Shop: e.Match.Shop, Host: e.Match.Host, TaskType: e.Match.TaskType})
		c.proxies(path, e)
		for j, endpoint := range e.Endpoints() {
			if endpoint.Host != "" { // else it could not be read
				c.credentials(path, j, e, endpoint)
			}
		}
	}
	for name, shop := range conf.Shops {
		if shop.Egress != "" && names[shop.Egress] == "" {
			c.fail(join("shops", name)+".egress", "%q is not the name of an egress rule", shorten(shop.Egress))
		}
	}
}

// proxies checks that a rule says where to and what to do when that fails.
func (c *checker) proxies(path string, e *Egress) {
	switch {
	case len(e.Pool) > 0 && !e.Proxy.empty():
		c.fail(path+".pool", "a rule has a proxy or a pool, not both")
	case len(e.Pool) == 0 && e.Proxy.empty():
		c.fail(path+".proxy", "a rule needs a proxy (a URL or direct) or a pool")
	case len(e.Pool) == 1:
		c.fail(path+".pool", "a pool has two members or more; a single one is a proxy")
	case e.Direct() && (e.User != "" || e.Password != ""):
		c.fail(path+".proxy", "is direct, so there is nobody to give a user and a password to")
	}
	c.pool(path, e)
	c.oneOf(path+".on_failure", e.OnFailure, "stay", "next")
	if e.OnFailure == "next" && len(e.Pool) == 0 {
		c.fail(path+".on_failure", "next needs a pool")
	}
	if len(e.Pool) > 0 {
		c.oneOf(path+".sticky", e.Sticky, "shop")
	} else if e.Sticky != "" {
		c.fail(path+".sticky", "is for a pool")
	}
}

// pool checks that no two members are the same address, by whatever protocol.
func (c *checker) pool(path string, e *Egress) {
	if len(e.Pool) == 0 {
		return
	}
	seen := map[Endpoint]int{}
	for i, p := range e.Endpoints() {
		at, same := fmt.Sprintf("%s.pool[%d]", path, i), Endpoint{Host: p.Host, Port: p.Port, User: p.User}
		first, again := seen[same]
		switch {
		case p.Host == "":
			c.fail(at, "a member of a pool is a URL")
		case again:
			c.fail(at, "is the same proxy under the same user as pool[%d]", first)
		default:
			seen[same] = i
		}
	}
}

// braces is a placeholder, right or wrong.
var braces = regexp.MustCompile(`\{[^{}]*\}`)

// half is a placeholder with one brace only. Other single braces are text: a
// password may well have one, and there is no other way to write it.
var half = regexp.MustCompile(`\{(?:shop|task_type)|(?:shop|task_type)\}`)

// halfName is the same for a user, where any name beside a brace is meant as one.
var halfName = regexp.MustCompile(`\{[A-Za-z]|[A-Za-z]\}`)

const (
	longestLogin = 255 // what SOCKS5 can carry, RFC 1929 section 2
	leastLabel   = 34  // what a label is shortened to at most
)

// credentials checks what the rule's proxy number i is told. No message repeats
// any of it.
func (c *checker) credentials(path string, i int, e *Egress, p Endpoint) {
	at := path + ".proxy"
	if len(e.Pool) > 0 {
		at = fmt.Sprintf("%s.pool[%d]", path, i)
	}
	user, password := at, at
	if e.User != "" {
		user = path + ".user"
	}
	if e.Password != "" {
		password = path + ".password"
	}
	c.credential(user, "user", p.Scheme, p.User)
	c.credential(password, "password", p.Scheme, p.Password)
	switch {
	case p.User == "" && p.Password != "":
		c.fail(password, "a password needs a user")
	case !isSOCKS(p.Scheme) && strings.Contains(p.User, ":"):
		c.fail(user, "a user of an HTTP proxy has no colon")
	}
}

// credential checks a user or a password.
func (c *checker) credential(path, what, scheme, value string) {
	names := braces.FindAllString(value, -1)
	for _, name := range names {
		if name != "{shop}" && name != "{task_type}" {
			c.fail(path, "the %s may hold {shop} and {task_type}, and no other {name}", what)
			break
		}
	}
	rest := braces.ReplaceAllString(value, "")
	switch {
	case half.MatchString(rest), what == "user" && halfName.MatchString(rest):
		c.fail(path, "the %s holds a brace without the other one; a placeholder is {shop} or {task_type}", what)
	case strings.ContainsFunc(value, unicode.IsControl):
		c.fail(path, "the %s holds a control character", what)
	case len(names) > 0 && len(rest)+leastLabel*len(names) > longestLogin:
		c.fail(path, "the %s leaves no room for its placeholders: all may be %d bytes, %d for each of them", what, longestLogin, leastLabel)
	case isSOCKS(scheme) && len(value) > longestLogin:
		c.fail(path, "the %s is longer than the %d bytes that SOCKS5 takes", what, longestLogin)
	}
}

func isSOCKS(scheme string) bool { return strings.HasPrefix(scheme, "socks5") }
