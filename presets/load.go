package presets

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"retryproxy/config"
)

//go:embed data
var data embed.FS

// builtin are the presets that the binary brings.
var builtin = sync.OnceValues(func() ([]raw, error) {
	names, err := fs.Glob(data, "data/*.yaml")
	if err != nil {
		return nil, err
	}
	var list []raw
	for _, name := range names {
		text, err := data.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, newRaw("preset "+strings.TrimSuffix(path.Base(name), ".yaml"), text, true))
	}
	return list, nil
})

// Load builds the set of the built-in presets and those of a folder, empty: there is
// none. The error joins one config.Problem for each fault of each file.
func Load(dir string) (*Set, error) {
	if dir == "" {
		return own()
	}
	list, err := builtin()
	if err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	more, err := inFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	ready, err := own()
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	for _, r := range more {
		list = append(list, newRaw(r.name, r.data, false))
	}
	return build(list, ready)
}

// own is the set of the built-in presets alone.
var own = sync.OnceValues(func() (*Set, error) {
	list, err := builtin()
	if err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	return build(list, nil)
})

// Digest is one of all files of a folder, so that a change of any is seen; zero: there
// are none, or the folder is empty.
func Digest(dir string) (sum [sha256.Size]byte) {
	list, err := inFolder(dir)
	if len(list) == 0 && err == nil {
		return sum
	}
	h := sha256.New()
	for _, r := range list {
		fmt.Fprintf(h, "%s\n%d\n", r.name, len(r.data))
		_, _ = h.Write(r.data) // a hash never fails
	}
	fmt.Fprint(h, err)
	return [sha256.Size]byte(h.Sum(nil))
}

// inFolder reads the files of an operator.
func inFolder(dir string) (list []raw, err error) {
	if dir == "" {
		return nil, nil
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.y*ml"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, raw{name: name, data: text})
	}
	return list, nil
}

// build reads all presets; one of a folder takes the place of a built-in one. A file of
// a folder that extends the built-in preset of its own name is laid over that. What is
// ready of the built-in ones is taken as it is.
func build(list []raw, ready *Set) (*Set, error) {
	f := family{raws: map[string]raw{}, busy: map[string]bool{}, ready: ready}
	var errs []error
	var names []string
	for _, r := range list {
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		before, taken := f.raws[r.preset]
		switch {
		case taken && before.builtin == r.builtin:
			errs = append(errs, config.Problem{File: r.name, Path: "preset", Rule: fmt.Sprintf("%q is the preset of %s already", r.preset, before.name)})
			continue
		case taken && r.extends == r.preset:
			f.raws[beneath+r.preset] = before
		case !taken:
			names = append(names, r.preset)
		}
		f.raws[r.preset] = r
	}
	var out []*Preset
	for _, name := range names {
		p, err := f.preset(name)
		errs = append(errs, err)
		out = append(out, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return newSet(out), nil
}

// beneath marks the built-in preset under one of the same name.
const beneath = "builtin "

func (f *family) preset(name string) (*Preset, error) {
	if f.ready != nil && f.unchanged(name) {
		return f.ready.Named(name), nil
	}
	own, reading, err := f.read(name)
	if err != nil {
		return nil, err
	}
	return compile(own, reading, f.raws[name].builtin)
}
