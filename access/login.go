package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/bcrypt"

	"retryproxy/attempt"
)

const (
	maxCredentials = 1024 // bytes of user name and password
	rememberedBad  = 4096 // wrong credentials that are refused without work
	maxLogins      = 128  // that may wait for their check; more are refused
	maxPassword    = 72   // bytes, all that bcrypt takes
	hashCost       = 10   // of HashPassword: some 50 ms, paid once per user and start
)

// digest names credentials without holding them: SHA-256 over a salt of this
// process and "name:password".
type digest [sha256.Size]byte

// logins checks passwords. bcrypt is slow on purpose, so what it found is
// remembered both ways, and only half of the processors are ever busy with it.
type logins struct {
	salt    [16]byte
	users   map[string]*account
	bad     *lru.Cache[digest, struct{}]
	unknown []byte // some user's hash: checking an unknown name takes as long
	lanes   []chan struct{}
	waiting atomic.Int32
	bcrypt  func(hash, password []byte) error
}

// account is a user and the digest of its credentials once they were checked.
type account struct {
	User
	verified atomic.Pointer[digest]
}

func newLogins(users []User) (*logins, error) {
	bad, err := lru.New[digest, struct{}](rememberedBad)
	if err != nil {
		return nil, fmt.Errorf("remember logins: %w", err)
	}
	l := &logins{users: map[string]*account{}, bad: bad, lanes: make([]chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), bcrypt: bcrypt.CompareHashAndPassword}
	for i := range l.lanes {
		l.lanes[i] = make(chan struct{}, 1)
	}
	rand.Read(l.salt[:])
	for _, u := range users {
		if _, err := bcrypt.Cost([]byte(u.Hash)); err != nil {
			return nil, fmt.Errorf("user %q: %w", u.Name, err)
		}
		if l.users[u.Name] != nil {
			return nil, fmt.Errorf("user %q is given twice", u.Name)
		}
		l.users[u.Name] = &account{User: u}
		l.unknown = []byte(u.Hash)
	}
	return l, nil
}

// HashPassword returns the bcrypt hash of a password for clients.users. It fails
// when the password is empty or longer than bcrypt takes.
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("the password is empty")
	}
	if len(password) > maxPassword {
		return "", fmt.Errorf("the password has %d bytes, more than %d", len(password), maxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return string(hash), nil
}

// Authenticate reads the value of Proxy-Authorization (Basic). With users
// configured it returns the one whose password fits and the labels behind its
// name ("bot1;task=report"), or ErrAuth. Without users any credentials are
// labels only, and what cannot be read is ignored.
func (c *Clients) Authenticate(proxyAuthorization string) (User, attempt.Labels, error) {
	if proxyAuthorization == "" && c.logins == nil {
		return User{}, attempt.Labels{}, nil
	}
	name, password, ok := parseBasic(proxyAuthorization)
	if c.logins == nil {
		return User{}, c.labels(name), nil
	}
	if !ok {
		return User{}, attempt.Labels{}, ErrAuth
	}
	user, rest, _ := strings.Cut(name, ";")
	u, err := c.logins.check(user, password)
	if err != nil {
		return User{}, attempt.Labels{}, err
	}
	return u, c.labels(rest), nil
}

// labels are those in a user name. Mistakes are told.
func (c *Clients) labels(name string) attempt.Labels {
	labels, mistakes := UserLabels(name)
	if mistakes > 0 && c.mislabelled != nil {
		c.mislabelled()
	}
	return labels
}

// parseBasic reads "Basic base64(name:password)" (RFC 7617).
func parseBasic(value string) (name, password string, ok bool) {
	scheme, encoded, _ := strings.Cut(strings.TrimSpace(value), " ")
	encoded = strings.TrimLeft(encoded, " ")
	if !strings.EqualFold(scheme, "Basic") || len(encoded) > base64.StdEncoding.EncodedLen(maxCredentials) {
		return "", "", false
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(plain), ":")
}

// check finds the user with this name and password.
func (l *logins) check(name, password string) (User, error) {
	a, d := l.users[name], l.digest(name, password)
	if a.knows(&d) {
		return a.User, nil
	}
	if l.bad.Contains(d) {
		return User{}, ErrAuth
	}
	if l.waiting.Add(1) > maxLogins {
		l.waiting.Add(-1)
		return User{}, fmt.Errorf("%w: too many logins are being checked, try again", ErrAuth)
	}
	defer l.waiting.Add(-1)
	return l.compare(a, password, d)
}

// compare runs bcrypt. The same credentials always take the same lane, so that
// whoever comes second finds what the first found out.
func (l *logins) compare(a *account, password string, d digest) (User, error) {
	lane := l.lanes[int(d[0])%len(l.lanes)]
	lane <- struct{}{}
	defer func() { <-lane }()
	if a.knows(&d) {
		return a.User, nil
	}
	if l.bad.Contains(d) {
		return User{}, ErrAuth
	}
	hash := l.unknown
	if a != nil {
		hash = []byte(a.Hash)
	}
	if err := l.bcrypt(hash, []byte(password)); err != nil || a == nil {
		l.bad.Add(d, struct{}{})
		return User{}, ErrAuth
	}
	a.verified.Store(&d)
	return a.User, nil
}

// knows says whether d are this user's credentials as they were checked before.
func (a *account) knows(d *digest) bool {
	if a == nil {
		return false
	}
	v := a.verified.Load()
	return v != nil && subtle.ConstantTimeCompare(v[:], d[:]) == 1
}

// digest needs no separator care: a name never holds a colon.
func (l *logins) digest(name, password string) digest {
	b := make([]byte, 0, 256)
	b = append(b, l.salt[:]...)
	b = append(b, name...)
	b = append(b, ':')
	b = append(b, password...)
	return sha256.Sum256(b)
}
