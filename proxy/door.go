package proxy

import (
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"retryproxy/access"
	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/policy"
	"retryproxy/upstream"
)

// enter answers a call that may not come in, in the order in which a client
// should learn of it: a broken request, who it is, what it asks for.
func (x *exchange) enter() *refusal {
	if b := x.call.Bad; b != nil {
		return refuse(b.Reason, b.Detail)
	}
	if r := x.identify(); r != nil {
		return r
	}
	switch named, answered := x.forUs(); {
	case answered:
		x.mode = "local"
		return nil
	case named: // it must not be looked for elsewhere
		return refuse("bad_request", internalHost+" is this proxy itself, and answers to http:// at port 80 only")
	}
	if strings.HasPrefix(x.call.Request.Target, receiptPath) && x.call.Form != inbound.Authority {
		return x.ownReceipt()
	}
	if x.asksUs() {
		return x.ourName()
	}
	return x.understand()
}

// asksUs says whether the request is about this server and goes nowhere:
// OPTIONS * in origin-form (RFC 9110 section 9.3.7).
func (x *exchange) asksUs() bool {
	return x.call.Form == inbound.Asterisk && x.call.Tunnel == nil
}

// ownReceipt makes a request for a receipt one that we answer, whatever the host: a
// relative Location then works in every mode.
func (x *exchange) ownReceipt() *refusal {
	if x.reverseForm() {
		if r := x.ourName(); r != nil {
			return r
		}
	}
	x.mode = "local"
	return nil
}

// ourName refuses a Host that is not ours (DNS rebinding).
func (x *exchange) ourName() *refusal {
	x.mode = "reverse"
	if a := x.call.Request.Authority; !x.set.Clients.AllowedHost(a) {
		return notServed(a)
	}
	return nil
}

// understand settles where the call goes, whose it is and by which rules it lives.
func (x *exchange) understand() *refusal {
	for _, step := range [...]func() *refusal{x.route, x.checkLoop, x.labelled, x.chooseSide, x.chooseExits, x.choosePolicy, x.readKey, x.chooseVariant} {
		if r := step(); r != nil {
			return r
		}
	}
	return nil
}

// identify reads who calls: a configured user or idempotency.NoTenant in particular.
func (x *exchange) identify() *refusal {
	credentials, ours := x.credentials()
	user, labels, err := x.set.Clients.Authenticate(credentials)
	if err != nil {
		return refuse("auth_required", err.Error())
	}
	x.user, x.userLabels, x.login = user, labels, ours
	return nil
}

// credentials are those of the call, or of the CONNECT it came in through. ours
// says that they stand in Authorization, where else those for the upstream are.
func (x *exchange) credentials() (value string, ours bool) {
	if t := x.call.Tunnel; t != nil {
		return t.ProxyAuth, false
	}
	if v := x.call.Request.Fields.Get("Proxy-Authorization"); v != "" || x.call.Form != inbound.Origin {
		return v, false
	}
	if !x.set.Clients.HasUsers() {
		return "", false // reverse: Authorization belongs to the upstream
	}
	return x.call.Request.Fields.Get("Authorization"), true
}

// checkLoop sees our own process in Via.
func (x *exchange) checkLoop() *refusal {
	if x.looped() {
		return refuse("loop", "the request already passed through this proxy (Via)")
	}
	return nil
}

// labelled merges the labels of user entry, listener, user name and header.
func (x *exchange) labelled() *refusal {
	if name := x.ambiguous(); name != "" {
		return refuse("bad_request", "two different values of "+name+": which one is meant decides by whose account and address the call goes")
	}
	labels, err := access.MergeLabels(x.user.Labels, x.call.Listener.Labels, x.userLabels, x.sentLabels())
	if err != nil {
		return x.deniedBy(err)
	}
	x.labels = labels
	return x.tierOfShop()
}

// tierOfShop takes the tier from the shops table where neither user nor listener
// has one; a bot cannot claim another.
func (x *exchange) tierOfShop() *refusal {
	tier := x.set.Shops[x.labels.Shop].Tier
	if tier == "" || x.user.Labels.ShopTier != "" || x.call.Listener.Labels.ShopTier != "" {
		return nil
	}
	if x.labels.ShopTier != "" && x.labels.ShopTier != tier {
		return refuse("client_denied", "the shop tier contradicts the one configured in shops")
	}
	x.labels.ShopTier = tier
	return nil
}

// ambiguous names a label header that says two things; empty: none does. For the
// shop the CONNECT that the request came through counts as well.
func (x *exchange) ambiguous() string {
	h := &x.set.Headers
	for _, name := range [...]string{h.Shop, h.ShopTier, h.Task} {
		said := ""
		if t := x.call.Tunnel; t != nil && name == h.Shop {
			said = t.Fields.Get(name)
		}
		f := x.call.Request.Fields
		for i := range f {
			switch v := f[i].Value; {
			case len(f[i].Name) != len(name) || !strings.EqualFold(f[i].Name, name) || v == "":
			case said == "":
				said = v
			case said != v:
				return name
			}
		}
	}
	return ""
}

