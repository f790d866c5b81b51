package classify

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrStatuses is wrapped by what ParseStatuses refuses.
var ErrStatuses = errors.New("neither a status from 100 to 599 nor a class such as 5xx")

// ParseStatuses reads status codes and classes of them: 408, 5xx.
func ParseStatuses(list []string) (StatusSet, error) {
	var set StatusSet
	for _, item := range list {
		first, last, ok := parseStatus(item)
		if !ok {
			return StatusSet{}, fmt.Errorf("classify: %q is %w", item, ErrStatuses)
		}
		for code := first; code <= last; code++ {
			set.Add(code)
		}
	}
	return set, nil
}

// parseStatus gives the first and the last code that item means.
func parseStatus(item string) (first, last int, ok bool) {
	digit, class := strings.CutSuffix(strings.ToLower(item), "xx")
	if class && len(digit) == 1 && digit >= "1" && digit <= "5" {
		first = int(digit[0]-'0') * 100
		return first, first + 99, true
	}
	code, err := strconv.ParseUint(item, 10, 16)
	return int(code), int(code), err == nil && len(item) == 3 && code >= 100 && code <= 599
}
