//go:build tools

// Package krew pins kubectl's plugin manager, and what validates a manifest of its index.
package krew

import (
	_ "sigs.k8s.io/krew/cmd/krew"
	_ "sigs.k8s.io/krew/cmd/validate-krew-manifest"
)
