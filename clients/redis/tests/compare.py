"""Two servers, one with the transparent mode and one without: whatever is said to both, both reply alike.

compare.py random OURS PLAIN SEED COUNT    random commands of several clients
compare.py TOPIC OURS PLAIN                see TOPICS
compare.py push|look|... SERVER COUNT         see OF_ONE
"""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

Reply = object
Word = str | bytes | int
LONG = 1000
FAR = 4102444800000  # in milliseconds: the year 2100
SOON = 1_000_000  # likewise: the longest time to live that is not until FAR
PATIENCE = 60  # seconds, on a busy machine, too
LENGTH = 4096  # of values that are asked for by the clock
NEW = 10  # values that are set while others are away
FEW = 16  # commands of a short pipeline


class Error(Exception):
    """What a server replies with in place of something."""


class Client:
    """A connection, as the protocol has it."""

    def __init__(self, path: str) -> None:
        """Connect to a server's socket."""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")

    def say(self, *words: Word) -> Reply:
        """Say it and wait for the reply; an error is one, too."""
        self.send(*words)
        return self.reply()

    def send(self, *words: Word) -> None:
        """Say it."""
        self.socket.sendall(encoded(*words))

    def reply(self) -> Reply:
        """The next reply."""
        line = self.replies.readline()
        if not line:
            raise EOFError("the server has gone")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return ("error", rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        return rest.decode()


def encoded(*words: Word) -> bytes:
    """A command, as the protocol has it."""
    sent = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(sent) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in sent)


class Both:
    """A client of each; what one replies the other must."""

    def __init__(self, ours: str, plain: str) -> None:
        """Connect to both."""
        self.ours, self.plain = Client(ours), Client(plain)

    def say(self, *words: Word, alike: Callable[[Reply], Reply] = lambda reply: reply) -> Reply:
        """Say it to both; `alike` makes alike what need not be."""
        replies = [client.say(*words) for client in (self.ours, self.plain)]
        ours, plain = (alike(reply) for reply in replies)
        assert ours == plain, f"{words!r:.500}: {ours!r:.500} with the transparent mode, {plain!r:.500} without"
        return replies[0]

    def away(self) -> int:
        """How many values are away."""
        return figures(self.ours)["away_values"]

    def wait_away(self, count: int) -> None:
        """Wait until as many values are away."""
        wait_away(self.ours, count)

    def clear(self) -> None:
        """Both are empty; a server may free what it had later."""
        self.say("flushall")
        self.wait_away(0)

    def set_away(self, *keys: str, size: int = LONG) -> None:
        """Set keys, each with a value of its own, and wait until all are away."""
        before = self.away()
        for key in keys:
            self.say("set", key, text(size, key))
        self.wait_away(before + len(keys))


def figures(client: Client) -> dict[str, int]:
    """What the module counts."""
    said = client.say("tide.stats")
    assert isinstance(said, list), said
    return dict(zip(said[::2], said[1::2], strict=True))


def text(size: int, start: str = "") -> bytes:
    """A value that is unlike others."""
    return ((start.encode() or b"v") * size)[:size]


def wait_until(is_so: Callable[[], bool], what: str, state: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}: {state()}"
        time.sleep(0.01)


def in_any_order(reply: Reply) -> Reply:
    """Its parts in an order, all the way down."""
    return sorted(map(in_any_order, reply), key=repr) if isinstance(reply, list) else reply


# ---- topics ----


def reads(both: Both) -> None:
    """What only looks."""
    commands: list[tuple[Word, ...]] = [
        ("get",), ("strlen",), ("getrange", 5, 20), ("substr", 0, -1), ("type",), ("exists",), ("ttl",), ("dump",),
        ("object", "encoding"), ("object", "refcount"), ("bitcount",), ("bitpos", 1), ("getbit", 77), ("expiretime",),
        ("bitfield_ro", "get", "u8", 8), ("getex",), ("touch",), ("lrange", 0, -1), ("hget", "f"), ("scard",),
        ("incr",), ("pfcount",), ("llen",), ("debug", "object"),
    ]  # fmt: skip
    for command in commands:
        both.clear()
        both.set_away("k")
        name, *rest = command
        if name in ("object", "debug"):
            both.say(name, *rest, "k", alike=lambda reply: "of an object" if isinstance(reply, str) else reply)
        else:
            both.say(name, "k", *rest)
        both.say("get", "k")