// sentLabels are those in the header, else in that of the CONNECT.
func (x *exchange) sentLabels() attempt.Labels {
	h, f := &x.set.Headers, x.call.Request.Fields
	sent := attempt.Labels{Shop: f.Get(h.Shop), ShopTier: f.Get(h.ShopTier), TaskType: f.Get(h.Task)}
	if t := x.call.Tunnel; t != nil {
		sent = orLabels(sent, attempt.Labels{Shop: t.Fields.Get(h.Shop), ShopTier: t.Fields.Get(h.ShopTier), TaskType: t.Fields.Get(h.Task)})
	}
	return sent
}

// orLabels fills what a leaves out from b.
func orLabels(a, b attempt.Labels) attempt.Labels {
	if a.Shop == "" {
		a.Shop = b.Shop
	}
	if a.ShopTier == "" {
		a.ShopTier = b.ShopTier
	}
	if a.TaskType == "" {
		a.TaskType = b.TaskType
	}
	return a
}

// deniedBy turns an error about client or destination into our answer.
func (x *exchange) deniedBy(err error) *refusal {
	switch {
	case errors.Is(err, access.ErrLoop), errors.Is(err, upstream.ErrLoop):
		return refuse("loop", err.Error())
	case errors.Is(err, access.ErrClient):
		return refuse("client_denied", err.Error())
	case errors.Is(err, access.ErrBadTarget), errors.Is(err, upstream.ErrTarget):
		return refuse("bad_request", err.Error())
	}
	return refuse("destination_denied", err.Error())
}

// choosePolicy reads the rules the call lives by, once.
func (x *exchange) choosePolicy() *refusal {
	path, _, _ := strings.Cut(x.hops[0].path, "?")
	x.attrs = policy.Attrs{
		TaskType: x.labels.TaskType, Shop: x.labels.Shop, ShopTier: x.labels.ShopTier,
		Host: x.hops[0].host, Path: path, Method: x.call.Request.Method,
	}
	x.policy = x.set.Policies.Match(&x.attrs, x.call.Received)
	x.readCount()
	return nil
}

// chooseVariant settles on a variant of the policy, by the key where there is one: a
// repeat lives by the same.
func (x *exchange) chooseVariant() *refusal {
	if len(x.policy.Variants) > 0 {
		x.policy = x.policy.Arm(x.tenant(), x.jitterID())
	}
	return nil
}

// readCount reads how often the client itself has retried.
func (x *exchange) readCount() {
	values := x.call.Request.Fields.Values(x.set.Headers.RetryCount)
	if len(values) == 0 {
		return
	}
	n, ok := attempt.ParseCount(values)
	if !ok {
		x.p.ignored("retry_count")
		return
	}
	x.count = n
}

// readKey reads the idempotency key; a bad one is refused before anything is sent.
func (x *exchange) readKey() *refusal {
	if x.mode == "connect" {
		return nil
	}
	var values []string
	for i := range x.call.Request.Fields {
		f := &x.call.Request.Fields[i]
		if contains(x.set.Headers.Keys, f.Name) {
			values = append(values, f.Value)
		}
	}
	if values == nil {
		return nil
	}
	var err error
	if x.key, _, err = idempotency.ParseKey(values); err != nil {
		return refuse("bad_request", err.Error())
	}
	return nil
}

// tenant is the part of a record's name that keeps strangers apart: the
// configured user or listener and the shop; never anything that changes between
// repeats, such as a token.
func (x *exchange) tenant() string {
	who := ""
	if x.user.Name != "" {
		who = "user=" + x.user.Name
	} else if x.call.Listener.Labels != (attempt.Labels{}) {
		who = "listener=" + x.call.Listener.Addr
	}
	if x.labels.Shop != "" {
		who += ";shop=" + x.labels.Shop
	}
	if who == "" {
		return idempotency.NoTenant
	}
	return who
}

// authorization is the hash that keeps strangers apart in tenant "-".
func (x *exchange) authorization(tenant string) (h [32]byte) {
	if tenant != idempotency.NoTenant {
		return h
	}
	values := x.call.Request.Fields.Values("Authorization")
	if len(values) == 0 {
		return h
	}
	return sha256.Sum256([]byte(strings.Join(values, "\n")))
}

// deadline reads X-Request-Timeout: it shortens the deadline, never lengthens it.
func (x *exchange) deadline() time.Duration {
	limit := x.policy.Deadline
	v := x.call.Request.Fields.Get(x.set.Headers.Timeout)
	if v == "" {
		return limit
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		var secs float64
		secs, err = strconv.ParseFloat(v, 64)
		d = time.Duration(min(secs, 1e9) * float64(time.Second))
	}
	if err != nil || d <= 0 {
		x.p.ignored("request_timeout")
		return limit
	}
	return min(d, limit)
}
