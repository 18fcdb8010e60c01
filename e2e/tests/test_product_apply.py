"""The main job: a pool is applied, pages come back from the lender, the pool is deleted and nothing is left."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from product import BORROWER, GUESTS, LENDER, MIB, ONE_TO_ONE, OTHER, POOL, Object, Product, until

from demo import lab
from tidepool_lab import images

FILE = "/mnt/file"
FILE_MIB = 240
PAGES_PER_MIB = 256
SYS_PTRACE, DAC_OVERRIDE = 1 << 19, 1 << 1  # as /proc/PID/status shows them


def test_guests_are_found_before_any_pool(product: Product) -> None:
    """Every virtual machine is a MemoryGuest, ready to take part, with nothing loaded into it."""
    for guest in GUESTS:
        product.wait_condition("memoryguest", guest, "Ready", "True", patience=60)
        status = lab.get("memoryguest", guest)["status"]
        assert status["kernelRelease"] == lab.guest(guest, "uname -r").strip()
        assert status["role"] == "None"
        assert status["addresses"]
        assert "moduleVersion" not in status
    product.assert_nothing_left()


@pytest.mark.parametrize(
    ("component", "user", "capabilities"),
    [("operator", images.USER, 0), ("agent", images.QEMU_USER, SYS_PTRACE | DAC_OVERRIDE)],
)
@pytest.mark.usefixtures("product")
def test_nobody_is_root(component: str, user: int, capabilities: int) -> None:
    """As the kernel has it: an ordinary user, two capabilities or none and no way to more, and a read-only root."""
    status, root = _process_of(component)
    assert status["Uid"].split() == status["Gid"].split() == [str(user)] * 4
    held = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")}
    assert held == {**dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), capabilities), "CapInh": 0, "CapAmb": 0}
    assert status["NoNewPrivs"] == "1"
    assert "ro" in root


def _process_of(component: str) -> tuple[dict[str, str], list[str]]:
    """/proc/PID/status of the one process of its pod that is not the sandbox's, and how its root is mounted."""
    (pod,) = lab.items("pods", "-n", lab.SYSTEM, "-l", f"app.kubernetes.io/component={component}")
    (process,) = (
        folder
        for folder in Path("/proc").glob("[0-9]*")
        if pod["metadata"]["uid"] in _text(folder / "cgroup") and _text(folder / "comm") != "pause\n"
    )
    status = dict(re.findall(r"^(\w+):\s*(.*)$", _text(process / "status"), re.MULTILINE))
    mounts = [line.split() for line in _text(process / "mountinfo").splitlines()]
    (options,) = (fields[5] for fields in mounts if fields[4] == "/")
    return status, options.split(",")


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


def test_pages_come_back_from_the_lender(product: Product) -> None:
    """Apply, read, look, delete: the whole story, with every page verified."""
    available = _available(LENDER)
    product.apply_ready(ONE_TO_ONE)
    assert [product.loaded(guest) for guest in (BORROWER, LENDER, OTHER)] == [True, True, False]
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    before = product.reading(LENDER).lending["get_hits"]
    report = product.stress(f"random {FILE} reads=20000 threads=4")
    assert report["wrong_pages"] == report["errors"] == 0
    assert product.reading(LENDER).lending["get_hits"] > before + 2000
    _assert_shown()
    _assert_exported(product)
    product.assert_sound()
    product.delete()
    product.assert_nothing_left()
    until("the lender has its memory back", lambda: _available(LENDER) > available - 64 * MIB, 20)
    assert product.stress(f"sequential {FILE}")["wrong_pages"] == 0


def test_reserve_and_most_are_kept(product: Product) -> None:
    """A lender holds no more than the pool says, and a smaller size takes effect in place."""
    product.apply_ready(ONE_TO_ONE)
    pairing = product.pairing_of(BORROWER)["metadata"]["uid"]
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    smaller = {**ONE_TO_ONE, "spec": {**ONE_TO_ONE["spec"]}}
    smaller["spec"]["borrowers"] = {**smaller["spec"]["borrowers"], "size": "64Mi"}
    product.apply_ready(smaller)
    until("the lender holds at most 64 MiB", lambda: _lent_mib(product) <= 64, 60)
    assert product.pairing_of(BORROWER)["metadata"]["uid"] == pairing, "the pairing was not changed but replaced"
    product.stress(f"sequential {FILE} passes=2")
    assert _lent_mib(product) <= 64
    product.assert_sound()


