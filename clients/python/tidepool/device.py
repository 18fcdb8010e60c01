"""The calls of /dev/tidepool, as the kernel's header tidepool.h has them: structures and numbers."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

from tidepool.errors import NoDeviceError, NotAllowedError, error, spill_error

DEVICE = "/dev/tidepool"
API = 1
NAME_MAX, KEY_MAX, VALUE_MAX, CALLS_MAX = 64, 250, 2 << 20, 256
PUT, GET, DELETE, EXISTS = 1, 2, 3, 4
COUNT_MAX = (1 << 32) - 1
SPILL_MAX = (1 << 63) - 1  # bytes of a file, whatever the disk
KEPT, JOINS = 1, -1  # a flag, and the spill file of a kept pool that is there


class Open(ctypes.Structure):
    """`struct tidepool_open`."""

    _fields_ = [
        ("api", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("spill", ctypes.c_int32),
        ("quota", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_MAX),
    ]


class Call(ctypes.Structure):
    """`struct tidepool_call`."""

    _fields_ = [
        ("what", ctypes.c_uint32),
        ("result", ctypes.c_int32),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("expire_ms", ctypes.c_uint64),
        ("key_size", ctypes.c_uint32),
        ("value_size", ctypes.c_uint32),
    ]


class Calls(ctypes.Structure):
    """`struct tidepool_calls`."""

    _fields_ = [("calls", ctypes.c_uint64), ("count", ctypes.c_uint32), ("wait_us", ctypes.c_uint32)]


class Keys(ctypes.Structure):
    """`struct tidepool_keys`."""

    _fields_ = [
        ("after", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("after_size", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("used", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
    ]


FIGURES = (
    *("quota", "bytes", "values", "value_bytes", "hits", "misses", "lost", "puts", "deletes", "expired", "moved"),
    *("spilled", "local", "front_bytes"),
)


class Figures(ctypes.Structure):
    """`struct tidepool_stats`."""

    _fields_ = [(name, ctypes.c_uint64) for name in FIGURES]


def _number(direction: int, command: int, size: int) -> int:
    return direction << 30 | size << 16 | 0xB7 << 8 | command


WRITE, READ = 1, 2
IOC_OPEN = _number(WRITE, 0x40, ctypes.sizeof(Open))
IOC_CALL = _number(READ | WRITE, 0x41, ctypes.sizeof(Calls))
IOC_KEYS = _number(READ | WRITE, 0x42, ctypes.sizeof(Keys))
IOC_STATS = _number(READ, 0x43, ctypes.sizeof(Figures))
IOC_UNLINK = _number(0, 0x44, 0)


def opened(name: str, mode: int, quota: int, spill: str | os.PathLike[str] | None = None) -> int:
    """A descriptor with a pool, a kept one with a `spill` directory: for as much as one may."""
    what = f"pool {name!r}" if name else "a pool of one's own"
    raw = name.encode()
    if len(raw) >= NAME_MAX or b"\0" in raw or not 0 <= mode < 1 << 32 or not 0 <= quota < 1 << 64:
        raise error(errno.EINVAL, what)
    how = Open(api=API, mode=mode or 0o600, quota=quota, name=raw)
    return _opened(how, what) if spill is None else _opened_kept(how, spill, what)


def _spill_file(folder: str | os.PathLike[str], size: int) -> int:
    """A file without a name."""
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.truncate(file, size)
    except OSError:
        os.close(file)
        raise
    return file


def _opened_kept(how: Open, spill: str | os.PathLike[str], what: str) -> int:
    """Joins the pool, or makes it with a file without a name, which goes with it."""
    how.flags, how.spill = KEPT, JOINS
    try:
        return _opened(how, what)
    except NotAllowedError as failure:
        if failure.errno != errno.EBADF:
            raise
    try:
        how.spill = _spill_file(spill, min(how.quota, SPILL_MAX))
    except OSError as failure:
        raise spill_error(failure.errno or errno.EIO, f"{what}: spill {os.fspath(spill)!r}") from failure
    try:
        return _opened(how, what)
    finally:
        os.close(how.spill)


def _opened(how: Open, what: str) -> int:
    """For as much as the modes of device and pool allow."""
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            return _opened_to(access, how, what)
        except NotAllowedError as failure:
            if failure.errno != errno.EACCES:
                raise
    return _opened_to(os.O_WRONLY, how, what)


def _opened_to(access: int, how: Open, what: str) -> int:
    try:
        device = os.open(DEVICE, access | os.O_CLOEXEC)
    except OSError as failure:
        if failure.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
            raise NoDeviceError(failure.errno, f"{what}: there is no {DEVICE}") from failure
        is_forbidden = failure.errno in (errno.EACCES, errno.EPERM)  # EPERM: a container's
        raise error(errno.EACCES if is_forbidden else failure.errno or errno.EIO, what) from failure
    try:
        ioctl(device, IOC_OPEN, how, what)
    except BaseException:
        os.close(device)
        raise
    return device


def ioctl(device: int, number: int, argument: ctypes.Structure | int, what: str) -> int:
    """One call; a signal's handler has run in between."""
    if device < 0:
        raise ValueError(f"{what}: it is closed")  # as a file says it
    while True:
        try:
            return fcntl.ioctl(device, number, argument)
        except InterruptedError:  # without a result; a handler that raises has ended this already
            continue
        except OSError as failure:
            raise error(failure.errno or errno.EIO, what) from failure


def counted(size: int) -> int:
    """The interface counts keys and values in 32 bits; more is too much there, too."""
    return min(size, COUNT_MAX)


def name_bytes(call: Call, what: str, raw: bytes) -> None:
    """Sets address and size of a call's `what`, key or value; the caller has `raw` until the call is made."""
    setattr(call, what, ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p).value or 0)
    setattr(call, f"{what}_size", counted(len(raw)))


def made(device: int, calls: ctypes.Array[Call], what: str) -> None:
    """Makes calls, each of which has a result then."""
    done, size = 0, ctypes.sizeof(Call)
    while done < len(calls):
        count = min(len(calls) - done, CALLS_MAX)
        some = Calls(calls=ctypes.addressof(calls) + done * size, count=count)
        done += ioctl(device, IOC_CALL, some, what)
