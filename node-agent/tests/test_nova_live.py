"""What Nova does to instances while pages flow between them: two real libvirt hosts, and the real operator.

Libvirt and QEMU really migrate and boot; Nova itself is played by the test (see `compute`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cast import eventually
from compute import FILE, STRESS, Cloud, Instance
from tiny import Kernel

from tidepool_api_testing.server import Server

PATIENCE = 300
LOST = ("get_misses", "get_corrupt", "evicted_notices")  # what was believed with the lender, and was not there
KEPT = 0.9  # of the pages; the lender may need some of the memory meanwhile


@pytest.fixture
def cloud(cluster: Server, store: Path, kernel: Kernel, tmp_path: Path) -> Iterator[Cloud]:
    """Two hosts; both instances are on the first, and the lender has pages of the borrower's file."""
    with Cloud(cluster, store, kernel, tmp_path) as one:
        one.make_pool()
        eventually(one.assert_connected, PATIENCE)
        one.run(one.borrower, f"{STRESS} fill {FILE} mib=256", seconds=300)
        one.stress(f"sequential {FILE} passes=1")
        wait_for_hits(one, 1000)
        yield one


def wait_for_hits(cloud: Cloud, more: int) -> None:
    """Reads until so many more pages came from the lender."""
    before = cloud.counted("get_hits")

    def come() -> bool:
        cloud.stress(f"random {FILE} seconds=3 threads=2")
        return cloud.counted("get_hits") >= before + more

    eventually(come, PATIENCE)


def sessions_begun(cloud: Cloud) -> int:
    """How often the borrower has connected and found nothing of its own."""
    return cloud.counted("connects") - cloud.counted("resumes")


def test_instances_are_migrated_there_and_back(cloud: Cloud) -> None:
    """Lender and borrower, each to the other host and back: one pairing, one session, no page lost, no byte wrong."""
    uid, begun, lost = cloud.pairing()["metadata"]["uid"], sessions_begun(cloud), [cloud.counted(one) for one in LOST]
    cloud.start_reading()
    for one in (cloud.lender, cloud.borrower) * 2:
        pages, connects = cloud.counted("catalog_pages"), cloud.counted("connects")
        cloud.migrate(one)
        eventually(cloud.assert_connected, PATIENCE)
        hits = cloud.counted("get_hits")
        eventually(lambda hits=hits: cloud.counted("get_hits") > hits + 100, PATIENCE)
        assert cloud.counted("catalog_pages") > KEPT * pages
        print(f"{one.name}: {cloud.counted('connects') - connects} connects, {pages} pages")
    cloud.end_reading()
    assert cloud.where == {one.name: cloud.near for one in (cloud.lender, cloud.borrower)}
    assert cloud.pairing()["metadata"]["uid"] == uid
    assert sessions_begun(cloud) == begun
    assert [cloud.counted(one) for one in LOST] == lost


@pytest.mark.parametrize("role", ["lender", "borrower"])
def test_an_instance_is_evacuated(cloud: Cloud, role: str) -> None:
    """Its host fails, and it boots on the other one: another identity, the same pairing, and pages flow again.

    Nobody but Nova does anything. The other instance is elsewhere by then, and goes on.
    """
    one, other = (cloud.lender, cloud.borrower) if role == "lender" else (cloud.borrower, cloud.lender)
    cloud.migrate(other)
    eventually(cloud.assert_connected, PATIENCE)
    before, uid = cloud.guest(one), cloud.pairing()["metadata"]["uid"]
    cloud.near.fail()
    cloud.evacuate(one)
    eventually(lambda: is_another_boot(cloud, one, before["status"]["bootID"]), PATIENCE)
    eventually(cloud.assert_connected, PATIENCE)
    after = cloud.guest(one)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["identity"] != before["status"]["identity"]
    assert cloud.pairing()["spec"][role]["identity"] == after["status"]["identity"]
    assert cloud.pairing()["metadata"]["uid"] == uid
    wait_for_hits(cloud, 1000)


def is_another_boot(cloud: Cloud, one: Instance, boot: str) -> bool:
    """Whether the guest is reported as booted anew, by the agent of the host where it is."""
    found = cloud.guest(one)
    return bool(found["status"]["bootID"] != boot and found["spec"]["nodeName"] == cloud.where[one.name].agent.node)
