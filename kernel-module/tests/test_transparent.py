"""The transparent mode of the module for Redis: values that go away and come back are never wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import pytest
from test_clients import REDIS, REDIS_MODULE, SERVER, WITH_PYTHON, disk_of_clients, late_lender

from bed import foreign
from bed.device import MODULES, load_target
from bed.guest import Guest, Job
from bed.image import with_tools
from bed.pair import DEADLINE_US, NAME, PATIENT, Pair
from bed.tidepool import MIB, wait_until

OURS, REPLICA = "ours", "replica"
ALIKE = ("alike", "plain")
PORT = 7391
KEYS = 400
SLOWLY = "20000"  # microseconds for a key: a child that writes all of them takes 8 s
LATE_SECONDS = 2  # that a lender stands still: far longer than a get waits, and shorter than until it counts as lost
REDIS_SERVER = with_tools(SERVER).replace(SERVER, "redis-server")
VALKEY = "/valkey"
AT_ONCE = "TRANSPARENT yes ABOVE 256 IDLE 0"
LRU = "--maxmemory-policy allkeys-lru"
TOPICS = (
    "reads", "writes", "numbers", "expiry", "scripts", "patterns", "databases", "memory", "transactions", "rights",
    "pauses",
)  # fmt: skip


class Server:
    """A redis-server in a guest: `with Server(guest, OURS, "--save ''", module="TRANSPARENT yes"):`."""

    def __init__(
        self, guest: Guest, name: str, options: str = "", *, module: str | None = AT_ONCE, program: str = REDIS_SERVER
    ) -> None:
        self.program = program
        self.guest, self.socket, self.folder = guest, f"/tmp/{name}", f"/tmp/{name}.files"
        self.options = f"--unixsocket {self.socket} --dir {self.folder} --save '' --enable-debug-command yes {options}"
        self.module = "" if module is None else f"--loadmodule {REDIS_MODULE} THREADS 3 {module}"

    def __enter__(self) -> Self:
        self.job = self.start()
        wait_until("the server answers", self.answers)
        return self

    def __exit__(self, *_: object) -> None:
        self.say("shutdown", "nosave")
        self.job.result()

    def start(self) -> Job:
        """Start it, whether or not it will answer."""
        port = "" if "--port" in self.options else "--port 0"
        self.guest.sh(f"mkdir -p {self.folder}")
        return self.guest.start(f"{self.program} {port} {self.options} {self.module}")

    def answers(self) -> bool:
        """Whether it has loaded what it had to."""
        assert self.job.running, self.job.result().output
        return self.say("ping") == "PONG"

    def say(self, *words: str) -> str:
        """What it replies."""
        quoted = " ".join(f"'{word}'" for word in words)
        return self.guest.run(f"{with_tools('redis-cli')} -s {self.socket} {quoted}").output.strip()

    def figure(self, name: str) -> int:
        """One of INFO's."""
        lines = (line.partition(":") for line in self.say("info", "everything").splitlines())
        return next(int(value) for key, _, value in lines if key == name)

    def check(self, what: str, count: int = KEYS) -> list[str]:
        """What compare.py says of it alone."""
        return compared(self.guest, what, self.socket, str(count))


def compared(guest: Guest, *words: str) -> list[str]:
    """What compare.py says before all is well."""
    said = guest.sh(f"{WITH_PYTHON} /compare.py {' '.join(words)}", timeout=900).splitlines()
    assert said[-1] == "all is well"
    return said[:-1]


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected; the borrower has the device, Python and Redis."""
    with (made := Pair(kernel, disk=None, modules=MODULES, tools=disk_of_clients(), borrower_mem="384M")):
        made.connect(size=64 * MIB, more=PATIENT)
        load_target(made.borrower, "app")
        made.borrower.sh("mkdir /tools && mount -o ro /dev/vda /tools && ip link set lo up")
        made.borrower.write("/compare.py", (REDIS / "tests" / "compare.py").read_text())
        yield made
        made.assert_clean()
        made.borrower.sh("rmmod tidepool_app")


def installed(guest: Guest, kind: str) -> str:
    """What runs a server of a kind: Redis of this Debian, or Valkey of the next."""
    if kind == "redis":
        return REDIS_SERVER
    if guest.run(f"[ -d {VALKEY} ]").code:
        foreign.install(guest, "valkey-server", "usr/bin/valkey-server", suite="trixie", folder=VALKEY)
    return foreign.command("valkey-server", VALKEY)


@pytest.fixture(scope="module", params=["redis", "valkey"])
def both(pair: Pair, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A guest with two servers, one with the transparent mode and one without."""
    program = installed(pair.borrower, request.param)
    with (
        Server(pair.borrower, ALIKE[0], LRU, program=program),
        Server(pair.borrower, ALIKE[1], LRU, module=None, program=program),
    ):
        yield pair.borrower


