package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version prints the version, the commit and what it was built for.
func Version(args []string, env Env) int {
	if _, code, ok := newFlags("version", env).parse(args, 0, 0); !ok {
		return code
	}
	fmt.Fprintln(env.Stdout, "retryproxy", versionText(env.Version))
	return OK
}

// VersionName is the version alone: the one set by -ldflags, else what the build
// knows. It is never empty.
func VersionName(set string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		set = cmp.Or(set, info.Main.Version)
	}
	return cmp.Or(set, "unknown")
}

// versionText is the version with what the build says about itself.
func versionText(set string) string {
	text := fmt.Sprintf("%s (%s, %s/%s", VersionName(set), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text + ")"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " with changes"
		}
	}
	return text + ")"
}
