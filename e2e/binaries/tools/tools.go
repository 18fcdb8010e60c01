//go:build tools

// Package tools pins what the lab and the linters call besides the cluster itself.
package tools

import (
	_ "github.com/yannh/kubeconform/cmd/kubeconform"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
	_ "sigs.k8s.io/cri-tools/cmd/crictl"
)
