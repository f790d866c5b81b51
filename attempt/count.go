package attempt

// mostCount is the largest X-Retry-Count that is believed.
const mostCount = 1000

// ParseCount reads the lines of X-Retry-Count. ok is false for anything but one
// number from 0 to 1000 written in digits alone.
func ParseCount(values []string) (n int, ok bool) {
	if len(values) != 1 || values[0] == "" {
		return 0, false
	}
	for _, c := range []byte(values[0]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > mostCount {
			return 0, false
		}
	}
	return n, true
}
