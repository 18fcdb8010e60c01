"""What Nova does to instances while pages flow between them: two real libvirt hosts, and the real operator.

Libvirt and QEMU really migrate and boot; Nova itself is played by the test (see `compute`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cast import eventually
from compute import FILE, STRESS, Cloud, Instance
from tiny import Kernel

from tidepool_api_testing.server import Server

pytestmark = pytest.mark.long
PATIENCE = 300
FEW = 0.01  # of what is asked for may be missing: a full lender has just given it away, and said so
KEPT = 0.9  # of the pages; the lender may need some of the memory meanwhile
USUAL = 0.75  # of their share of what is read, which is not twice the same
ENOUGH = 1000  # pages from the lender, until nobody can say that none flow


@pytest.fixture
def cloud(cluster: Server, store: Path, kernel: Kernel, tmp_path: Path) -> Iterator[Cloud]:
    """Two hosts; both instances are on the first, and the lender has pages of the borrower's file."""
    with Cloud(cluster, store, kernel, tmp_path) as one:
        one.make_pool()
        eventually(one.assert_connected, PATIENCE)
        one.run(one.borrower, f"{STRESS} fill {FILE} mib=256", seconds=300)
        one.stress(f"sequential {FILE} passes=1")
        wait_for_hits(one)
        yield one


def wait_for_hits(cloud: Cloud) -> None:
    """Reads until so many more pages came from the lender."""
    before = cloud.counted("get_hits")

    def come() -> bool:
        cloud.stress(f"random {FILE} seconds=3 threads=2")
        return cloud.counted("get_hits") >= before + ENOUGH

    eventually(come, PATIENCE)


def share(cloud: Cloud) -> float:
    """The lender's share of the pages that the borrower reads from outside its own memory now."""
    hits, reads = cloud.counted("get_hits"), cloud.disk_reads()
    cloud.stress(f"random {FILE} seconds=5 threads=2")
    hits, reads = cloud.counted("get_hits") - hits, cloud.disk_reads() - reads
    return hits / (hits + reads)


def is_usual(cloud: Cloud, usual: float, shares: list[float]) -> bool:
    """Whether the lender has about as large a share as ever; what was seen is noted."""
    shares.append(share(cloud))
    return shares[-1] > USUAL * usual


def sessions_begun(cloud: Cloud) -> int:
    """How often the borrower has connected and found nothing of its own."""
    return cloud.counted("connects") - cloud.counted("resumes")


def test_instances_are_migrated_there_and_back(cloud: Cloud) -> None:
    """Lender and borrower, each to the other host and back: one pairing, one session, no page lost, no byte wrong.

    Their addresses stay, so that connections may outlive it; if they do not, the session goes on with new ones.
    """
    uid, begun = cloud.pairing()["metadata"]["uid"], sessions_begun(cloud)
    guests = {one.name: cloud.guest(one)["metadata"]["uid"] for one in (cloud.lender, cloud.borrower)}
    usual = share(cloud)
    for one in (cloud.lender, cloud.borrower) * 2:
        pages, hits = cloud.counted("catalog_pages"), cloud.counted("get_hits")
        cloud.start_reading()
        cloud.migrate(one)
        eventually(cloud.assert_connected, PATIENCE)
        eventually(lambda hits=hits: cloud.counted("get_hits") > hits + ENOUGH, PATIENCE)
        cloud.end_reading()
        assert cloud.counted("catalog_pages") > KEPT * pages
        shares: list[float] = []
        eventually(lambda shares=shares: is_usual(cloud, usual, shares), PATIENCE)
        print(f"{one.name}: {pages} pages, {cloud.counted('resumes')} resumes; {usual:.0%}, then {shares}")
    assert cloud.where == {one.name: cloud.near for one in (cloud.lender, cloud.borrower)}
    assert {one.name: cloud.guest(one)["metadata"]["uid"] for one in (cloud.lender, cloud.borrower)} == guests
    assert cloud.pairing()["metadata"]["uid"] == uid
    assert sessions_begun(cloud) == begun
    assert cloud.counted("get_misses") < FEW * cloud.counted("get_hits")
    assert cloud.counted("get_corrupt") == 0
    cloud.assert_kernels_well()


@pytest.mark.parametrize("role", ["lender", "borrower"])
def test_an_instance_is_evacuated(cloud: Cloud, role: str) -> None:
    """Its host fails, and it boots on the other one: another identity, the same pairing, and pages flow again.

    Nobody but Nova does anything. The other instance is elsewhere by then, and goes on: if it is the borrower it reads
    all the time, with its lender and without.
    """
    one, other = (cloud.lender, cloud.borrower) if role == "lender" else (cloud.borrower, cloud.lender)
    cloud.migrate(other)
    eventually(cloud.assert_connected, PATIENCE)
    before, uid = cloud.guest(one), cloud.pairing()["metadata"]["uid"]
    if role == "lender":
        cloud.start_reading()
    cloud.near.fail()
    cloud.evacuate(one)
    eventually(lambda: assert_followed(cloud, one, role, before), PATIENCE)
    if role == "lender":
        cloud.end_reading()
    assert cloud.guest(one)["metadata"]["uid"] == before["metadata"]["uid"]
    assert cloud.pairing()["metadata"]["uid"] == uid
    wait_for_hits(cloud)
    cloud.assert_kernels_well()


def assert_followed(cloud: Cloud, one: Instance, role: str, before: dict[str, Any]) -> None:
    """The guest is another boot, where Nova put it, and the pairing is with the identity that it has now."""
    status = cloud.guest(one)["status"]
    assert status["bootID"] != before["status"]["bootID"]
    assert status["identity"] != before["status"]["identity"]
    assert cloud.pairing()["spec"][role]["identity"] == status["identity"]
    cloud.assert_connected()
