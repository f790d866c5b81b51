package access

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"retryproxy/attempt"
)

// maxLabel bounds a label in bytes.
const maxLabel = 128

// UserLabels reads labels from a proxy user name such as
// "shop=17;task=order_ship;tier=vip", the way for bots that cannot set headers.
// Plain words are left alone. mistakes counts the parts with a "=" that gave no
// label: another key, no value, or one with "," or "=" in it, which is two parts
// with a wrong sign between them.
func UserLabels(name string) (labels attempt.Labels, mistakes int) {
	if !strings.Contains(name, "=") { // axios sends the name as it stands in the URL
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
	}
	for part := range strings.SplitSeq(name, ";") {
		key, value, found := strings.Cut(part, "=")
		target := labelNamed(&labels, strings.ToLower(strings.TrimSpace(key)))
		value = strings.TrimSpace(value)
		switch {
		case target != nil && value != "" && !strings.ContainsAny(value, ",="):
			*target = value
		case found:
			mistakes++
		}
	}
	return labels, mistakes
}

// labelNamed is the label that a key in a user name means; nil: none.
func labelNamed(l *attempt.Labels, key string) *string {
	switch key {
	case "shop":
		return &l.Shop
	case "tier", "shop_tier":
		return &l.ShopTier
	case "task", "task_type":
		return &l.TaskType
	}
	return nil
}

// MergeLabels takes each label from the first source that has it. A value that
// contradicts a configured one (of the user's entry or the listener) is
// ErrClient, a value that is no label ErrBadLabel.
func MergeLabels(user, listener, name, header attempt.Labels) (attempt.Labels, error) {
	shop, err := mergeLabel("shop", [...]string{user.Shop, listener.Shop, name.Shop, header.Shop})
	if err != nil {
		return attempt.Labels{}, err
	}
	tier, err := mergeLabel("shop tier", [...]string{user.ShopTier, listener.ShopTier, name.ShopTier, header.ShopTier})
	if err != nil {
		return attempt.Labels{}, err
	}
	task, err := mergeLabel("task type", [...]string{user.TaskType, listener.TaskType, name.TaskType, header.TaskType})
	if err != nil {
		return attempt.Labels{}, err
	}
	return attempt.Labels{Shop: shop, ShopTier: tier, TaskType: task}, nil
}

// labelSources says where a label came from, in order of precedence; the first
// two are configured.
var labelSources = [...]string{"clients.users", "listeners", "the user name", "the header"}

// mergeLabel picks one label.
func mergeLabel(what string, values [4]string) (string, error) {
	chosen, source := "", -1
	for i, v := range values {
		switch {
		case v == "" || v == chosen:
			continue
		case !isLabel(v):
			return "", fmt.Errorf("%w: the %s in %s must be at most %d visible characters", ErrBadLabel, what, labelSources[i], maxLabel)
		case source < 0:
			chosen, source = v, i
		case source < 2:
			return "", fmt.Errorf("%w: the %s in %s contradicts the one configured in %s", ErrClient, what, labelSources[i], labelSources[source])
		}
	}
	return chosen, nil
}

// isLabel says whether a value can be a label: bounded, no blanks, no control
// characters, so that it can stand in logs and names.
func isLabel(v string) bool {
	return len(v) <= maxLabel && utf8.ValidString(v) && strings.IndexFunc(v, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}) < 0
}
