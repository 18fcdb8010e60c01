"""Values by key in the unused memory of other machines.

    with tidepool.Pool("sessions") as pool:
        pool[b"key"] = b"value"
        value = pool.get(b"key")

A value may be gone when it is asked for: its lender may have gone, or taken its memory back. What comes is what was put
last. A pool is a cache, and no place for what exists nowhere else; one with a `spill` directory keeps its values.
"""

from tidepool.aio import AsyncPool
from tidepool.errors import (
    BadRequestError,
    NameTakenError,
    NoDeviceError,
    NoLenderError,
    NotAllowedError,
    OtherVersionError,
    QuotaError,
    SpillError,
    TidepoolError,
    TooLargeError,
    TooSlowError,
)
from tidepool.pool import Pool, Stats

__all__ = [
    "AsyncPool",
    "BadRequestError",
    "NameTakenError",
    "NoDeviceError",
    "NoLenderError",
    "NotAllowedError",
    "OtherVersionError",
    "Pool",
    "QuotaError",
    "SpillError",
    "Stats",
    "TidepoolError",
    "TooLargeError",
    "TooSlowError",
]
