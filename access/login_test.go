package access

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"retryproxy/attempt"
)

// quick is a hash of the least cost, so that tests do not take long.
func quick(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func basic(userinfo string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))
}

func TestAuthenticateWithoutUsers(t *testing.T) {
	c := newClients(t, ClientsConfig{})
	for _, x := range []struct {
		header string
		want   attempt.Labels
	}{
		{"", attempt.Labels{}},
		{basic("shop=17;task=order_ship:x"), attempt.Labels{Shop: "17", TaskType: "order_ship"}},
		{"basic  " + strings.TrimPrefix(basic("tier=vip:"), "Basic "), attempt.Labels{ShopTier: "vip"}},
		{basic("bot:secret"), attempt.Labels{}},
		{basic("shop=17"), attempt.Labels{Shop: "17"}},
		{"Bearer abc", attempt.Labels{}},
		{"Basic ???", attempt.Labels{}},
	} {
		user, labels, err := c.Authenticate(x.header)
		if user != (User{}) || labels != x.want || err != nil {
			t.Errorf("Authenticate(%q) = %v, %+v, %v, want no user, %+v, nil", x.header, user, labels, err, x.want)
		}
	}
	if c.HasUsers() {
		t.Error("HasUsers = true, want false")
	}
}

func TestAuthenticate(t *testing.T) {
	c := newClients(t, ClientsConfig{Users: []User{
		{Name: "bot1", Hash: quick(t, "pa:ss"), Labels: attempt.Labels{Shop: "s1"}},
		{Name: "bot2", Hash: quick(t, "two")},
	}})
	if !c.HasUsers() {
		t.Error("HasUsers = false, want true")
	}
	for _, x := range []struct {
		header, user string
		labels       attempt.Labels
	}{
		{basic("bot1:pa:ss"), "bot1", attempt.Labels{}},
		{basic("bot1;task=report:pa:ss"), "bot1", attempt.Labels{TaskType: "report"}},
		{basic("bot2:two"), "bot2", attempt.Labels{}},
		{"", "", attempt.Labels{}},
		{basic("bot1:two"), "", attempt.Labels{}},
		{basic("bot2:"), "", attempt.Labels{}},
		{basic("bot3:two"), "", attempt.Labels{}},
		{basic("shop=17:x"), "", attempt.Labels{}},
		{basic("bot1"), "", attempt.Labels{}},
		{basic("bot1:" + strings.Repeat("x", 2000)), "", attempt.Labels{}},
		{"Bearer two", "", attempt.Labels{}},
		{"Basic", "", attempt.Labels{}},
		{"Basic ***", "", attempt.Labels{}},
	} {
		for range 2 { // the second time from what is remembered
			user, labels, err := c.Authenticate(x.header)
			if user.Name != x.user || labels != x.labels || errors.Is(err, ErrAuth) != (x.user == "") {
				t.Errorf("Authenticate(%.40q) = %q, %+v, %v, want %q, %+v", x.header, user.Name, labels, err, x.user, x.labels)
			}
		}
	}
	if user, _, _ := c.Authenticate(basic("bot1:pa:ss")); user.Labels.Shop != "s1" {
		t.Errorf("labels of bot1 = %+v, want shop s1", user.Labels)
	}
}

func TestNewClientsErrors(t *testing.T) {
	for _, users := range [][]User{
		{{Name: "a", Hash: "secret"}},
		{{Name: "a", Hash: quick(t, "x")}, {Name: "a", Hash: quick(t, "y")}},
	} {
		if _, err := NewClients(ClientsConfig{Users: users}); err == nil {
			t.Errorf("NewClients(%v) = nil, want an error", users)
		}
	}
}

// bcrypt is paid once for good credentials, however many come at once, and once
// for bad ones and for a name that does not exist.
func TestBcryptIsPaidOnce(t *testing.T) {
	for _, userinfo := range []string{"bot:pw", "bot:wrong", "nobody:pw"} {
		c := newClients(t, ClientsConfig{Users: []User{{Name: "bot", Hash: quick(t, "pw")}}})
		var paid atomic.Int32
		c.logins.bcrypt = func(hash, password []byte) error {
			paid.Add(1)
			return bcrypt.CompareHashAndPassword(hash, password)
		}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _, _ = c.Authenticate(basic(userinfo)) })
		}
		wg.Wait()
		if n := paid.Load(); n != 1 {
			t.Errorf("50 logins as %s ran bcrypt %d times, want 1", userinfo, n)
		}
	}
}

// A flood of wrong passwords is refused at the door, remembered logins still work.
func TestTooManyLogins(t *testing.T) {
	c := newClients(t, ClientsConfig{Users: []User{{Name: "bot", Hash: quick(t, "pw")}}})
	if _, _, err := c.Authenticate(basic("bot:pw")); err != nil {
		t.Fatal(err)
	}
	for _, lane := range c.logins.lanes {
		lane <- struct{}{} // every lane is busy
	}
	c.logins.bcrypt = func(_, _ []byte) error { return bcrypt.ErrMismatchedHashAndPassword }
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i := range maxLogins + 20 {
		wg.Go(func() {
			_, _, err := c.Authenticate(basic(fmt.Sprint("bot:wrong", i)))
			if !errors.Is(err, ErrAuth) {
				t.Errorf("Authenticate = %v, want ErrAuth", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(fmt.Sprint(err), "too many") {
				if refused++; refused == 20 {
					for _, lane := range c.logins.lanes {
						<-lane
					}
				}
			}
		})
	}
	if _, _, err := c.Authenticate(basic("bot:pw")); err != nil {
		t.Errorf("known credentials during the flood = %v, want nil", err)
	}
	wg.Wait()
	if refused < 20 {
		t.Errorf("%d logins were refused at the door, want at least 20", refused)
	}
}

func TestHashPassword(t *testing.T) {
	hash, err := HashPassword("secret")
	if err != nil || bcrypt.CompareHashAndPassword([]byte(hash), []byte("secret")) != nil {
		t.Errorf("HashPassword = %q, %v, want a hash of the password", hash, err)
	}
	for _, bad := range []string{"", strings.Repeat("x", 73)} {
		if hash, err := HashPassword(bad); err == nil || !strings.HasPrefix(err.Error(), "the password ") {
			t.Errorf("HashPassword of %d bytes = %q, %v, want an error for people", len(bad), hash, err)
		}
	}
}

func TestKnownCredentialsAreCheap(t *testing.T) {
	c := newClients(t, ClientsConfig{Users: []User{{Name: "bot", Hash: quick(t, "pw")}}})
	header := basic("bot;task=report:pw")
	_, _, _ = c.Authenticate(header)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.Authenticate(header) }); n > 2 {
		t.Errorf("Authenticate allocates %v times, want at most 2 (the decoded text)", n)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	c := newClients(b, ClientsConfig{Users: []User{{Name: "bot", Hash: quick(b, "pw")}}})
	header := basic("bot;task=report:pw")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.Authenticate(header); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	c := newClients(f, ClientsConfig{})
	f.Add(basic("shop=17:x"))
	f.Add("Basic =")
	f.Fuzz(func(t *testing.T, header string) {
		if user, _, err := c.Authenticate(header); err != nil || user.Name != "" {
			t.Errorf("Authenticate(%q) without users = %v, %v, want no user and no error", header, user, err)
		}
	})
}