def writes(both: Both) -> None:
    """What changes a value, or puts another in its place."""
    commands: list[tuple[Word, ...]] = [
        ("append", "k", "more"), ("setrange", "k", 10, "other"), ("setrange", "k", 3000, "z"), ("getset", "k", "new"),
        ("getdel", "k"), ("setbit", "k", 9, 1), ("bitop", "not", "k", "k"), ("bitop", "or", "d", "k", "l"),
        ("set", "k", "v"), ("set", "k", "v", "get"), ("set", "k", "v", "nx"), ("set", "k", "v", "xx"),
        ("set", "k", "v", "keepttl"), ("set", "k", "v", "ifeq", text(LONG, "k")), ("set", "k", "v", "ifeq", "other"),
        ("set", "k", "v", "ifeq", 5), ("setnx", "k", "v"), ("setex", "k", 1000, "v"), ("mset", "k", "1", "l", "2"),
        ("msetnx", "k", "1", "m", "2"), ("mget", "k", "l", "none"), ("del", "k", "l"), ("unlink", "k"), ("incr", "k"),
        ("lpush", "k", "e"), ("hset", "k", "f", "v"), ("rename", "k", "l"), ("rename", "k", "k2"),
        ("renamenx", "k", "l"), ("copy", "k", "k2"), ("copy", "k", "l", "replace"), ("copy", "k", "k", "db", 3),
        ("move", "k", 2), ("lcs", "k", "l"), ("pfadd", "k", "e"), ("incrbyfloat", "k", 1), ("sinterstore", "k", "s"),
        ("getex", "k", "persist"), ("persist", "k"), ("pexpireat", "k", FAR), ("swapdb", 0, 1), ("flushdb",),
    ]  # fmt: skip
    for command in commands:
        both.clear()
        both.set_away("k", "l")
        both.say("pexpireat", "k", FAR)
        both.wait_away(2)
        both.say(*command)
        same_everywhere(both)


def same_everywhere(both: Both) -> None:
    """All keys of all databases are the same."""
    for database in range(4):
        both.say("select", database)
        keys = both.say("keys", "*", alike=in_any_order)
        assert isinstance(keys, list)
        for key in keys:
            both.say("type", key)
            both.say("pexpiretime", key, alike=about)
            both.say("dump", key)
    both.say("select", 0)


def about(reply: Reply) -> Reply:
    """A time that is up to SOON from now counts from when its server was asked; others are exact."""
    is_soon = isinstance(reply, int) and 0 < reply - 1000 * time.time() <= SOON
    return "soon" if is_soon else reply


def numbers(both: Both) -> None:
    """What is too long to be a number is none, also when it was away."""
    both.say("set", "k", b"0" * 300 + b"1")
    both.wait_away(1)
    both.say("incr", "k")
    both.say("set", "k", b"1" * 300)
    both.wait_away(1)
    both.say("incrbyfloat", "k", 1)


def expiry(both: Both) -> None:
    """A time to live holds, and is kept to the millisecond."""
    both.set_away("k", "l")
    both.say("pexpireat", "k", FAR + 7)
    both.wait_away(2)
    assert both.say("pexpiretime", "k") == FAR + 7
    both.say("getrange", "k", 0, 3)
    assert both.say("pexpiretime", "k") == FAR + 7
    both.wait_away(2)
    assert both.say("pexpiretime", "k") == FAR + 7
    both.say("pexpire", "l", 300)
    time.sleep(0.5)
    assert both.say("get", "l") is None
    both.wait_away(1)
    both.say("pexpire", "k", 100)
    wait_until(lambda: both.ours.say("dbsize") == 0, "it expires by itself", lambda: figures(both.ours))


