package config

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/policy"
)

// Secret is a value that is never printed. In the file it may be written as
// file:/path, then it is that file's content without the final line break.
type Secret string

// hiddenSecret stands where a secret would.
const hiddenSecret = "<secret>"

// String hides the value, also from logs.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hiddenSecret
}

// Patterns is a list of globs; in the file also a single one.
type Patterns []string

// Names is a list of names; in the file also a single one.
type Names []string

// Statuses are status codes and classes of them, such as 5xx.
type Statuses []string

// set is what s means; Validate has checked it.
func (s Statuses) set() classify.StatusSet {
	set, _ := classify.ParseStatuses(s)
	return set
}

// Hours is a list of hour ranges; in the file also a single one.
type Hours []policy.HourRange

// Size is a number of bytes.
type Size int64

// units of sizes, the largest first.
var units = []struct {
	name  string
	bytes Size
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// wantError says what a value should look like; the value itself is added
// where it may be shown.
type wantError string

func (e wantError) Error() string { return string(e) }

const errSize = wantError("want a size such as 256KiB, 64MiB or a number of bytes")

// parseSize reads 64MiB or plain bytes.
func parseSize(text string) (Size, error) {
	unit := Size(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = strings.TrimSpace(number), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || Size(n) > math.MaxInt64/unit {
		return 0, errSize
	}
	return Size(n) * unit, nil
}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units {
		if s > 0 && u.bytes > 1 && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

const errDuration = wantError("want a duration such as 500ms, 1s or 5m, or a number of seconds")

// parseDuration reads a Go duration, days (30d) or bare seconds.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		return seconds(days, 24*3600)
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return seconds(text, 1)
}

// seconds reads a decimal number of units of so many seconds.
func seconds(number string, unit float64) (time.Duration, error) {
	f, err := parseNumber(number)
	if err != nil || f*unit > math.MaxInt64/1e9 {
		return 0, errDuration
	}
	return time.Duration(math.Round(f * unit * 1e9)), nil
}

// parseNumber reads a plain decimal number, not below 0; no hex, no infinity.
func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "xXpPnN_") || f < 0 {
		return 0, strconv.ErrSyntax
	}
	return f, nil
}

// durationText writes 5m0s as 5m.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

const errPrefix = wantError("want an address or a prefix such as 10.0.0.0/8")

// parsePrefix reads a prefix or a single address, IPv4-mapped ones as IPv4.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, addrErr := netip.ParseAddr(text)
		if addrErr != nil || a.Zone() != "" {
			return netip.Prefix{}, errPrefix
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits behind its length; write %s", text, p.Masked())
	}
	return p, nil
}

const errHourRange = wantError("want hours such as 2-6 (from 2:00 until before 6:00) or 22-6 (over midnight)")

// parseHours reads 2-6.
func parseHours(text string) (policy.HourRange, error) {
	from, to, _ := strings.Cut(text, "-")
	f, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 8)
	t, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 8)
	r := policy.HourRange{From: int(f), To: int(t)}
	if err1 != nil || err2 != nil || r.Validate() != nil {
		return policy.HourRange{}, errHourRange
	}
	return r, nil
}
