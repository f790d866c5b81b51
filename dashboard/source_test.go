package dashboard

import "os"

// The folders that tests of the texts read.
var (
	sourceDir = os.DirFS(".")
	docsDir   = os.DirFS("../docs")
)
