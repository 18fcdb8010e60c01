"""Nobody's memory is promised twice: what a lender lends beside what its pod requests, as the host counts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from product import BORROWER, LENDER, MIB, POOL, Object, Product, pool_manifest, until

from demo import lab
from tidepool_lab.progress import say

PAGE = 4096
FILE = "/mnt/backing"
REQUEST = 760 * MIB  # of the lender's pod: less than its guest has, and 200 MiB of it are virt-launcher's
MOST = 512 * MIB  # what the borrower would get of a lender that has all of its memory
LEAST = 64 * MIB
# Lets go of what earlier tests have left in the lender's memory, so that the host has it back.
TIDY = "sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"


def test_a_lender_stays_within_what_its_pod_requests(product: Product) -> None:
    """The borrower gets what the request leaves, and more where the pool opts in; QEMU's RSS stays below the request.

    The request is lowered while the guest runs. Without the rule the borrower would get 512 MiB, and QEMU pass it.
    """
    product.format_disk("ext4")
    with _requested(REQUEST):
        product.wait_condition("memoryguest", LENDER, "MemoryBacked", "False", "Overcommitted")
        lab.guest(LENDER, TIDY)
        product.apply_ready(_sized("Exclude"))
        product.wait_condition("memorypool", POOL, "LendersBacked", "False", "Overcommitted")
        granted = _granted(product)
        assert LEAST <= granted < MOST
        until("there is room for that", lambda: _resident() < REQUEST - granted)
        say(f"{granted >> 20} MiB are granted, QEMU has {_resident() >> 20}, and the pod may have {REQUEST >> 20}")
        product.stress(f"fill {FILE} mib={MOST // MIB + 100}")
        # In its first two minutes a borrower puts nothing of a file that is just being written.
        product.stress(f"sequential {FILE}")
        lent = product.reading(LENDER).lending["lent_pages"] * PAGE
        assert lent > granted // 2, f"{lent >> 20} of {granted >> 20} MiB are lent, too little to show anything"
        resident = _resident()
        assert resident <= REQUEST, f"{resident >> 20} MiB for QEMU, {lent >> 20} MiB of it lent"
        lab.guest(BORROWER, f"rm {FILE}")  # the tests that follow want room on that disk
        product.apply(_sized("Lend"))
        until("the opt-in is followed", lambda: _granted(product) > granted)
        product.wait_condition("memorypool", POOL, "LendersBacked", "True")
    product.wait_condition("memoryguest", LENDER, "MemoryBacked", "True", "Requested")
    product.assert_sound()


def _sized(overcommitted: str) -> Object:
    lender, borrower = ({"vm.kubevirt.io/name": name} for name in (LENDER, BORROWER))
    manifest = pool_manifest(lender=lender, borrower=borrower, overcommitted=overcommitted)
    sizes = {"minimum": f"{LEAST // MIB}Mi", "maximum": f"{MOST // MIB}Mi"}
    manifest["spec"]["borrowers"] = {"selector": {"matchLabels": borrower}, **sizes}
    return manifest


def _granted(product: Product) -> int:
    size = product.pairing_of(BORROWER).get("spec", {}).get("size", "0Mi")
    return int(size.removesuffix("Mi")) * MIB


@contextmanager
def _requested(size: int) -> Iterator[None]:
    """Has the lender's pod request so much meanwhile."""
    before = _launcher()["spec"]["containers"][0]["resources"]["requests"]["memory"]
    _resize(str(size))
    try:
        yield
    finally:
        _resize(before)


def _resize(memory: str) -> None:
    container = {"name": "compute", "resources": {"requests": {"memory": memory}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    lab.kubectl("patch", "pod", _launcher()["metadata"]["name"], "--subresource=resize", "-p", patch)


def _launcher() -> Object:
    """The pod in which the lender's QEMU runs."""
    pods = lab.items("pods", "-l", f"kubevirt.io=virt-launcher,vm.kubevirt.io/name={LENDER}")
    running: list[Object] = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    (found,) = running
    return found


def _resident() -> int:
    """What the host has given to the lender's QEMU."""
    uid = _launcher()["metadata"]["uid"]
    (size,) = (
        int(found[1]) << 10
        for folder in Path("/proc").glob("[0-9]*")
        if _text(folder / "comm").startswith("qemu-system")
        and uid in _text(folder / "cgroup")
        and (found := re.search(r"VmRSS:\s+(\d+) kB", _text(folder / "status")))
    )
    return size


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""