@pytest.mark.parametrize("topic", TOPICS)
def test_replies_are_alike(both: Guest, topic: str) -> None:
    """A server with the transparent mode replies as one without; clients/redis/tests/compare.py has the commands."""
    compared(both, topic, *(f"/tmp/{name}" for name in ALIKE))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_replies_to_random_commands_are_alike(both: Guest, seed: int) -> None:
    """Commands of several clients, transactions and scripts among them, while values go away at once."""
    compared(both, "random", *(f"/tmp/{name}" for name in ALIKE), str(seed), "15000")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_replies_to_many_random_commands_are_alike(both: Guest, seed: int) -> None:
    """The same, for some hundred thousand commands."""
    compared(both, "random", *(f"/tmp/{name}" for name in ALIKE), str(seed), "50000")


def test_a_snapshot_has_all_values(pair: Pair) -> None:
    """Whoever has the module loads it; `TRANSPARENT back` makes one that any server loads."""
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("push")
        server.say("save")
    with Server(pair.borrower, OURS, LRU) as server:
        assert server.figure("tidepool_away_values") > 0
        server.check("look")
    with Server(pair.borrower, OURS, module="TRANSPARENT back") as server:
        server.check("look")
        server.say("save")
    with Server(pair.borrower, OURS, module=None) as server:
        server.check("look")
    pair.borrower.sh(f"rm -r /tmp/{OURS}.files")


def test_a_snapshot_has_what_is_read_meanwhile(pair: Pair) -> None:
    """A value that comes back while a child writes stays with the lender until the child has ended."""
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("push")
        server.say("config", "set", "rdb-key-save-delay", SLOWLY)
        server.say("bgsave")
        assert server.figure("rdb_bgsave_in_progress") == 1
        server.check("survive")
        server.say("config", "set", "rdb-key-save-delay", "0")
        wait_until("it is written", lambda: server.figure("rdb_bgsave_in_progress") == 0)
        assert "rdb_last_bgsave_status:ok" in server.say("info", "persistence")
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("look")
    pair.borrower.sh(f"rm -r /tmp/{OURS}.files")


def test_a_snapshot_has_what_is_late(pair: Pair) -> None:
    """A lender that stands still for a while has lost nothing: the child waits for it."""
    deadline = f"lenders/{NAME}/deadline_us"
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("push")
        server.say("config", "set", "rdb-key-save-delay", SLOWLY)
        pair.b.set(deadline, DEADLINE_US)
        server.say("bgsave")
        with late_lender(pair):
            time.sleep(LATE_SECONDS)
        pair.b.set(deadline, PATIENT["deadline_us"])
        wait_until("it is written", lambda: server.figure("rdb_bgsave_in_progress") == 0)
        assert "rdb_last_bgsave_status:ok" in server.say("info", "persistence")
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("look")
    pair.borrower.sh(f"rm -r /tmp/{OURS}.files")


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_an_append_only_file_is_right(pair: Pair, preamble: str) -> None:
    """Commands behind a snapshot find its values; what is lost is lost there, too."""
    name, options = f"appended-{preamble}", f"{LRU} --appendonly yes --aof-use-rdb-preamble {preamble}"
    with Server(pair.borrower, name, options) as server:
        server.check("push")
        server.say("bgrewriteaof")
        wait_until("it is rewritten", lambda: server.figure("aof_rewrite_in_progress") == 0)
        assert server.check("survive") == ["0"]
        server.check("expire")
        digest = server.say("debug", "digest-value", *(f"key:{number}" for number in range(KEYS)))
    with Server(pair.borrower, name, options) as server:
        assert server.say("debug", "digest-value", *(f"key:{number}" for number in range(KEYS))) == digest


def same(server: Server, other: Server) -> bool:
    """Whether two servers have the same values."""
    names = [f"key:{number}" for number in range(KEYS)]
    ours, others = (which.say("debug", "digest-value", *names).splitlines() for which in (server, other))
    return ours == others


