"""The lab: a real one-machine Kubernetes cluster with real guests, all of it inside its own network namespaces.

What KubeVirt's controllers would do (launcher pod, masquerade binding, status of the VirtualMachineInstance) the lab
does itself, in `guests` and `watcher`. Nothing else is imitated.
"""
