"""A pool: bytes by bytes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from tidepool import device
from tidepool.device import DELETE, EXISTS, GET, PUT, Call, Figures, Keys
from tidepool.errors import error

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
FIRST_GUESS = 4096  # bytes of a value of which nobody knows the size
AT_ONCE = 256  # values that are asked for together, and
ROOM_AT_ONCE = 8 << 20  # bytes of them, unless one alone is larger
LONGEST_MS = (1 << 63) - 1
KEYS_SIZE = 65536  # bytes of keys that are looked at together


@dataclass(frozen=True)
class Stats:
    """What a pool holds, in bytes and values, and what became of calls so far."""

    quota: int
    bytes: int  # whole pages of values, and the memory in which they are remembered
    values: int
    value_bytes: int
    hits: int
    misses: int
    lost: int  # of the misses, those of values that no lender gave back
    puts: int
    deletes: int
    expired: int
    moved: int  # small values that were put again so that a page was left
    spilled: int  # reads of a kept pool that its disk had to answer
    local: int  # hits that needed no lender, as the value is read often
    front_bytes: int  # memory of this machine that such values take now


class Pool:
    """An open pool; threads may share it.

    A pool with a name is the machine's, and stays when all have closed it. One without is one's own.

    It is used like a dictionary, but is none: a value may go at any time, also while one looks through the keys. So
    there is no `items()`; `get_many(pool)` brings what is there.

    Args:
        name: that others see, up to 63 bytes of printable ASCII.
        mode: of a pool with a name that is made now, as a file's.
        quota: bytes that a pool made now may hold; 0: what the administrator allows.
        spill: makes it a kept pool: a directory on a disk of this machine, in which it has a file of `quota` bytes that
            nobody else sees. No value is lost with a lender, and none is needed. The pool ends when the machine does.

    Raises:
        TidepoolError: one of its kinds, see `tidepool.errors`; so does each method.
    """

    _device = -1
    name = ""

    def __init__(
        self, name: str = "", *, mode: int = 0o600, quota: int = 0, spill: str | os.PathLike[str] | None = None
    ) -> None:
        self.name = name
        self._device = device.opened(name, mode, quota, spill)

    def get(self, key: bytes, default: T | None = None) -> bytes | T | None:
        """The value, or `default` if there is none, or no lender gave it back."""
        return self.get_many([key]).get(_raw(key), default)

    def put(self, key: bytes, value: bytes, expire: float | None = None) -> None:
        """Keeps a value, for `expire` seconds if that is given; when it raises nothing has changed."""
        self.put_many({key: value}, expire)

    def put_many(self, values: Mapping[bytes, bytes], expire: float | None = None) -> None:
        """Keeps several, one after the other; all are tried, then the first that could not be kept raises."""
        if expire is not None and not 0 < expire * 1000 <= LONGEST_MS:
            raise error(errno.EINVAL, f"expire={expire}: seconds, more than 0")
        milliseconds = 0 if expire is None else max(1, round(expire * 1000))
        self._do(PUT, [(_raw(key), _raw(value)) for key, value in values.items()], milliseconds)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those values that are there."""
        found: dict[bytes, bytes] = {}
        wanted = dict.fromkeys((_raw(key) for key in keys), FIRST_GUESS)
        while wanted:
            some: dict[bytes, int] = {}
            while wanted and len(some) < AT_ONCE and (not some or sum(some.values()) < ROOM_AT_ONCE):
                key, size = wanted.popitem()
                some[key] = size
            values, larger = self._get_some(some)
            found |= values
            wanted |= larger
        return found

    def size(self, key: bytes) -> int:
        """How many bytes a value has, `KeyError` if there is none; no lender is asked, who may have lost it."""
        call = self._do(EXISTS, [(_raw(key), b"")], 0, (errno.ENOENT,))[0]
        if call.result:
            raise KeyError(key)
        return int(call.value_size)

    def delete(self, key: bytes) -> bool:
        """Lets a value go; whether there was one."""
        return not self._do(DELETE, [(_raw(key), b"")], 0, (errno.ENOENT,))[0].result

    def clear(self) -> None:
        """Lets all values go that are there now."""
        for key in self:
            self.delete(key)

    def stats(self) -> Stats:
        """What it holds, and what became of calls so far."""
        figures = Figures()
        device.ioctl(self._device, device.IOC_STATS, figures, "stats")
        return Stats(**{name: getattr(figures, name) for name in device.FIGURES})

    def unlink(self) -> None:
        """Takes its name away: it goes when the last who has it open closes it."""
        device.ioctl(self._device, device.IOC_UNLINK, 0, f"pool {self.name!r}")

    def close(self) -> None:
        """Leaves it. Nobody uses it any more."""
        left, self._device = self._device, -1
        if left >= 0:
            os.close(left)

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.put(key, value)

    def __delitem__(self, key: bytes) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, Bytes):
            return False
        return not self._do(EXISTS, [(_raw(key), b"")], 0, (errno.ENOENT,))[0].result

    def __iter__(self) -> Iterator[bytes]:
        """Its keys, in the order of their bytes; what is put meanwhile may be left out."""
        after, buffer = b"", ctypes.create_string_buffer(KEYS_SIZE)
        while True:
            last = ctypes.create_string_buffer(after, max(len(after), 1))
            keys = Keys(ctypes.addressof(last), ctypes.addressof(buffer), len(after), KEYS_SIZE)
            device.ioctl(self._device, device.IOC_KEYS, keys, "keys")
            if not keys.used:
                return
            some, at = buffer.raw[: keys.used], 0
            while at < len(some):
                after = some[at + 1 : at + 1 + some[at]]
                at += 1 + len(after)
                yield after

    def __len__(self) -> int:
        return self.stats().values

    def __bool__(self) -> bool:
        """Whether it is open, also while it is empty."""
        return self._device >= 0

    def __reduce__(self) -> str:
        raise TypeError("a pool cannot be copied or pickled: open it again by its name")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Pool({self.name!r})"

    def _get_some(self, sizes: Mapping[bytes, int]) -> tuple[dict[bytes, bytes], dict[bytes, int]]:
        """The values of keys for which there is so much room, and the sizes of those that are larger."""
        buffers = {key: ctypes.create_string_buffer(max(size, 1)) for key, size in sizes.items()}
        calls = self._calls(GET, list(sizes))
        for call, buffer, size in zip(calls, buffers.values(), sizes.values(), strict=True):
            call.value, call.value_size = ctypes.addressof(buffer), size
        self._make(calls, (errno.ENOENT, errno.EMSGSIZE))
        answers = dict(zip(sizes, calls, strict=True))
        found = {key: buffers[key].raw[: call.value_size] for key, call in answers.items() if not call.result}
        larger = {key: int(call.value_size) for key, call in answers.items() if call.result == -errno.EMSGSIZE}
        return found, larger

    @staticmethod
    def _calls(what: int, keys: list[bytes]) -> ctypes.Array[Call]:
        calls = (Call * len(keys))()
        for call, key in zip(calls, keys, strict=True):
            call.what = what
            device.name_bytes(call, "key", key)
        return calls

    def _do(
        self, what: int, pairs: list[tuple[bytes, bytes]], milliseconds: int, fine: tuple[int, ...] = ()
    ) -> ctypes.Array[Call]:
        """Makes a call for each key and value."""
        calls = self._calls(what, [key for key, _ in pairs])
        for call, (_, value) in zip(calls, pairs, strict=True):
            device.name_bytes(call, "value", value)
            call.expire_ms = milliseconds
        self._make(calls, fine)
        return calls

    def _make(self, calls: ctypes.Array[Call], fine: tuple[int, ...]) -> None:
        """Makes calls; the first error that is not `fine` is raised when all were made."""
        device.made(self._device, calls, f"pool {self.name!r}")
        for call in calls:
            if call.result and -call.result not in fine:
                raise error(-call.result, f"pool {self.name!r}")


def _raw(given: Bytes) -> bytes:
    """Keys and values are bytes; what `bytes()` would make of anything else nobody has asked for."""
    if not isinstance(given, Bytes):
        raise TypeError(f"{type(given).__name__} is not bytes")
    return bytes(given)
