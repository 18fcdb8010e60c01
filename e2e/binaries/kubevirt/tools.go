//go:build tools

// Package kubevirt pins KubeVirt's API types, from which its CRDs are generated.
package kubevirt

import _ "kubevirt.io/api/core/v1"
