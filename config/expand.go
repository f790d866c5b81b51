package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// expand puts environment variables into a scalar and says what it then is. A
// value that came from a variable may be of any type, even in quotes: JSON has
// no other place for it. $${ stands for ${ itself.
func (d *decoder) expand(n *yaml.Node) (text, tag string, err error) {
	if !strings.Contains(n.Value, "${") {
		return n.Value, n.ShortTag(), nil
	}
	text, err = expandText(n.Value, d.getenv)
	if err != nil {
		return "", "", err
	}
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	return text, plain.ShortTag(), nil
}

// expandText replaces each ${NAME} in text; what it puts in is not looked at again.
func expandText(text string, getenv func(string) string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = after
			continue
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || name == "" {
			return "", fmt.Errorf("${ needs a name and }; write $${ for the characters themselves")
		}
		value := getenv(name)
		if value == "" {
			return "", fmt.Errorf("environment variable %s is not set or empty", name)
		}
		out.WriteString(before + value)
		text = rest
	}
}

// secret reads file:/path, or takes the text itself.
func (d *decoder) secret(text string) (Secret, error) {
	if text == hiddenSecret {
		return "", fmt.Errorf("%s is what check prints in the place of a secret; write the secret, ${NAME} or file:/path", hiddenSecret)
	}
	path, ok := strings.CutPrefix(text, "file:")
	if !ok {
		return Secret(text), nil
	}
	data, err := d.readFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the secret: %w", err)
	}
	value := strings.TrimRight(string(data), "\r\n")
	if value == "" {
		return "", fmt.Errorf("the secret's file %s is empty", path)
	}
	return Secret(value), nil
}
