"""Every method of `tidepool`, on a machine with a lender:  check.py | check.py refused (on one without)."""

from __future__ import annotations

import asyncio
import copy
import sys
import time

import tidepool
from tidepool import device

LARGE, MANY = 1 << 20, 600


def raises(kind: type[BaseException], what: object, *arguments: object, **named: object) -> str:
    """What the exception says that a call raises."""
    assert callable(what)
    try:
        what(*arguments, **named)
    except kind as failure:
        return str(failure)
    raise AssertionError(f"{what} does not raise {kind}")


def check_values(pool: tidepool.Pool) -> None:
    """Like a dictionary's."""
    pool[b"key"] = b"value"
    assert pool[b"key"] == b"value"
    assert pool.get(b"key") == b"value"
    assert b"key" in pool
    assert "key" not in pool
    assert len(pool) == 1
    assert pool.size(b"key") == 5
    del pool[b"key"]
    assert pool.get(b"key", b"else") == b"else"
    assert not pool.delete(b"key")
    for lacking in (pool.__getitem__, pool.__delitem__, pool.size):
        raises(KeyError, lacking, b"key")
    pool[b"empty"] = b""
    assert pool.get(b"empty") == b""
    large = bytes(range(256)) * (LARGE // 256)
    pool.put_many({b"large": large, b"small": b"s"})
    assert pool.get_many([b"large", b"small", b"none"]) == {b"large": large, b"small": b"s"}
    assert pool.get_many([b"small", b"small"]) == {b"small": b"s"}
    assert bytearray(b"small") in pool
    pool.clear()
    assert len(pool) == 0
    assert pool


def check_many(pool: tidepool.Pool) -> None:
    """More than go in one call."""
    values = {b"%05d" % number: b"%d" % number for number in range(MANY)}
    pool.put_many(values)
    assert list(pool) == sorted(values)
    assert pool.get_many(values) == values
    assert pool.get_many(pool) == values
    assert pool.stats().values == MANY
    sizes = {b"%d" % size: bytes(size) for size in (0, 4096, 4097, LARGE, 2 << 20)}
    pool.put_many(sizes)
    assert pool.get_many(sizes) == sizes
    pool.clear()
    pool.put(b"soon", b"gone", expire=0.3)
    assert b"soon" in pool
    time.sleep(0.6)
    assert b"soon" not in pool


def check_errors(pool: tidepool.Pool) -> None:
    """Each has its name, and says what would be right."""
    assert "1 to 250 bytes" in raises(tidepool.BadRequestError, pool.put, b"", b"v")
    raises(tidepool.BadRequestError, pool.put, b"k" * 251, b"v")
    raises(tidepool.BadRequestError, tidepool.Pool, "n" * 64)
    raises(tidepool.BadRequestError, tidepool.Pool, "n", quota=-1)
    for key, value in (("k", b"v"), (3, b"v"), (b"k", 5), (b"k", [1])):
        raises(TypeError, pool.put, key, value)
    for seconds in (0, -1, float(2**64)):
        raises(tidepool.BadRequestError, pool.put, b"k", b"v", seconds)
    raises(TypeError, copy.copy, pool)
    assert device.counted(1 << 32 | 1) > device.VALUE_MAX  # more bytes than the interface counts
    left = tidepool.Pool()
    left.close()
    assert "closed" in raises(ValueError, left.get, b"k")
    raises(tidepool.TooLargeError, pool.put, b"k", bytes((2 << 20) + 1))
    with tidepool.Pool(quota=8 * 4096) as little:
        assert "quota" in raises(tidepool.QuotaError, little.put, b"k", bytes(LARGE))
    raises(tidepool.TidepoolError, pool.unlink)
    device.API += 1
    assert "different versions" in raises(tidepool.OtherVersionError, tidepool.Pool)
    device.API -= 1
    with tidepool.Pool("check", mode=0o666) as one, tidepool.Pool("check") as two:
        one[b"k"] = b"v"
        assert two[b"k"] == b"v"
        two.unlink()


def check_kept() -> None:
    """Its values are there, whoever lends."""
    with tidepool.Pool("kept", quota=1 << 20, spill="/mnt") as one, tidepool.Pool("kept", spill="/mnt") as two:
        one[b"k"] = b"v"
        assert two[b"k"] == b"v"
        assert (two.stats().spilled, two.stats().front_bytes) == (0, 0)
        raises(tidepool.NameTakenError, tidepool.Pool, "kept")
        two.unlink()
    raises(tidepool.SpillError, tidepool.Pool, quota=1 << 20, spill="/tmp")
    assert "No such file" in raises(tidepool.SpillError, tidepool.Pool, quota=1 << 20, spill="/none")
    raises(tidepool.BadRequestError, tidepool.Pool, spill="/mnt")
    for quota in (1 << 62, (1 << 64) - 1):
        raises(tidepool.SpillError, tidepool.Pool, quota=quota, spill="/mnt")


async def check_async() -> None:
    """The event loop goes on, and several wait at the same time."""
    async with tidepool.AsyncPool() as pool:
        await asyncio.gather(*(pool.put(b"%d" % number, b"v%d" % number) for number in range(20)))
        assert await pool.get(b"7") == b"v7"
        assert await pool.get(b"none") is None
        assert await pool.size(b"7") == 2
        assert await pool.size(b"none") is None
        assert len(await pool.keys()) == 20
        assert await pool.delete(b"7")
        assert len(await pool.get_many([b"6", b"7"])) == 1
        assert (await pool.stats()).values == 19


def main() -> None:
    """All of it."""
    with tidepool.Pool() as pool:
        check_kept()
        if sys.argv[1:] == ["refused"]:
            print(raises(tidepool.NoLenderError, pool.put, b"k", b"v"))
            return
        check_values(pool)
        check_many(pool)
        check_errors(pool)
    asyncio.run(check_async())
    print("all is well")


if __name__ == "__main__":
    main()
