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

// versionText is the version with what the build says about itself.
func versionText(version string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, "unknown")
	}
	commit := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += " with changes"
		}
	}
	return fmt.Sprintf("%s (%s, %s/%s%s)", cmp.Or(version, info.Main.Version, "unknown"), info.GoVersion, runtime.GOOS, runtime.GOARCH, commit)
}
