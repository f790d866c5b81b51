package dashboard

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	asked    = regexp.MustCompile(`\bt "([a-z_.]+)"|\bsay\("([a-z_.]+)"|add\([^"\n]*"([a-z_]+\.[a-z_.]+)"|"(do\.[a-z]+)"`)
	verbs    = regexp.MustCompile(`%(\[\d\])?[a-z%]`)
	inBraces = regexp.MustCompile(`(?s)\{\{.*?\}\}|<[^>]*>`)
)

// Every text that a page or the code asks for is there.
func TestTextsThatAreAskedFor(t *testing.T) {
	sources := map[string]string{}
	_ = fs.WalkDir(files, "templates", func(name string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = string(text)
		}
		return nil
	})
	code, err := fs.Glob(sourceDir, "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range code {
		if !strings.HasSuffix(name, "_test.go") {
			text, err := fs.ReadFile(sourceDir, name)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = string(text)
		}
	}
	n := 0
	for name, text := range sources {
		for _, m := range asked.FindAllStringSubmatch(text, -1) {
			key := strings.Join(m[1:], "")
			if strings.HasSuffix(key, "_") || strings.HasSuffix(key, ".") {
				continue // a token follows
			}
			n++
			if _, ok := texts[key]; !ok {
				t.Errorf("%s asks for the text %q, which is not there", name, key)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d texts were looked for; the search is broken", n)
	}
}

// Both languages say the same values, and neither is missing.
func TestTextsInBothLanguages(t *testing.T) {
	for key, text := range texts {
		if text.en == "" || text.zh == "" {
			t.Errorf("%s: one language is missing", key)
		}
		if key != "lang" && key != "lang.other" && hanzi(text.en) {
			t.Errorf("%s: the English text is Chinese: %s", key, text.en)
		}
		if a, b := len(verbs.FindAllString(text.en, -1)), len(verbs.FindAllString(text.zh, -1)); a != b && !strings.Contains(text.zh, "100 %") {
			t.Errorf("%s: %d values in English, %d in Chinese", key, a, b)
		}
	}
}

func hanzi(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r >= 0x4e00 && r <= 0x9fff })
}

// No page has words that are not a text.
func TestNoWordsInTemplates(t *testing.T) {
	_ = fs.WalkDir(files, "templates", func(name string, d fs.DirEntry, _ error) error {
		if d.IsDir() {
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(inBraces.ReplaceAllString(string(text), " ")) {
			if len(word) > 3 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
				t.Errorf("%s has the word %q outside of the texts", name, word)
			}
		}
		return nil
	})
}

func TestReasonsInWords(t *testing.T) {
	for lang, want := range map[string]string{english: "the host answered 503", chinese: "主机答复 503"} {
		if got := (words{lang}).reason("status_503"); got != want {
			t.Errorf("reason in %s = %q, want %q", lang, got, want)
		}
		if got := (words{lang}).reason("something_new"); got != "something_new" {
			t.Errorf("an unknown reason in %s = %q, want the token", lang, got)
		}
	}
}

func TestAcceptedLanguage(t *testing.T) {
	for header, want := range map[string]string{
		"": english, "zh-CN,zh;q=0.9,en;q=0.8": chinese, "en-US,en;q=0.9,zh;q=0.5": english, "fr": english, "fr,zh;q=0.1": chinese,
		"zh;q=0": english, "en;q=0.1,zh;q=bad": english, "ZH-Hant": chinese,
	} {
		if got := accepted(header); got != want {
			t.Errorf("accepted(%q) = %q, want %q", header, got, want)
		}
	}
}

func TestTextsOfTheContract(t *testing.T) {
	known := []string{}
	for key := range textsReasons {
		known = append(known, key)
	}
	text, err := fs.ReadFile(docsDir, "outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile("`([a-z_]+)`")
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first, _, _ := strings.Cut(line[2:], "|")
		for _, m := range token.FindAllStringSubmatch(first, -1) {
			if strings.HasPrefix(m[1], "status_") || strings.HasPrefix(m[1], "x_") {
				continue
			}
			if !slices.Contains(known, "reason."+m[1]) {
				t.Errorf("the reason %s of docs/outcomes.md has no words", m[1])
			}
		}
	}
}