def transactions(both: Both, sockets: tuple[str, str]) -> None:
    """What is queued finds its values, however long that takes; what is watched is not changed by going away."""
    both.set_away("a", "b", "c", "o1")
    both.say("rpush", "list", "1")
    other = Both(*sockets)
    other.say("watch", "a")
    other.wait_away(4)
    other.say("multi")
    for command in (("get", "a"), ("append", "b", "x"), ("getrange", "c", 2, 9), ("sort", "list", "get", "o*")):
        other.say(*command)
    time.sleep(0.3)
    both.say("select", 1)
    both.say("select", 0)
    both.say("set", "d", text(LONG, "d"))
    time.sleep(0.3)
    assert isinstance(other.say("exec"), list)
    both.wait_away(5)
    other.say("watch", "a")
    both.say("append", "a", "changed")
    other.say("multi")
    other.say("get", "a")
    assert other.say("exec") is None
    both.wait_away(5)
    other.say("multi")
    other.say("get", "nothing")
    other.say("eval", "return redis.call('get', KEYS[1])", 1, "a")
    other.say("scan", 0, "count", 1000, "type", "string")
    time.sleep(0.3)
    said = other.ours.say("exec")
    assert isinstance(said, list)
    assert isinstance(said[2], list)
    assert sorted(said[2][1]) == [b"a", b"b", b"c", b"d", b"o1"]


def scripts(both: Both) -> None:
    """A script sees the string, also under a name that it did not announce."""
    for script in (
        "return redis.call('get', KEYS[1])",
        "return redis.call('get', 'k')",
        "redis.call('append', KEYS[1], 'x') return redis.call('strlen', KEYS[1])",
        "return redis.call('type', KEYS[1])",
        "return redis.pcall('lpush', KEYS[1], 'x')",
        "return redis.call('mget', 'l', 'k', 'none')",
    ):
        both.clear()
        both.set_away("k", "l")
        both.say("eval", script, 1, "k")
    both.wait_away(2)
    both.say("eval_ro", "return redis.call('get', KEYS[1])", 1, "k")


def patterns(both: Both) -> None:
    """SORT finds what its patterns mean, SCAN what is a string."""
    both.say("rpush", "list", "1", "2", "3")
    both.say("zadd", "zset", 1, "1", 2, "3")
    keys = [f"{kind}{number}" for kind in "ow" for number in (1, 2, 3)]
    for command in (
        ("sort", "list", "by", "w*", "get", "o*", "get", "#", "alpha"),
        ("sort_ro", "list", "by", "nosort", "get", "o*"),
        ("sort", "list", "by", "w*", "desc", "alpha", "store", "o1"),
        ("sort", "zset", "by", "nosort", "get", "o*x", "get", "o*"),
    ):
        both.say("del", *keys)
        both.wait_away(0)
        both.set_away(*keys)
        both.say(*command)
        both.say("get", "w1")
    both.say("del", *keys)
    both.wait_away(0)
    both.set_away(*(f"many{number}" for number in range(400)))
    for words in (("type", "string"), ("match", "many1*", "type", "STRING"), ("type", "tide-away"), ("type", "list")):
        both.wait_away(400)
        found = [sorted(scan(client, *words)) for client in (both.ours, both.plain)]
        assert found[0] == found[1], words
    assert not list(scan(both.ours, "type", "tide-away"))


def scan(client: Client, *words: Word) -> Iterator[bytes]:
    """All that SCAN finds, which is nothing of a type that it does not know."""
    cursor: Word = "0"
    while isinstance(reply := client.say("scan", cursor, *words), list):
        yield from set(reply[1])
        cursor = reply[0]
        if cursor == b"0":
            return


def databases(both: Both) -> None:
    """A name means another key in each database; databases are swapped."""
    for database in (0, 1, 5):
        both.say("select", database)
        both.say("set", "k", text(LONG, f"in {database} "))
    both.wait_away(3)
    both.say("swapdb", 5, 7)
    for database in (7, 1, 0, 5):
        both.say("select", database)
        both.say("get", "k")
    both.wait_away(3)
    both.say("flushdb")
    both.say("flushall", "async")
    both.wait_away(0)