def test_encryption_follows_the_pool(product: Product) -> None:
    """Pages are encrypted unless the pool says otherwise; a pool that is edited changes its pairing in place."""
    spec = {name: value for name, value in ONE_TO_ONE["spec"].items() if name != "encryption"}
    product.apply_ready({**ONE_TO_ONE, "spec": spec})
    pairing = product.pairing_of(BORROWER)["metadata"]["uid"]
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    for encryption in ("AES-GCM", "None", "AES-GCM"):
        product.apply_ready({**ONE_TO_ONE, "spec": {**spec, "encryption": encryption}})
        until(f"the borrower's guest has {encryption}", lambda: _in_guest(pairing) == [encryption, "Connected"])  # noqa: B023
        before = product.hits()
        report = product.stress(f"sequential {FILE} passes=2")
        assert report["wrong_pages"] == report["errors"] == 0
        assert product.hits() > before
        assert product.reading(BORROWER).borrowing["get_corrupt"] == 0
    product.assert_sound()


def test_a_new_key_costs_nothing(product: Product) -> None:
    """The session goes on, both guests have the new key, and it is what the next handshake asks for."""
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    pairing = product.pairing_of(BORROWER)
    connects, hits = product.connects(), product.hits()
    keys = {"notBefore": datetime.now(UTC).strftime("%FT%TZ")}
    product.apply({**ONE_TO_ONE, "spec": {**ONE_TO_ONE["spec"], "keys": keys}})
    product.wait_condition("memorypairing", pairing["metadata"]["name"], "KeyCurrent", "True", "TakenUp")
    (secret,) = [one for one in lab.items("secrets") if one["type"] == "tidepool.dev/key"]
    assert secret["metadata"]["name"] != pairing["spec"]["keySecret"]["name"]
    product.stress(f"random {FILE} reads=5000 threads=4")
    assert product.hits() > hits
    assert product.connects() == connects
    end = f"/sys/kernel/config/tidepool/borrowers/{pairing['metadata']['uid']}/enabled"
    lab.guest(LENDER, f"echo 0 > {end}; echo 1 > {end}")
    until("the two know each other by the new key", lambda: product.connects() > connects, 30)
    product.wait_condition("memorypool", POOL, "Ready", "True")
    product.assert_sound()


def _in_guest(pairing: str) -> list[str]:
    folder = f"/sys/kernel/config/tidepool/lenders/{pairing}"
    return lab.guest(BORROWER, f"cat {folder}/encryption {folder}/state").split()


def _available(guest: str) -> int:
    return int(lab.guest(guest, "grep MemAvailable /proc/meminfo").split()[1]) << 10


def _lent_mib(product: Product) -> float:
    return product.reading(LENDER).lending.get("lent_pages", 0) / PAGES_PER_MIB


def _status() -> Object:
    status: Object = lab.get("memorypool", POOL)["status"]
    return status


def _assert_shown() -> None:
    """`kubectl get` tells the story: roles, bytes, hit ratio."""
    until(
        "the pool shows what is used", lambda: _status().get("usedBytes", 0) > 50 * MIB and "hitRatio" in _status(), 90
    )
    pool = _status()
    assert pool["phase"] == "Ready"
    assert (pool["lenders"], pool["borrowers"], pool["readyPairings"]) == (1, 1, 1)
    assert float(pool["hitRatio"]) > 0
    shown = lab.kubectl("get", "memorypools,memorypairings,memoryguests")
    for word in (POOL, "Ready", "Connected", "Lender", "Borrower", "512Mi", "HIT RATIO"):
        assert word in shown, f"{word!r} is not in\n{shown}"
    roles = {guest: lab.get("memoryguest", guest)["status"]["role"] for guest in GUESTS}
    assert roles == {BORROWER: "Borrower", LENDER: "Lender", OTHER: "None"}


def _assert_exported(product: Product) -> None:
    """The agent's metrics are the module's own figures."""
    least = product.hits()
    name = "tidepool_guest_get_hits_total"
    exported = until("metrics are collected", lambda: (product.exported(name, guest=BORROWER) or 0) >= least, 40)
    assert exported
    assert (product.exported(name, guest=BORROWER) or 0) <= product.hits()
    assert (product.exported("tidepool_guest_get_duration_seconds_count", guest=BORROWER) or 0) > 0
    assert product.exported("tidepool_guest_warnings_total", guest=BORROWER) == 0
    assert (product.exported("tidepool_guest_lent_bytes", guest=LENDER) or 0) > 50 * MIB
