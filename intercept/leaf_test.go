package intercept

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func parsed(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// leafOf gives the parsed certificate for a host.
func leafOf(t testing.TB, a *Authority, host string, now time.Time) *x509.Certificate {
	t.Helper()
	c, err := a.Leaf(host, now)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, c.Certificate[0])
}

func TestLeafNames(t *testing.T) {
	a := open(t)
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label[:61]}, ".")
	tests := []struct{ host, cn string }{
		{"gw-api.pinduoduo.com", "gw-api.pinduoduo.com"},
		{"localhost", "localhost"},
		{"r3---sn_a.test", "r3---sn_a.test"},
		{"xn--fiq228c.test", "xn--fiq228c.test"},
		{strings.Repeat("a", 59) + ".test", strings.Repeat("a", 59) + ".test"},
		{label + ".b", ""},
		{long, ""},
		{"192.0.2.7", "192.0.2.7"},
		{"2001:db8::1", "2001:db8::1"},
	}
	for _, test := range tests {
		t.Run(test.host, func(t *testing.T) {
			c := leafOf(t, a, test.host, time.Now())
			if _, err := c.Verify(x509.VerifyOptions{DNSName: test.host, Roots: pool(t, a)}); err != nil {
				t.Errorf("a client: %v", err)
			}
			if c.Subject.CommonName != test.cn {
				t.Errorf("common name = %q, want %q", c.Subject.CommonName, test.cn)
			}
			if n := len(c.DNSNames) + len(c.IPAddresses); n != 1 || c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
				t.Errorf("names %v %v, CA %v, usage %v; want one name of a server", c.DNSNames, c.IPAddresses, c.IsCA, c.KeyUsage)
			}
		})
	}
}

func TestLeafRefuses(t *testing.T) {
	a := open(t)
	label := strings.Repeat("a", 63)
	for _, host := range []string{
		"", ".", "*", "*.test", "a.test.", ".a.test", "a..test", "A.test", "a b.test", "a\x00.test", "a/test", "a,b", "-a.test",
		"é.test", "[2001:db8::1]", "fe80::1%eth0", "a.test:443", "127.1", "1.2.3.4.5", "0x7f.0x1", "256.1.1.1",
		label + "a.test", strings.Join([]string{label, label, label, label}, "."),
	} {
		if _, err := a.Leaf(host, time.Now()); !errors.Is(err, ErrHost) {
			t.Errorf("Leaf(%q) = %v, want ErrHost", host, err)
		}
	}
	if n := a.hosts.Len(); n != 0 {
		t.Errorf("%d of them are kept", n)
	}
}

func TestLeafLife(t *testing.T) {
	a := open(t)
	now := time.Now().Truncate(time.Second)
	first := leafOf(t, a, "a.test", now)
	if want := now.Add(-48 * time.Hour); !first.NotBefore.Equal(want) {
		t.Errorf("NotBefore = %v, want %v", first.NotBefore, want)
	}
	if want := now.Add(7 * 24 * time.Hour); !first.NotAfter.Equal(want) {
		t.Errorf("NotAfter = %v, want %v", first.NotAfter, want)
	}
	if leafOf(t, a, "b.test", now).SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Error("two hosts have the same serial")
	}
	renewal := now.Add(112 * time.Hour) // a third of 168 h is left
	tests := []struct {
		name string
		at   time.Time
		same bool
	}{
		{"at once", now, true},
		{"just before a third is left", renewal.Add(-1), true},
		{"when a third is left", renewal, false},
		{"when the clock was put back", now.Add(-49 * time.Hour), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := open(t)
			first := leafOf(t, a, "a.test", now)
			later := leafOf(t, a, "a.test", test.at)
			if same := later.SerialNumber.Cmp(first.SerialNumber) == 0; same != test.same {
				t.Errorf("at %v the same certificate = %v, want %v", test.at, same, test.same)
			}
		})
	}
}

