//go:build tools

// Package helm pins Helm, which installs the chart as an administrator would.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