def test_a_replica_has_all_values(pair: Pair) -> None:
    """It gets what is away, and then each command; nothing goes away from it until it is a master."""
    options = f"{LRU} --repl-diskless-sync-delay 0"
    with Server(pair.borrower, OURS, f"--port {PORT} {options}") as master:
        master.check("push")
        with Server(pair.borrower, REPLICA, f"{options} --replicaof 127.0.0.1 {PORT}") as replica:
            wait_until("they are connected", lambda: "master_link_status:up" in replica.say("info", "replication"))
            replica.check("look")
            assert replica.figure("tidepool_away_values") == 0
            assert master.check("survive") == ["0"]
            master.check("expire")
            wait_until("both have the same", lambda: same(master, replica))
            replica.say("replicaof", "no", "one")
            wait_until("it is a master", lambda: replica.figure("tidepool_away_values") == KEYS / 2)


def test_a_lost_value_is_gone(pair: Pair) -> None:
    """Without the lender each is as it was or gone, for a replica, too; what is new stays until there is one again."""
    options = f"{LRU} --repl-diskless-sync-delay 0"
    with (
        Server(pair.borrower, OURS, f"--port {PORT} {options}") as master,
        Server(pair.borrower, REPLICA, f"{options} --replicaof 127.0.0.1 {PORT}") as replica,
    ):
        wait_until("they are connected", lambda: "master_link_status:up" in replica.say("info", "replication"))
        master.check("push")
        with pair.without_lender():
            assert int(master.check("survive")[0]) > KEYS / 2
            assert master.figure("tidepool_away_lost") > KEYS / 2
            wait_until("both have the same", lambda: same(master, replica))
            master.say("set", "new", "v" * 500)
            wait_until("no lender takes it", lambda: master.figure("tidepool_away_refused") > 0)
            assert master.say("get", "new") == "v" * 500
        wait_until("it goes away", lambda: master.figure("tidepool_away_values") > 0)


@pytest.mark.parametrize(
    ("policy", "options", "why"),
    [
        ("noeviction", "TRANSPARENT yes", "maxmemory-policy must be allkeys-lru"),
        ("allkeys-lfu", "TRANSPARENT yes", "maxmemory-policy must be allkeys-lru"),
        ("allkeys-lru", "TRANSPARENT maybe", "TRANSPARENT yes|no|back"),
        ("allkeys-lru", "TRANSPARENT yes ABOVE 10", "ABOVE bytes (256 to 2097152)"),
        ("allkeys-lru --rename-command MULTI MANY", "TRANSPARENT yes", "rename-command must leave MULTI"),
    ],
)
def test_what_cannot_be_is_refused(pair: Pair, policy: str, options: str, why: str) -> None:
    """A server that may evict nothing, or not by how long it was idle, does not load the module, and says why."""
    server = Server(pair.borrower, "refused", f"--maxmemory-policy {policy}", module=options)
    assert why in server.start().result().output


def test_only_what_may_be_evicted_goes_away(pair: Pair) -> None:
    """With a policy for keys with a time to live only their values do; nothing does before it was idle."""
    with Server(pair.borrower, OURS, "--maxmemory-policy volatile-lru") as server:
        server.check("push_half")
        assert server.figure("tidepool_away_values") == KEYS / 2
    with Server(pair.borrower, OURS, LRU, module="TRANSPARENT yes ABOVE 256 IDLE 8") as server:
        server.say("set", "idle", "v" * 500)
        server.say("set", "busy", "v" * 500)
        wait_until("it goes away", lambda: server.say("getrange", "busy", "0", "0") + str(away(server)) == "v1")
        assert server.figure("tidepool_away_came") == 0


def test_what_may_not_be_evicted_any_more_comes_back(pair: Pair) -> None:
    """A key without a time to live keeps its value, whatever becomes of lenders, if the policy is for others."""
    with Server(pair.borrower, OURS, "--maxmemory-policy volatile-lru") as server:
        server.say("set", "k", "v" * 5000, "ex", "1000")
        wait_until("it goes away", lambda: away(server) == 1)
        assert server.say("persist", "k") == "1"
        with pair.without_lender():
            assert server.say("get", "k") == "v" * 5000


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_policy_that_is_changed_holds_at_once(pair: Pair, kind: str) -> None:
    """What may not be away by it comes back, and needs no lender then; what may not go away does not."""
    with Server(pair.borrower, OURS, LRU, program=installed(pair.borrower, kind)) as server:
        server.check("push")
        server.check("obey")
        with pair.without_lender():
            server.check("look")


