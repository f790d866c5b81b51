package sandbox

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// params are the parameters of a request in the form in which they are signed:
// strings as they are, other JSON values as compact text, null not at all.
type params map[string]string

var errTwice = errors.New("sandbox: a parameter is given twice")

// addForm takes in a query or a form; its bytes may be in any charset.
func (p params) addForm(text string) error {
	values, err := url.ParseQuery(text)
	if err != nil {
		return err
	}
	for name, v := range values {
		if _, there := p[name]; there || len(v) != 1 {
			return fmt.Errorf("%w: %s", errTwice, name)
		}
		p[name] = v[0]
	}
	return nil
}

// addJSON takes in the members of an object.
func (p params) addJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("sandbox: the body is no JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := p.addValue(name.(string), value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("sandbox: something follows the JSON object")
	}
	return nil
}

func (p params) addValue(name string, value json.RawMessage) error {
	if _, there := p[name]; there {
		return fmt.Errorf("%w: %s", errTwice, name)
	}
	var s string
	switch {
	case string(value) == "null":
		return nil
	case value[0] == '"':
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
	default: // not decoded: numbers, order and escapes are signed as they came
		var b bytes.Buffer
		if err := json.Compact(&b, value); err != nil {
			return err
		}
		s = b.String()
	}
	p[name] = s
	return nil
}

// names are all but the signature, in the order of their bytes.
func (p params) names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p)), func(name string) bool { return name == "sign" })
}

// wrapped is the signature of PDD and TEMU: the MD5 of the secret, each name with
// its value, and the secret, in upper-case hex.
func (p params) wrapped(secret string) string {
	var b strings.Builder
	b.WriteString(secret)
	for _, name := range p.names() {
		b.WriteString(name + p[name])
	}
	return upperMD5(b.String() + secret)
}

// joined is the signature of supplier A: a=1&b=2&key=secret, empty values left out.
func (p params) joined(secret string) string {
	var b strings.Builder
	for _, name := range p.names() {
		if p[name] != "" {
			b.WriteString(name + "=" + p[name] + "&")
		}
	}
	return upperMD5(b.String() + "key=" + secret)
}

// listed is the signature of supplier B: the values of these names one after the
// other, then the secret.
func (p params) listed(secret string, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(p[name])
	}
	return upperMD5(b.String() + secret)
}

func upperMD5(s string) string {
	sum := md5.Sum([]byte(s))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}