def rights(both: Both, sockets: tuple[str, str]) -> None:
    """Who may not read a key reads none that was away, and is told the same."""
    both.say("acl", "setuser", "tenant", "reset", "on", ">secret", "~mine:*", "+@read", "+@write", "-getset")
    both.set_away("mine:k", "other:k")
    tenant = Both(*sockets)
    tenant.say("auth", "tenant", "secret")
    for command in (
        ("get", "mine:k"), ("get", "other:k"), ("mget", "mine:k", "other:k"), ("append", "other:k", "x"),
        ("getset", "mine:k", "x"), ("strlen", "mine:k"), ("debug", "object", "mine:k"), ("tide.stats",), ("tide.back",),
        ("copy", "other:k", "mine:c"), ("sort", "mine:k", "get", "other:*"),
    ):  # fmt: skip
        replies = [tenant.ours.say(*command), tenant.plain.say(*command)]
        if not command[0].startswith("tide"):
            assert replies[0] == replies[1], command
        else:
            assert "NOPERM" in str(replies[0]), command
    both.say("get", "other:k")
    assert "the module's own" in str(both.ours.say("tide.back"))
    both.say("acl", "deluser", "tenant")


def memory(both: Both) -> None:
    """Memory is given back, and no name of a key is lost."""
    fill(both, 4000)
    used = [number_of(client, "used_memory") for client in (both.ours, both.plain)]
    assert used[0] < used[1] - 0.8 * 4000 * 4096, used
    both.say("dbsize")
    both.say("keys", "*", alike=in_any_order)


def fill(both: Both, count: int) -> None:
    """Some keys, with values that are away."""
    for number in range(count):
        both.say("set", f"key:{number}", text(4096, f"{number} "))
    both.wait_away(count)


def number_of(client: Client, name: str) -> int:
    """A figure of INFO's."""
    said = client.say("info")
    assert isinstance(said, bytes)
    return next(int(line.partition(b":")[2]) for line in said.splitlines() if line.startswith(f"{name}:".encode()))


def pauses(both: Both, sockets: tuple[str, str]) -> None:
    """A command that had to wait for its server finds its values."""
    both.set_away("k", "l")
    other = Both(*sockets)
    for _ in range(20):
        both.say("client", "pause", 30)
        for client in (other.ours, other.plain):
            client.send("append", "k", "x")
        assert other.ours.reply() == other.plain.reply()
        both.say("client", "pause", 1000)
        for client in (other.ours, other.plain):
            client.send("get", "l")
        both.say("client", "unpause")
        assert other.ours.reply() == other.plain.reply()


def push(path: str, keys: int) -> None:
    """Fill one server; prints nothing."""
    fill_one(path, keys, keys)