def test_what_is_idle_counts_from_a_new_policy(pair: Pair) -> None:
    """A key that was asked for just before the policy was changed from LFU is not idle."""
    with Server(pair.borrower, OURS, LRU, module="TRANSPARENT yes ABOVE 256 IDLE 4") as server:
        assert int(server.check("count_anew", 1)[0]) >= 3


def test_what_is_late_comes_back_later(pair: Pair) -> None:
    """A lender that stands still loses nothing of what may not be away any more: no command waits for that."""
    deadline = f"lenders/{NAME}/deadline_us"
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("push")
        pair.b.set(deadline, DEADLINE_US)
        with late_lender(pair):
            server.say("config", "set", "maxmemory-policy", "noeviction")
            time.sleep(LATE_SECONDS)
            assert away(server) > 0
        pair.b.set(deadline, PATIENT["deadline_us"])
        wait_until("all have come back", lambda: away(server) == 0)
        server.check("look")


def test_options_are_those_of_the_first_load(pair: Pair) -> None:
    """Whoever loads the module again, with others, is told that this changes nothing."""
    log = f"/tmp/{OURS}.log"
    with Server(pair.borrower, OURS, f"{LRU} --enable-module-command yes --logfile {log}") as server:
        assert server.say("module", "load", REDIS_MODULE, "ABOVE", "512").startswith("ERR Error loading")
        assert "is loaded already" in pair.borrower.sh(f"cat {log}; rm {log}")
        server.say("set", "k", "v" * 300)
        wait_until("it goes away", lambda: away(server) == 1)


@contextmanager
def transaction(server: Server, *commands: str) -> Iterator[list[str]]:
    """A client has queued these until the end, when it has them run: the replies."""
    guest, replies, go = server.guest, list[str](), "/tmp/go"
    script = "".join(f"{command}\n" for command in ("multi", *commands))
    guest.sh(f"mkfifo {go}")
    job = guest.start(f"cat - {go} | {with_tools('redis-cli')} -s {server.socket}", script.encode())
    try:
        wait_until("all are queued", lambda: f" multi={len(commands)} " in server.say("client", "list"))
        yield replies
    finally:
        guest.sh(f"echo exec > {go}; rm {go}")
        replies += job.result().output.splitlines()


def test_a_transaction_is_older_than_the_module(pair: Pair) -> None:
    """What it has queued finds its values, though nobody has seen it queued; then they may go away."""
    with Server(pair.borrower, OURS, f"{LRU} --enable-module-command yes", module=None) as server:
        server.say("set", "k", "v" * 500)
        with transaction(server, "get k") as replies:
            assert server.say("module", "load", REDIS_MODULE, *AT_ONCE.split()) == "OK"
            time.sleep(3)  # there are ten ticks in a second
        assert replies == ["OK", "QUEUED", "v" * 500]
        wait_until("it goes away", lambda: away(server) == 1)


@pytest.mark.parametrize("policy", ["allkeys-lfu", "allkeys-lru"])
def test_a_value_comes_back_as_soon_as_it_can_be_got(pair: Pair, policy: str) -> None:
    """GET of a value that is away takes about as long as TIDE.GET, whether or not others go away meanwhile."""
    with Server(pair.borrower, OURS, LRU) as server:
        server.check("stock")
        server.say("config", "set", "maxmemory-policy", policy)
        pair.settle()
        ours, tide = map(int, server.check("race")[0].split())
        print(f"{policy}: median of {KEYS}: GET {ours} us, TIDE.GET {tide} us")
        assert ours < 2 * tide


@pytest.mark.long  # it compares times, which a busy machine has of its own
def test_values_go_away_faster_when_memory_is_full(pair: Pair) -> None:
    """There is five times as much of the server's time for it, and no key has to be evicted."""
    with Server(pair.borrower, OURS, LRU, module="TRANSPARENT yes ABOVE 256 IDLE 1") as server:
        full, nearly = map(int, server.check("hurry", 3000)[0].split())
        print(f"3000 values: {full} ms with full memory, {nearly} ms with nearly full")
        assert nearly > 2 * full
        assert server.figure("evicted_keys") == 0


def away(server: Server) -> int:
    """How many values are away."""
    return server.figure("tidepool_away_values")
