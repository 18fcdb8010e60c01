"""The node agent: finds the guests of one node, drives them through their guest agent, and reports.

Which module does what, each importing only those above it:

    errors      what can go wrong with a guest, and the reason a condition gives for it
    settings    command line and environment
    guestfs     parses what the probe prints: the state of one guest
    plan        pure: pairings and state in, steps out
    report      pure: state in, MemoryGuest and pairing status out
    metrics     the last collected figures as Prometheus metrics
    store       prebuilt kernel modules by kernel release
    qga         the protocol of the QEMU guest agent
    hypervisor  libvirt: a connection that can be lost, a call that can hang
    guest       one guest: probe it, carry out steps in it
    provider    what a source of guests has to know; kubevirt is one
    kubeapi     the few REST verbs that are needed; watch keeps copies of what the API server has
    worker      one guest's reconcile loop
    controller  hands changes to the workers, starts and ends them
"""
