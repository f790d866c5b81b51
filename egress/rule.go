package egress

import (
	"fmt"
	"slices"

	"retryproxy/policy"
)

// rule is a compiled Rule. Its slices have an element for each proxy.
type rule struct {
	name    string
	match   *policy.Matcher // nil: used by name only
	proxies []Proxy
	members []uint64      // hashes in the pool
	users   []credentials // templates
	ready   []*Exit       // nil for a proxy with placeholders
	next    bool

	needsShop, needsTaskType bool
	errShop, errTaskType     error // what a call without the label hears
}

// credentials are the templates of one proxy.
type credentials struct{ user, password template }

// newCredentials are those of a Proxy that was checked.
func newCredentials(p Proxy) credentials {
	user, _ := newTemplate(p.User)
	password, _ := newTemplate(p.Password)
	return credentials{user, password}
}

func (c credentials) needs(place string) bool { return c.user.needs(place) || c.password.needs(place) }

// newRule compiles a Rule that was checked. keep gives the exit of an identity
// that no call changes.
func newRule(r Rule, keep func(identity) *Exit) *rule {
	c := &rule{name: r.Name, proxies: slices.Clone(r.Proxies), next: r.OnFailure == Next}
	if !r.Match.zero() {
		// Only hours can be wrong, and there are none.
		c.match, _ = policy.NewMatcher(policy.Match{Shop: r.Match.Shop, TaskType: r.Match.TaskType, Host: r.Match.Host}, nil)
	}
	for i, p := range r.Proxies {
		u := newCredentials(p)
		c.users = append(c.users, u)
		c.members = append(c.members, member(r.Name, p))
		c.needsShop = c.needsShop || u.needs(placeShop)
		c.needsTaskType = c.needsTaskType || u.needs(placeTaskType)
		var ready *Exit
		if u.user.fixed() && u.password.fixed() {
			ready = keep(c.identity(i, "", ""))
		}
		c.ready = append(c.ready, ready)
	}
	c.errShop = fmt.Errorf("%w: egress rule %q names {shop} and the call has none", ErrDenied, r.Name)
	c.errTaskType = fmt.Errorf("%w: egress rule %q names {task_type} and the call has none", ErrDenied, r.Name)
	return c
}

// place tells a member from others at its address; 0: there are none.
func (r *rule) place(i int) int {
	addr := r.proxies[i].addr()
	for j := range r.proxies {
		if j != i && r.proxies[j].addr() == addr {
			return i + 1
		}
	}
	return 0
}

// exits are the rule's for a call, in order.
func (r *rule) exits(t *Table, shop, taskType string) []*Exit {
	switch {
	case len(r.proxies) == 0:
		return nil
	case r.next:
		out := make([]*Exit, 0, len(r.proxies))
		for _, i := range order(r.members, shop) {
			out = append(out, r.exit(t, i, shop, taskType))
		}
		return out
	}
	i := 0
	if len(r.proxies) > 1 {
		i = best(r.members, shop)
	}
	if r.ready[i] != nil {
		return r.ready[i : i+1 : i+1]
	}
	return []*Exit{r.exit(t, i, shop, taskType)}
}

func (r *rule) exit(t *Table, i int, shop, taskType string) *Exit {
	if e := r.ready[i]; e != nil {
		return e
	}
	return t.exit(r.identity(i, shop, taskType))
}

// identity is that of proxy i for a call with these labels.
func (r *rule) identity(i int, shop, taskType string) identity {
	id := identity{rule: r.name, proxy: r.proxies[i], place: r.place(i)}
	user := r.users[i].user
	id.proxy.User = user.render(shop, taskType)
	id.proxy.Password = r.users[i].password.render(shop, taskType)
	if user.needs(placeShop) {
		id.shop = bounded(shop, shownLabel)
	}
	if user.needs(placeTaskType) {
		id.taskType = bounded(taskType, shownLabel)
	}
	return id
}

// shownLabel bounds a label in the name of an exit.
const shownLabel = 64
