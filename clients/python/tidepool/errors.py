"""What may go wrong, an exception for each; all are `OSError` with the errno that the device gave."""

from __future__ import annotations

import errno
import os


class TidepoolError(OSError):
    """Anything that the device refuses."""


class NoDeviceError(TidepoolError):
    """There is no /dev/tidepool: the kernel module tidepool-app is not loaded, or the container does not have it."""


class NotAllowedError(TidepoolError, PermissionError):
    """The mode of the device or of the pool does not let one in."""


class NameTakenError(TidepoolError, FileExistsError):
    """Another user has a pool of that name, and it is not what was asked for; or it is of the other kind."""


class OtherVersionError(TidepoolError):
    """The kernel module and this package are of different versions."""


class BadRequestError(TidepoolError, ValueError):
    """A key of no byte or more than 250, a name, mode, quota or time that is none."""


class TooLargeError(TidepoolError, ValueError):
    """A value of more than 2 MiB."""


class QuotaError(TidepoolError):
    """The quota of the pool, of the user or of the machine is full."""


class SpillError(TidepoolError):
    """The file of a kept pool is full, cannot be where it is to be, or its disk has lost something."""


class NoLenderError(TidepoolError, ConnectionError):
    """No lender takes pages."""


class TooSlowError(TidepoolError, TimeoutError):
    """Lenders were too slow to take the value, or memory was too short to read it; try again."""


MEANING: dict[int, tuple[type[TidepoolError], str]] = {
    errno.EACCES: (NotAllowedError, "the mode of the pool, or of /dev/tidepool, does not let you in"),
    errno.EBADF: (NotAllowedError, "you may only read from the pool, and not change it; or only put, and not read"),
    errno.EPERM: (NotAllowedError, "the pool is somebody else's"),
    errno.EEXIST: (NameTakenError, "another user has a pool of that name, or it is of the other kind"),
    errno.EPROTONOSUPPORT: (OtherVersionError, "the kernel module and this package are of different versions"),
    errno.EINVAL: (
        BadRequestError,
        "a key has 1 to 250 bytes, a name up to 63 of ASCII, a mode 0o666 at most, a kept pool two pages of quota",
    ),
    errno.E2BIG: (TooLargeError, "a value has 2 MiB at most"),
    errno.EDQUOT: (QuotaError, "the quota of the pool, of the user or of the machine is full"),
    errno.ENOSPC: (SpillError, "the file of the kept pool is full, or the disk is"),
    errno.EIO: (SpillError, "the disk of the kept pool has lost something"),
    errno.EFBIG: (SpillError, "the file of the kept pool is larger than a program or a disk may have one"),
    errno.EOPNOTSUPP: (SpillError, "the directory has to be on a disk of this machine, and the file there allocated"),
    errno.ENOTCONN: (NoLenderError, "no lender takes pages"),
    errno.EAGAIN: (TooSlowError, "lenders are too slow, or memory is too short"),
}


def error(number: int, what: str) -> TidepoolError:
    """The exception for an errno; `what` was to be done, without any value."""
    kind, text = MEANING.get(number, (TidepoolError, os.strerror(number)))
    return kind(number, f"{what}: {text}")


def spill_error(number: int, what: str) -> TidepoolError:
    """The exception for an errno of a directory that is to have the file of a kept pool."""
    known = error(number, what)
    return known if isinstance(known, SpillError) else SpillError(number, f"{what}: {os.strerror(number)}")
