// Package glob answers one question: does a text match a pattern with stars?
package glob

// Any says whether text matches one of the patterns; case counts.
func Any(patterns []string, text string) bool {
	for _, p := range patterns {
		if Match(p, text, false) {
			return true
		}
	}
	return false
}

// Match matches text against a pattern in which * stands for any run of
// characters. With fold the pattern is lower case and the case of text does not
// count. It goes back to the last * only, so its cost is at most
// len(pattern)·len(text).
func Match(pattern, text string, fold bool) bool {
	p, star, mark := 0, -1, 0
	for t := 0; t < len(text); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && same(pattern[p], text[t], fold):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// same compares two bytes, with fold a lower-case one and one of any case.
func same(p, t byte, fold bool) bool {
	if fold && t >= 'A' && t <= 'Z' {
		t |= 0x20
	}
	return p == t
}