// No certificate outlives the authority, and near its end none is made anew.
func TestLeafEndsWithAuthority(t *testing.T) {
	a := open(t)
	near := a.NotAfter().Add(-time.Hour)
	first := leafOf(t, a, "a.test", near)
	if !first.NotAfter.Equal(a.NotAfter()) {
		t.Errorf("NotAfter = %v, the authority's is %v", first.NotAfter, a.NotAfter())
	}
	if last := leafOf(t, a, "a.test", a.NotAfter().Add(-1)); last.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("it was renewed, but cannot last longer")
	}
	if _, err := a.Leaf("a.test", a.NotAfter()); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("Leaf after the end = %v, want that the authority expired", err)
	}
}

func TestLeafAtOnce(t *testing.T) {
	a := open(t)
	var signed sync.Map
	sign := a.signer.sign
	count := 0
	var mu sync.Mutex
	a.signer.sign = func(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
		mu.Lock()
		count++
		mu.Unlock()
		return sign(random, digest, opts)
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := range 4 {
				host := fmt.Sprintf("h%d.test", i)
				c, err := a.Leaf(host, time.Now())
				if err != nil {
					t.Error(err)
					return
				}
				if other, _ := signed.LoadOrStore(host, c); other != c {
					t.Errorf("two certificates for %s", host)
				}
			}
		})
	}
	wg.Wait()
	if count != 4 {
		t.Errorf("signed %d times for 4 hosts", count)
	}
}

// One host that is being signed does not hold up another.
func TestLeafSigningLocksItsHostOnly(t *testing.T) {
	a := open(t)
	a.entry("slow.test").mu.Lock()
	leafOf(t, a, "quick.test", time.Now())
	a.entry("slow.test").mu.Unlock()
}

func TestLeafOfRarerHostsIsDropped(t *testing.T) {
	a := open(t)
	a.hosts.Resize(2)
	now := time.Now()
	first := leafOf(t, a, "a.test", now)
	leafOf(t, a, "b.test", now)
	if leafOf(t, a, "a.test", now).SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("a.test did not keep its certificate")
	}
	leafOf(t, a, "c.test", now)
	if a.hosts.Contains("b.test") || !a.hosts.Contains("a.test") {
		t.Errorf("kept %v, want a.test and c.test", a.hosts.Keys())
	}
}

func TestMemory(t *testing.T) {
	a := open(t)
	now := time.Now()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range maxHosts + 500 {
		if _, err := a.Leaf(fmt.Sprintf("shop-%d.merchants.platform.example", i), now); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.hosts.Len(); n != maxHosts {
		t.Errorf("%d hosts are kept, want %d", n, maxHosts)
	}
	used := int64(heap()) - int64(before)
	t.Logf("%d hosts: %.1f MiB", maxHosts, float64(used)/(1<<20))
	if used > 60<<20 {
		t.Errorf("%d hosts take %d MiB, want less than 60", maxHosts, used>>20)
	}
	runtime.KeepAlive(a)
}

// FuzzLeaf: what we sign is what a client then accepts, or nothing.
func FuzzLeaf(f *testing.F) {
	for _, host := range []string{"a.test", "127.0.0.1", "::1", "*.a", "a..b", "a.", "::ffff:1.2.3.4", "0.0.0.0x1", "_a.b-"} {
		f.Add(host)
	}
	a := open(f)
	now := time.Now()
	f.Fuzz(func(t *testing.T, host string) {
		c, err := a.Leaf(host, now)
		if errors.Is(err, ErrHost) {
			return
		}
		if err != nil {
			t.Fatalf("Leaf(%q) = %v", host, err)
		}
		if err = parsed(t, c.Certificate[0]).VerifyHostname(host); err != nil {
			t.Errorf("Leaf(%q): a client says %v", host, err)
		}
	})
}

func BenchmarkLeaf(b *testing.B) {
	a := open(b)
	now := time.Now()
	b.Run("minted", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := a.Leaf(fmt.Sprintf("shop-%d.example", i), now); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Leaf("shop.example", now); err != nil {
				b.Fatal(err)
			}
		}
	})
}
