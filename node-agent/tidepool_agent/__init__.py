"""The node agent: finds the guests of one node, drives them through their guest agent, and reports.

Which module does what, each importing only those above it:

    errors      what can go wrong with a guest, and the reason a condition gives for it
    answers     pure: JSON and XML of others, as far as it takes little memory
    settings    command line and environment
    guestfs     parses what the probe prints: the state of one guest
    plan        pure: pairings and state in, steps out
    provider    what a source of guests has to know: kubevirt and host, below, are two
    consent     pure: which guests Tidepool is kept out of
    needs       pure: memory, pressure and curve of a guest, as steadily as a planner wants them
    report      pure: state in, MemoryGuest and pairing status out
    metrics     the last collected figures as Prometheus metrics; server serves them
    retry       what has failed is tried again ever more slowly
    store       prebuilt kernel modules by kernel release
    qga         the protocol of the QEMU guest agent
    hypervisor  libvirt: a connection that can be lost, a call that can hang
    guest       one guest: probe it, carry out steps in it; guest.sh is what runs there
    session     the way to one machine: connection, guest agent, and the thread for both
    kubevirt    the instances of KubeVirt on this node, each with a libvirt daemon of its own
    nova        pure: a libvirt domain's XML in, a machine out; host lists the domains of the host's own libvirt
    cluster     what is read from the API server and what is written there
    worker      one guest's reconcile loop
    controller  hands changes to the workers, starts and ends them
"""
