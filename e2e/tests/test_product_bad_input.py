"""What users and guests do wrong: a condition says what and what to do about it, and everything else goes on."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from product import (
    BORROWER,
    BOTH_BORROW,
    LENDER,
    ONE_TO_ONE,
    OTHER,
    POOL,
    Object,
    Product,
    pool_manifest,
    until,
)

from demo import lab

NOBODY = {"memory": "nobody-has-this"}
SHORT, SPARE = {"memory": "short"}, {"memory": "spare"}
FILE = "/mnt/file"
STORE = "/usr/share/tidepool/modules"


@pytest.mark.parametrize(
    ("manifest", "type_", "reason", "words"),
    [
        (pool_manifest(lender=NOBODY, borrower=SHORT), "LendersFound", "NoLenders", "spec.lenders.selector"),
        (pool_manifest(lender=SPARE, borrower=NOBODY), "BorrowersFound", "NoBorrowers", "spec.borrowers.selector"),
        (
            pool_manifest(lender=SPARE, borrower={"vm.kubevirt.io/name": LENDER}),
            "RolesConsistent", "RoleConflict", "selected both as lender and as borrower",
        ),
        (
            pool_manifest(lender=SPARE, borrower=SHORT, size="64Gi", maxLend="64Gi"),
            "CapacitySufficient", "InsufficientCapacity", "lower spec.borrowers.size",
        ),
    ],
    ids=["no-lender", "no-borrower", "same-guest", "too-large"],
)  # fmt: skip
def test_a_pool_that_cannot_be(product: Product, manifest: Object, type_: str, reason: str, words: str) -> None:
    """The pool itself says what is wrong with it; nothing is loaded anywhere; put right, it works."""
    product.apply(manifest)
    message = product.wait_condition("memorypool", POOL, type_, "False", reason)
    assert words in message
    message = product.wait_condition("memorypool", POOL, "Ready", "False")
    assert words in message
    assert words in product.wait_condition("memorypool", POOL, "Degraded", "True", reason)
    assert lab.items("memorypairings") == []
    assert not any(product.loaded(guest) for guest in (BORROWER, LENDER))


def test_a_pool_that_was_put_right(product: Product) -> None:
    """The same pool with a selector that matches is served without being made anew."""
    product.apply(pool_manifest(lender=NOBODY, borrower={"vm.kubevirt.io/name": BORROWER}))
    product.wait_condition("memorypool", POOL, "LendersFound", "False", "NoLenders")
    product.apply_ready(ONE_TO_ONE)
    assert product.condition("memorypool", POOL, "LendersFound")["status"] == "True"


def test_what_the_api_refuses(product: Product) -> None:
    """What can be said wrong is refused at once, with the path of the field."""
    same = copy.deepcopy(ONE_TO_ONE)
    same["spec"]["borrowers"]["selector"] = same["spec"]["lenders"]["selector"]
    encrypted = copy.deepcopy(ONE_TO_ONE)
    encrypted["spec"]["encryption"] = "ROT13"
    tiny = pool_manifest(lender=SPARE, borrower=SHORT, size="1Mi")
    for manifest, words in ((same, "spec.borrowers.selector"), (encrypted, "spec.encryption"), (tiny, "too little")):
        with pytest.raises(lab.CommandError, match=words):
            product.apply(manifest)


def test_a_second_pool_leaves_the_first_alone(product: Product) -> None:
    """Guests that an older pool has are left out of a younger one, which says so."""
    product.apply_ready(ONE_TO_ONE)
    product.apply(pool_manifest(lender=SPARE, borrower=SHORT, name="younger"))
    message = product.wait_condition("memorypool", "younger", "RolesConsistent", "False", "GuestClaimed")
    assert LENDER in message
    assert POOL in message
    assert product.condition("memorypool", POOL, "Ready")["status"] == "True"


def test_a_guest_without_guest_agent(product: Product) -> None:
    """The guest says why it cannot take part, the pool repeats it, the other borrower is served; it heals by itself."""
    lab.guest(OTHER, "systemctl stop qemu-guest-agent")
    product.wait_condition("memoryguest", OTHER, "GuestAgentReady", "False", "NotConnected")
    message = product.wait_condition("memoryguest", OTHER, "Ready", "False", "NotConnected")
    assert "qemu-guest-agent" in message
    product.apply(BOTH_BORROW)
    message = product.wait_condition("memorypool", POOL, "GuestsReady", "False", "GuestNotReady")
    assert OTHER in message
    assert "NotConnected" in message
    _assert_served(product)
    lab.guest(OTHER, "systemctl start qemu-guest-agent")
    product.wait_condition("memorypool", POOL, "Ready", "True")
    assert product.loaded(OTHER)


def test_a_guest_that_rebooted(product: Product) -> None:
    """A reboot forgets everything; it is reported and repaired, and the other borrower does not notice."""
    product.apply_ready(BOTH_BORROW)
    boot, identity = (lab.get("memoryguest", OTHER)["status"][field] for field in ("bootID", "identity"))
    pairing = product.pairing_of(OTHER)["metadata"]["uid"]
    begun = product.sessions_begun()
    lab.guest(OTHER, "nohup sh -c 'sleep 1; systemctl reboot' > /dev/null 2>&1 &")
    until("the agent sees another boot", lambda: lab.get("memoryguest", OTHER)["status"].get("bootID") != boot)
    until("the reboot is reported", lambda: "GuestRebooted" in _events(OTHER))
    until("it is set up anew", lambda: product.pairing_of(OTHER)["spec"]["borrower"].get("identity") != identity)
    product.wait_condition("memorypool", POOL, "Ready", "True")
    until("it is connected", lambda: product.pairing_of(OTHER).get("status", {}).get("phase") == "Connected")
    assert product.loaded(OTHER)
    assert product.pairing_of(OTHER)["metadata"]["uid"] == pairing
    assert product.pairing_of(OTHER)["spec"]["borrower"]["identity"] != identity
    assert product.sessions_begun() == begun
    product.assert_sound(BORROWER, LENDER, OTHER)


def test_a_kernel_without_a_module(product: Product) -> None:
    """With a store that has nothing for their kernel, guests and pool say so; with the right store all is well."""
    with _store_hidden():
        for guest in (BORROWER, LENDER):
            message = product.wait_condition("memoryguest", guest, "ModuleAvailable", "False", "NoModuleForKernel")
            assert lab.guest(guest, "uname -r").strip() in message
            product.wait_condition("memoryguest", guest, "Ready", "False", "NoModuleForKernel")
        product.apply(ONE_TO_ONE)
        message = product.wait_condition("memorypool", POOL, "GuestsReady", "False", "GuestNotReady")
        assert "NoModuleForKernel" in message
        assert "kernel-module/tools/store" in message
    product.wait_condition("memorypool", POOL, "Ready", "True")


def test_a_quota_of_the_cluster_is_in_the_way(product: Product) -> None:
    """A real ResourceQuota lets one pairing in: that one serves, the pool names the quota, and heals without it."""
    with _one_pairing_allowed():
        product.apply(BOTH_BORROW)
        message = product.wait_condition("memorypool", POOL, "WriteRefused", "True")
        assert "exceeded quota: few" in message
        assert "exceeded quota: few" in product.wait_condition("memorypool", POOL, "Degraded", "True")
        served = lab.items("memorypairings")
        assert len(served) == 1
        name = served[0]["metadata"]["name"]
        until("it is connected", lambda: product.phase("memorypairing", name) == "Connected")
    product.wait_condition("memorypool", POOL, "Ready", "True")
    assert len(lab.items("memorypairings")) == 2
    assert not product.condition("memorypool", POOL, "WriteRefused")


@contextmanager
def _one_pairing_allowed() -> Iterator[None]:
    """A quota that its controller has counted for."""
    kind = "count/memorypairings.tidepool.dev"
    lab.kubectl("create", "quota", "few", f"--hard={kind}=1")
    try:
        until("it counts", lambda: lab.get("resourcequota", "few")["status"].get("used", {}).get(kind) == "0")
        yield
    finally:
        lab.kubectl("delete", "resourcequota", "few")


@contextmanager
def _store_hidden() -> Iterator[None]:
    """Gives the agent an empty module store in place of its image's."""
    hide = {
        "volumes": [{"name": "store", "emptyDir": {}}],
        "containers": [{"name": "agent", "volumeMounts": [{"name": "store", "mountPath": STORE}]}],
    }
    show = {
        "volumes": [{"name": "store", "$patch": "delete"}],
        "containers": [{"name": "agent", "volumeMounts": [{"mountPath": STORE, "$patch": "delete"}]}],
    }
    _patch_agent(hide)
    try:
        yield
    finally:
        _patch_agent(show)


def _patch_agent(pod: Object) -> None:
    agent = lab.kubectl("get", "daemonset", "-n", lab.SYSTEM, "-o", "name").strip()
    patch = json.dumps({"spec": {"template": {"spec": pod}}})
    lab.kubectl("patch", "-n", lab.SYSTEM, agent, "--type=strategic", "-p", patch)
    lab.kubectl("rollout", "status", "-n", lab.SYSTEM, agent, "--timeout=4m")


def _assert_served(product: Product) -> None:
    """The borrower is connected and gets pages."""
    until(
        "the borrower is connected", lambda: product.pairing_of(BORROWER).get("status", {}).get("phase") == "Connected"
    )
    product.stress(f"fill {FILE} mib=240")
    before = product.hits()
    product.stress(f"sequential {FILE} passes=2")
    assert product.hits() > before


def _events(guest: str) -> str:
    return lab.kubectl("get", "events", f"--field-selector=involvedObject.name={guest}")
