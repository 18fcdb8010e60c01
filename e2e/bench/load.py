"""What lenders have to do: borrowers in user space, on this machine, so that the lender alone is slow.

They are the test bed's model of a borrower (bed/protocol.py), which puts and gets pages in batches here, as a guest's
kernel does. Each page that comes back is compared with the one that was put.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bed.protocol import (
    DATA,
    DATA_ITEM,
    GET,
    GET_ITEM,
    NUMBER,
    PAGE,
    PING,
    PUT,
    PUT_ACK,
    PUT_ITEM,
    TAG,
    Borrower,
    KeyPair,
)

PUT_BATCH, GET_BATCH = 64, 32  # pages: what a guest's kernel sends at once, and reads ahead
UNDER_WAY = 4  # batches
PING_SECONDS = 1.0
FILE = 1
_NOISE = random.Random(31).randbytes(1 << 20)
NUMBERED = PAGE - NUMBER.size


def content(index: int) -> bytes:
    """What is in the page of that index: nothing that a compressor makes smaller, and in no other page."""
    begin = index * 64 % (len(_NOISE) - NUMBERED)
    return NUMBER.pack(index) + _NOISE[begin : begin + NUMBERED]


class Client(Borrower):
    """A session in which page i of the one file has version i + 1, and is put once."""

    _pinged = 0.0

    def fill(self, pages: Sequence[int]) -> int:
        """Puts these, in batches of which some are under way at any time; how many were kept."""
        kept, waiting = 0, deque[int]()
        for batch in _batches(pages, PUT_BATCH):
            if len(waiting) == UNDER_WAY:
                kept += self._kept(waiting.popleft())
            waiting.append(self._begin_put(batch))
        return kept + sum(self._kept(number) for number in waiting)

    def read(self, pages: Sequence[int]) -> int:
        """Gets these, likewise; how many were there. AssertionError when one is not what was put."""
        found, waiting = 0, deque[tuple[int, Sequence[int]]]()
        for batch in _batches(pages, GET_BATCH):
            if len(waiting) == UNDER_WAY:
                found += self._found(*waiting.popleft())
            waiting.append((self._begin_get(batch), batch))
        return found + sum(self._found(*one) for one in waiting)

    def times(self, pages: Iterable[int]) -> list[float]:
        """Gets these one after the other, each when the one before has come; seconds that each took."""
        taken = []
        for index in pages:
            begin = time.perf_counter()
            page = self.load(FILE, index, index + 1)
            taken.append(time.perf_counter() - begin)
            assert page == content(index), f"page {index} is not there, or another"
        return taken

    def _stay(self) -> None:
        """A borrower that only puts pings each second, or it is taken for gone."""
        if time.monotonic() - self._pinged > PING_SECONDS:
            self.get.send(PING, 0, next(self._ids))
            self._pinged = time.monotonic()

    def _begin_put(self, batch: Sequence[int]) -> int:
        self._stay()
        number = next(self._ids)
        items = b"".join(PUT_ITEM.pack(FILE, index, index + 1, bytes(TAG)) for index in batch)
        self.put.send(PUT, len(batch), number, items, b"".join(map(content, batch)))
        return number

    def _kept(self, number: int) -> int:
        (kept,) = NUMBER.unpack(self._answer(PUT_ACK, number).metadata)
        return int(kept).bit_count()

    def _begin_get(self, batch: Sequence[int]) -> int:
        number = next(self._ids)
        items = b"".join(GET_ITEM.pack(index, index + 1) for index in batch)
        self.get.send(GET, len(batch), number, NUMBER.pack(FILE) + items)
        return number

    def _found(self, number: int, batch: Sequence[int]) -> int:
        answer = self._answer(DATA, number)
        versions = [version for version, _ in DATA_ITEM.iter_unpack(answer.metadata)]
        hits = [index for index, version in zip(batch, versions, strict=True) if version]
        for place, index in enumerate(hits):
            assert answer.pages[place * PAGE : (place + 1) * PAGE] == content(index), f"page {index} is another"
        return len(hits)


def together(clients: Mapping[str, Client], pages: Sequence[int]) -> float:
    """Each puts these pages, all at the same time; how many were kept in a second, from first to last."""
    ready = threading.Barrier(len(clients) + 1)

    def fill(client: Client) -> int:
        ready.wait()
        return client.fill(pages)

    with ThreadPoolExecutor(len(clients)) as pool:
        under_way = {name: pool.submit(fill, client) for name, client in clients.items()}
        ready.wait()
        begin = time.perf_counter()
        kept = {name: one.result() for name, one in under_way.items()}
        seconds = time.perf_counter() - begin
    missing = [name for name in clients if kept[name] != len(pages)]
    assert not missing, f"not all pages were kept of {', '.join(missing)}: {kept}"
    return len(pages) * len(clients) / seconds


def somebodies(count: int) -> dict[str, KeyPair]:
    """So many borrowers, by name."""
    return {f"borrower-{number}": KeyPair() for number in range(1, count + 1)}


def _batches(pages: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (pages[begin : begin + size] for begin in range(0, len(pages), size))