def push_half(path: str, keys: int) -> None:
    """Fill one from which only half may go away: what has a time to live."""
    client = fill_one(path, keys, keys // 2)
    time.sleep(1)
    assert figures(client)["away_values"] == keys // 2


def fill_one(path: str, keys: int, away: int) -> Client:
    """Every other key has a time to live."""
    client = Client(path)
    for number in range(keys):
        client.say("set", f"key:{number}", text(1000 + number, f"{number} "))
        if number % 2:
            client.say("pexpireat", f"key:{number}", FAR)
    wait_away(client, away)
    return client


def look(path: str, keys: int) -> None:
    """A server has what push() has put, as ordinary strings."""
    client = Client(path)
    for number in range(keys):
        key = f"key:{number}"
        assert client.say("type", key) == "string", key
        assert client.say("get", key) == text(1000 + number, f"{number} "), key
        assert client.say("pexpiretime", key) == (FAR if number % 2 else -1), key


def expire(path: str, keys: int) -> None:
    """Of what survive() has left half expires while it is away, and is found to have when it is asked for."""
    client = Client(path)
    client.say("debug", "set-active-expire", 0)
    wait_away(client, keys)
    for number in range(keys // 2):
        client.say("pexpire", f"key:{number}", 1000)
    assert figures(client)["away_values"] == keys
    time.sleep(1.2)
    for number in range(keys // 2):
        assert client.say("append", f"key:{number}", "y") == 1
    client.say("debug", "set-active-expire", 1)


def survive(path: str, keys: int) -> None:
    """Of what push() has put each value is right or gone; prints how many are gone."""
    client, gone = Client(path), 0
    for number in range(keys):
        key, value = f"key:{number}", text(1000 + number, f"{number} ")
        size = client.say("append", key, "x")
        assert size in (1, len(value) + 1), (key, size)
        assert client.say("get", key) == (b"x" if size == 1 else value + b"x"), key
        assert size != 1 or client.say("pexpiretime", key) == -1, key
        gone += size == 1
    print(gone)


def obey(path: str, keys: int) -> None:
    """Of what push() has put only that is away which the policy lets be away, and a new policy holds at once."""
    client = Client(path)
    set_policy(client, "allkeys-lfu")
    stays(client, keys)
    set_policy(client, "allkeys-lru")
    wait_away(client, keys + NEW)
    set_policy(client, "volatile-lfu")
    wait_away(client, keys // 2)
    set_policy(client, "volatile-ttl")
    stays(client, keys // 2)
    for _ in range(3):
        set_policy(client, "allkeys-random")
        wait_away(client, keys + NEW)
        set_policy(client, "noeviction")
        stays(client, 0)


def set_policy(client: Client, policy: str) -> None:
    """It is the server's from now on."""
    assert client.say("config", "set", "maxmemory-policy", policy) == "OK"


def stays(client: Client, away: int) -> None:
    """So many are away at last; none goes away before, and what is set at once does not, either."""
    went = figures(client)["away_went"]
    for number in range(NEW):
        client.say("set", f"new:{number}", text(LONG))
    time.sleep(0.5)
    wait_away(client, away)
    assert figures(client)["away_went"] == went


def wait_away(client: Client, count: int) -> None:
    """Wait until as many values are away."""
    wait_until(lambda: figures(client)["away_values"] == count, f"{count} are away", lambda: figures(client))


def count_anew(path: str, keys: int) -> None:
    """How long a key is idle counts from the policy on that keeps it; LFU has left something else there."""
    client = Client(path)
    set_policy(client, "allkeys-lfu")
    for number in range(keys):
        client.say("set", f"key:{number}", text(LONG))
    set_policy(client, "allkeys-lru")
    start = time.monotonic()
    wait_away(client, keys)
    print(round(time.monotonic() - start))


def stock(path: str, keys: int) -> None:
    """As many values that are away as values of TIDE.SET, all as long."""
    client = Client(path)
    for number in range(keys):
        client.say("set", f"key:{number}", text(LENGTH, f"{number} "))
        client.say("tide.set", f"key:{number}", text(LENGTH, f"{number} "))
    wait_away(client, keys)


def race(path: str, keys: int) -> None:
    """Asks for what stock() has put, by GET and TIDE.GET in turn; prints the medians of their microseconds."""
    client = Client(path)
    times = [(timed(client, "get", number), timed(client, "tide.get", number)) for number in range(keys)]
    assert figures(client)["away_came"] == keys, figures(client)
    print(*(round(1e6 * sorted(column)[keys // 2]) for column in zip(*times, strict=True)))


def timed(client: Client, command: str, number: int) -> float:
    """How many seconds a value takes."""
    start = time.perf_counter()
    value = client.say(command, f"key:{number}")
    seconds = time.perf_counter() - start
    assert value == text(LENGTH, f"{number} ")
    return seconds


def pipe(path: str, keys: int) -> None:
    """Sets values by TIDE.SET, a few at a time and then all at once; prints how many milliseconds each takes."""
    client = Client(path)
    print(*(round(1000 * piped(client, keys, at_once)) for at_once in (FEW, keys)))


def piped(client: Client, keys: int, at_once: int) -> float:
    """How many seconds it takes to set values in pipelines of so many."""
    start = time.monotonic()
    for first in range(0, keys, at_once):
        numbers = range(first, min(keys, first + at_once))
        client.socket.sendall(b"".join(encoded("tide.set", f"key:{number}", text(LENGTH)) for number in numbers))
        assert all(client.reply() == "OK" for _ in numbers)
    return time.monotonic() - start


def together(path: str, gets: int) -> None:
    """Several clients at the same time, each with values of its own; one of them asks for many in one piece."""
    pieces = (1, 1, 1, 1, FEW)
    with ThreadPoolExecutor(len(pieces)) as clients:
        jobs = [clients.submit(own, path, number, gets // piece, piece) for number, piece in enumerate(pieces)]
    for job in jobs:
        job.result()


def own(path: str, number: int, times: int, piece: int) -> None:
    """One of them: whatever it asks for, it gets what it has put, and nothing for what it has not."""
    client, chance = Client(path), random.Random(number)
    sizes = (0, 10, 3000, LENGTH, 65536, 70000)
    values = {f"{number}:{key}": chance.randbytes(chance.choice(sizes)) for key in range(40)}
    for name, value in values.items():
        assert client.say("tide.set", name, value) == "OK"
    for _ in range(times):
        names = [chance.choice([*values, "none"]) for _ in range(piece)]
        client.socket.sendall(b"".join(encoded("tide.get", name) for name in names))
        for name in names:
            assert client.reply() == values.get(name), name


def pings(path: str, count: int) -> None:
    """Prints how many milliseconds the slowest of some pings takes."""
    client, slowest = Client(path), 0.0
    for _ in range(count):
        start = time.monotonic()
        assert client.say("ping") == "PONG"
        slowest = max(slowest, time.monotonic() - start)
        time.sleep(0.02)
    print(round(1000 * slowest))


def hurry(path: str, keys: int) -> None:
    """Has values go away while memory is full and while it is nearly; prints the least milliseconds of each."""
    client = Client(path)
    rounds = [[going(client, keys, used) for used in (0.995, 0.945)] for _ in range(3)]
    print(*(round(1000 * min(column)) for column in zip(*rounds, strict=True)))


def going(client: Client, keys: int, used: float) -> float:
    """How many seconds values take that all go at once, when so much of the server's memory is used.

    They are a small part of it: it is about as full when they have gone. The rest is in a value that is too long to go.
    """
    set_policy(client, "volatile-lru")
    client.say("flushall")
    client.say("setrange", "rest", 30 * keys * LONG, "x")
    for number in range(keys):
        client.say("set", f"key:{number}", text(LONG))
    time.sleep(2)  # all are idle for a second, as the server counts
    client.say("config", "set", "maxmemory", round(number_of(client, "used_memory") / used))
    set_policy(client, "allkeys-lru")
    began = when_away(client, 1)
    seconds = when_away(client, keys) - began
    client.say("config", "set", "maxmemory", 0)
    return seconds


def when_away(client: Client, count: int) -> float:
    """When as many values are away or more, to the millisecond, as nobody sleeps meanwhile."""
    end = time.monotonic() + PATIENCE
    while figures(client)["away_values"] < count:
        assert time.monotonic() < end, figures(client)
    return time.monotonic()


# ---- random commands ----

KEYS = [f"k{number}" for number in range(24)]
POLICIES = (
    *["allkeys-lru"] * 6, "allkeys-random", "volatile-lru", "volatile-ttl", "allkeys-lfu", "volatile-lfu", "noeviction",
)  # fmt: skip
SIZES = (0, 5, 60, 255, 256, 300, 4096, 9000)
SCRIPTS = (
    "return redis.pcall('get', KEYS[1])",
    "return redis.pcall('append', KEYS[1], ARGV[1])",
    "local v = redis.pcall('get', KEYS[1]) if type(v) == 'string' then redis.call('set', KEYS[2], v) end return 1",
)


class Random:
    """Commands by chance."""

    def __init__(self, seed: int) -> None:
        """The same seed, the same commands."""
        self.chance = random.Random(seed)

    def key(self) -> str:
        """One of few."""
        return self.chance.choice(KEYS)

    def value(self) -> bytes:
        """Short, long, or just as long as goes away."""
        size = self.chance.choice(SIZES)
        return self.chance.randbytes(min(size, 40)).ljust(size, b"%d" % self.chance.randrange(10))

    def command(self) -> tuple[Word, ...]:
        """Any but those that ask for the time or for chance themselves."""
        key, other, value, at = self.key(), self.key(), self.value(), self.chance.randrange(400)
        return self.chance.choice(
            (
                *[("get", key)] * 6, *[("set", key, value)] * 8, ("set", key, value, "get"), ("set", key, value, "nx"),
                ("set", key, value, "xx", "keepttl"), ("set", key, value, "pxat", FAR + at), ("getset", key, value),
                ("append", key, value), ("append", key, "x"), ("setrange", key, at, "abc"),
                ("getrange", key, at, at + 9), ("strlen", key), ("getdel", key), ("getex", key, "persist"),
                ("getex", key, "pxat", FAR + at),
                ("mget", key, other, self.key()), ("mset", key, value, other, self.value()), ("incr", key),
                ("msetnx", key, value, other, value), ("setnx", key, value), ("incrbyfloat", key, 1), ("del", key),
                ("unlink", key, other), ("exists", key, other), ("type", key), ("touch", key, other), ("dump", key),
                ("pexpireat", key, FAR + at), ("pexpireat", key, 1), ("persist", key), ("pexpiretime", key),
                ("expiretime", key),
                ("rename", key, other), ("renamenx", key, other), ("copy", key, other), ("copy", key, other, "replace"),
                ("copy", key, other, "db", at % 3), ("move", key, at % 3), ("setbit", key, at, 1), ("bitcount", key),
                ("bitop", "xor", key, other, self.key()), ("bitfield", key, "incrby", "u8", at, 1), ("pfadd", key, at),
                ("pfcount", key, other), ("pfmerge", key, other), ("lpush", key, at), ("rpop", key), ("sadd", key, at),
                ("sort", key, "by", "k*", "get", "k*", "alpha"), ("object", "encoding", key), ("dbsize",),
                ("eval", self.chance.choice(SCRIPTS), 2, key, other, value), ("swapdb", at % 3, (at + 1) % 3),
                ("select", at % 3), ("watch", key), ("unwatch",), ("zadd", key, at, "m"),
                *[("multi",), ("exec",)] * 4, ("discard",), ("flushdb",) if at < 5 else ("ping",),
                ("scan", 0, "count", 1000, "type", "string"), ("keys", "*"), ("restore", key, 0, "no dump"),
                ("config", "set", "maxmemory-policy", self.chance.choice(POLICIES)),
            )
        )  # fmt: skip


def alike(command: tuple[Word, ...]) -> Callable[[Reply], Reply]:
    """What a table's order decides is the same in any order, also in a transaction's reply."""
    return in_any_order if command[0] in ("keys", "sort", "scan", "exec") else lambda reply: reply


def at_random(sockets: tuple[str, str], seed: int, count: int) -> None:
    """Several clients; now and then there is time for values to go away, and another policy."""
    clients = [Both(*sockets) for _ in range(4)]
    clients[0].clear()
    chance = Random(seed)
    for number in range(count):
        command = chance.command()
        try:
            chance.chance.choice(clients).say(*command, alike=alike(command))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, command {number}: {error}") from None
        if chance.chance.random() < 0.01:
            time.sleep(0.02)
    for client in clients:
        client.say("discard")
    clients[0].say("config", "set", "maxmemory-policy", "allkeys-lru")
    same_everywhere(clients[0])
    figure = figures(clients[0].ours)
    assert not figure["away_lost"], figure
    assert figure["away_came"] > count / 400, figure


def alone(path: str, count: int) -> None:
    """Several clients of one server, whatever it replies; what it has then others must have."""
    clients = [Client(path) for _ in range(4)]
    chance = Random(count)
    for _ in range(count):
        chance.chance.choice(clients).say(*chance.command())
        if chance.chance.random() < 0.01:
            time.sleep(0.02)
    for client in clients:
        client.say("discard")


TOPICS: dict[str, Callable[..., None]] = {
    topic.__name__: topic
    for topic in (reads, writes, numbers, expiry, scripts, patterns, databases, memory, transactions, rights, pauses)
}
OF_ONE: dict[str, Callable[[str, int], None]] = {
    one.__name__: one
    for one in (
        push,
        push_half,
        look,
        survive,
        expire,
        obey,
        count_anew,
        stock,
        race,
        pipe,
        together,
        pings,
        hurry,
        alone,
    )
}
OF_SEVERAL = {"transactions", "rights", "pauses"}


def main(what: str, *rest: str) -> None:
    """What the command line says."""
    if what in OF_ONE:
        return OF_ONE[what](rest[0], int(rest[1]))
    sockets = (rest[0], rest[1])
    if what == "random":
        return at_random(sockets, int(rest[2]), int(rest[3]))
    both = Both(*sockets)
    both.clear()
    return TOPICS[what](both, sockets) if what in OF_SEVERAL else TOPICS[what](both)


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("all is well")
