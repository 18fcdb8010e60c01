"""Calls of /dev/tidepool that are right, almost right, or rubbish, while what they point to changes: nothing breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_values import of_all, said

from bed.device import MODULES, load_target
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import stress

# What a call may say; anything else is an answer that nobody has thought of.
NAMED = {
    *("ENOENT", "EMSGSIZE", "EINVAL", "E2BIG", "ENOSPC", "EIO", "EFBIG", "EOPNOTSUPP", "ETXTBSY", "EDQUOT"),
    *("ENOTCONN", "EAGAIN", "EEXIST", "EACCES", "EPERM", "EBADF", "ENXIO", "EBUSY", "EPROTONOSUPPORT", "EFAULT"),
    *("ENOMEM", "EINTR", "ENOTTY"),
}
OFTEN = {"EFAULT", "EINVAL", "ENXIO", "EBADF", "EBUSY", "EEXIST", "ENOTTY", "EPROTONOSUPPORT"}
SOME = 60_000
MANY = 2_000_000


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected, and the borrower's device."""
    with (made := Pair(kernel, modules=MODULES)):
        made.connect(size=64 * MIB, more=PATIENT)
        load_target(made.borrower, "app")
        yield made
        made.assert_clean()
        made.borrower.sh("rmmod tidepool_app")


@pytest.mark.parametrize("calls", [SOME, pytest.param(MANY, marks=pytest.mark.long)])
def test_any_calls(pair: Pair, calls: int) -> None:
    """Each has an answer that has a name, no pool is left, no byte of memory is counted, and others are served."""
    report = stress(pair.borrower, f"calls /mnt calls={calls} seconds=9000", timeout=9300)
    print(f"\n{report}")
    assert report["calls"] == calls
    assert set(report["said"]) <= NAMED, report
    assert set(report["said"]) >= OFTEN, report
    assert report["done"] > calls / 4
    counted = of_all(pair.borrower)
    assert min(counted[name] for name in ("hits", "puts", "deletes", "expired")) > 0
    wait_until("nothing is left", lambda: (of_all(pair.borrower)["pools"], of_all(pair.borrower)["bytes"]) == (0, 0))
    assert said(pair.borrower, "put a x\nget a\n") == ["ok", "ok 1 x"]
