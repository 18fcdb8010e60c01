"""A pool for asyncio: what waits for a lender does so in a thread, and the event loop goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from tidepool.pool import Pool, Stats

T = TypeVar("T")
THREADS = 4  # that wait for lenders at the same time


class AsyncPool:
    """A pool whose methods are awaited: `async with AsyncPool("sessions") as pool: await pool.get(b"key")`."""

    def __init__(
        self,
        name: str = "",
        *,
        mode: int = 0o600,
        quota: int = 0,
        spill: str | os.PathLike[str] | None = None,
        threads: int = THREADS,
    ) -> None:
        self._pool = Pool(name, mode=mode, quota=quota, spill=spill)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tidepool")

    async def put(self, key: bytes, value: bytes, expire: float | None = None) -> None:
        """See `Pool.put()`."""
        await self._run(lambda: self._pool.put(key, value, expire))

    async def put_many(self, values: Mapping[bytes, bytes], expire: float | None = None) -> None:
        """See `Pool.put_many()`."""
        given = dict(values)
        await self._run(lambda: self._pool.put_many(given, expire))

    async def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return await self._run(lambda: self._pool.get(key))

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those values that are there."""
        given = list(keys)
        return await self._run(lambda: self._pool.get_many(given))

    async def size(self, key: bytes) -> int | None:
        """How many bytes a value has, or None."""
        try:
            return await self._run(lambda: self._pool.size(key))
        except KeyError:
            return None

    async def delete(self, key: bytes) -> bool:
        """Lets a value go; whether there was one."""
        return await self._run(lambda: self._pool.delete(key))

    async def keys(self) -> list[bytes]:
        """All keys, in the order of their bytes."""
        return await self._run(lambda: list(self._pool))

    async def stats(self) -> Stats:
        """See `Pool.stats()`."""
        return await self._run(self._pool.stats)

    async def unlink(self) -> None:
        """See `Pool.unlink()`."""
        await self._run(self._pool.unlink)

    async def close(self) -> None:
        """Leaves the pool when what was begun is done."""
        await asyncio.shield(asyncio.to_thread(self._end))

    def _end(self) -> None:
        self._threads.shutdown()
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)
