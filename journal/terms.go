package journal

// Bounds of terms.
const (
	MostTerms    = 64       // of a call
	MostBody     = 64 << 10 // bytes of a body that are looked at
	shortestTerm = 4
	longestTerm  = 64
	mostWords    = 8 // of a text that is looked for
)

// Salt keys the hashes of terms: whoever has the hashes, but not the salt, can
// neither read nor guess what was said.
type Salt [16]byte

// Open is the salt where no secret is at hand: then the hashes hide nothing from
// whoever can guess a term.
var Open = Salt([]byte("retryproxy terms"))

// Salts are those in use, the one for new terms first.
type Salts []Salt

// SaltsOf makes salts of secrets of 16 bytes each, in their order, and adds Open.
func SaltsOf(secrets [][]byte) Salts {
	out := make(Salts, 0, len(secrets)+1)
	for _, s := range secrets {
		out = append(out, Salt(s))
	}
	return append(out, Open)
}

// Terms are the hashes of what a call can be found by: runs of 4 to 64 letters,
// digits, - and _ in the texts and in the first MostBody bytes of the body,
// whatever their case. Escapes (%22, and \n and \u1234 as JSON has them) end a run,
// their own letters are no part of one. At most MostTerms different ones, those that hold a digit first:
// order numbers do, names of fields do not.
func (s Salts) Terms(body []byte, texts ...string) []uint64 {
	var found collection
	for _, text := range texts {
		runs(&s[0], text, &found)
	}
	runs(&s[0], body[:min(len(body), MostBody)], &found)
	return found.list()
}

// Words are the words of a text as Query.Words wants them. A text without a
// single one gives none.
func (s Salts) Words(text string) [][]uint64 {
	var out [][]uint64
	for i := range s {
		var found collection
		runs(&s[i], text, &found)
		for n, h := range found.list()[:min(found.size(), mostWords)] {
			if i == 0 {
				out = append(out, nil)
			}
			out[n] = append(out[n], h)
		}
	}
	return out
}

// collection is a set of hashes in two parts. It has a table of its own: that is
// several times quicker than a map.
type collection struct {
	digits, others   [MostTerms]uint64 // with a digit, and without
	nDigits, nOthers int
	table            [4 * MostTerms]uint64 // of all in both; 0: free
}

// wants says whether a term of this kind still has room.
func (c *collection) wants(digit bool) bool {
	if digit {
		return c.nDigits < MostTerms
	}
	return c.nDigits+c.nOthers < MostTerms
}

// add takes a hash, unless it is there.
func (c *collection) add(h uint64, digit bool) {
	h |= 1 // 0 is none
	i := h >> 56
	for ; c.table[i] != 0; i = (i + 1) % uint64(len(c.table)) {
		if c.table[i] == h {
			return
		}
	}
	c.table[i] = h
	if digit {
		c.digits[c.nDigits] = h
		c.nDigits++
		return
	}
	c.others[c.nOthers] = h
	c.nOthers++
}

func (c *collection) size() int { return min(c.nDigits+c.nOthers, MostTerms) }

// list gives the set, those with a digit first.
func (c *collection) list() []uint64 {
	out := append(make([]uint64, 0, c.size()), c.digits[:c.nDigits]...)
	return append(out, c.others[:c.size()-c.nDigits]...)
}

// Kinds of characters: 0 ends a run.
const (
	letter byte = 1 << iota
	digit
	escape // % or \, which end a run as well
)

// kinds has the kind of each byte.
var kinds = func() (kinds [256]byte) {
	for c := range 256 {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_':
			kinds[c] = letter
		case c >= '0' && c <= '9':
			kinds[c] = digit
		case c == '%', c == '\\':
			kinds[c] = escape
		}
	}
	return kinds
}()

// runs finds the runs of a text.
func runs[T string | []byte](salt *Salt, text T, found *collection) {
	var term [longestTerm]byte
	for i := 0; i < len(text); {
		start, kind := i, byte(0)
		for i < len(text) && kinds[text[i]]&(letter|digit) != 0 {
			kind |= kinds[text[i]]
			i++
		}
		if n := i - start; n >= shortestTerm && n <= longestTerm && found.wants(kind&digit != 0) {
			copy(term[:], text[start:i])
			found.add(salt.hash(term[:n], toLower), kind&digit != 0)
		}
		if i < len(text) && kinds[text[i]] == escape {
			i += escaped(text, i)
		}
		i++ // what ended the run
	}
}

// escaped is how many bytes after the one at i belong to its escape. What it
// stands for is no part of a run: nobody escapes what runs are made of.
func escaped[T string | []byte](text T, i int) int {
	switch {
	case text[i] == '%' && i+2 < len(text) && hexDigit(text[i+1]) && hexDigit(text[i+2]):
		return 2
	case text[i] == '\\' && i+1 < len(text) && text[i+1] == 'u':
		return 5
	case text[i] == '\\':
		return 1
	}
	return 0
}

func hexDigit(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }
