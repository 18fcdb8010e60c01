//go:build tools

// Package vale pins the linter of prose.
package vale

import _ "github.com/vale-cli/vale/v3/cmd/vale"
