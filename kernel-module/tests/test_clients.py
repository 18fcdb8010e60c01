"""Libraries for /dev/tidepool and the module for Redis: all that each does, in a guest with a lender and without."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_values import limit

from bed.device import MODULES, load_target
from bed.guest import Guest
from bed.image import BUILD, CFLAGS, TOP, build_program, libraries, tools_disk, with_tools
from bed.pair import PATIENT, Pair
from bed.python import INTERPRETER, library, library_files, with_python
from bed.tidepool import MIB, wait_until

CLIENTS = TOP / "clients"
C, PYTHON, REDIS = CLIENTS / "c", CLIENTS / "python", CLIENTS / "redis"
LIBRARY = (C / "src" / "tidepool.c", C / "include" / "tidepool.h", C / "include" / "tidepool" / "device.h")
WITH_PYTHON = with_python("/tools/package")
PYTHON_CHECK = f"{WITH_PYTHON} /check.py"
SERVER = "redis-check-rdb"  # in Debian the same program as redis-server, which goes by its name
AS_USER = f"{with_tools('setpriv')} --reuid 1000 --clear-groups"
SOCKET = "/tmp/redis"
REDIS_MODULE = "/tools/lib/tidepool.so"
CLI = f"{with_tools('redis-cli')} -s {SOCKET}"


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected; the borrower has the device, Python and Redis."""
    with (pair := Pair(kernel, modules=MODULES, tools=disk_of_clients(), borrower_mem="384M")):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        pair.borrower.sh("mkdir /tools && mount -o ro /dev/vdb /tools && ip link set lo up")
        for name, source in (("check", "tests/check.c"), ("words", "examples/words.c")):
            install(pair.borrower, name, C / source)
        pair.borrower.write("/check.py", (PYTHON / "tests" / "check.py").read_text())
        yield pair
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")


def disk_of_clients() -> Path:
    """Python with its library and our package, Redis with our module."""
    ctypes = next((library() / "lib-dynload").glob("_ctypes.*.so"))
    packages = {f"package/tidepool/{file.name}": file for file in (PYTHON / "tidepool").glob("*.py")}
    of_redis = {"bin/redis-server": Path("/usr/bin") / SERVER, "lib/tidepool.so": redis_module()}
    more = {**dict(libraries(ctypes)), **library_files(), **packages, **of_redis}
    return tools_disk(INTERPRETER, SERVER, "redis-cli", "redis-benchmark", "setpriv", more=more)


def redis_module() -> Path:
    """The module, built now."""
    build = BUILD / "redis-module"
    subprocess.run(["make", "-s", "-C", str(REDIS), f"BUILD={build}"], check=True)
    return build / "tidepool.so"


def install(guest: Guest, name: str, source: Path, include: Path = C / "include") -> None:
    """A program with the C library, in a guest."""
    program = build_program(name, [source, *LIBRARY], (*CFLAGS, "-I", str(include)))
    guest.start(f"cat > /bin/{name} && chmod 0755 /bin/{name}", program.read_bytes()).wait()


def test_c(connected: Pair) -> None:
    """Each function, and what each errno is for."""
    assert connected.borrower.run("check").output == ""


def test_example_in_c(connected: Pair) -> None:
    """Words are counted, and another run goes on with them."""
    for times in (1, 2):
        shown = connected.borrower.start("words novel", b"tide pool tide\n").wait()
        assert shown.split() == [str(times), "pool", str(2 * times), "tide"]


def test_python(connected: Pair) -> None:
    """Each method, and what each exception is for."""
    assert connected.borrower.sh(PYTHON_CHECK) == "all is well"


def test_without_a_lender(connected: Pair) -> None:
    """Both say so, instead of losing what is put."""
    with connected.without_lender():
        assert connected.borrower.sh("check refused") == "no lender takes pages"
        assert "no lender takes pages" in connected.borrower.sh(f"{PYTHON_CHECK} refused")


def test_without_the_device(connected: Pair) -> None:
    """Both say that it is not there."""
    connected.borrower.sh("mv /dev/tidepool /dev/away")
    try:
        assert "/dev/tidepool" in connected.borrower.run("check").output
        assert "NoDeviceError" in connected.borrower.run(PYTHON_CHECK).output
    finally:
        connected.borrower.sh("mv /dev/away /dev/tidepool")


def test_who_may_not_open_the_device(connected: Pair) -> None:
    """Is told so by both, and not that it is missing."""
    for command, said in (("check", "does not let you in"), (f"env {PYTHON_CHECK}", "NotAllowedError")):
        refused = connected.borrower.run(f"{AS_USER} {command}")
        assert refused.code == 1
        assert said in refused.output


@contextmanager
def late_lender(pair: Pair) -> Iterator[None]:
    """It is there, and takes nothing for a while."""
    pair.settle()
    pair.lender.stop()
    try:
        yield
    finally:
        pair.lender.cont()
        pair.settle()


PUT_WHEN_TOLD = """
import pathlib, time, tidepool
pool = tidepool.Pool()
pathlib.Path("/tmp/ready").touch()
while pathlib.Path("/tmp/ready").exists():
    time.sleep(0.05)
for key in range(4):
    pool.put(b"%d" % key, bytes(2 << 20))
"""


def test_a_lender_is_late(connected: Pair) -> None:
    """Python says so by name. The program has begun before: a lender that is late for long is lost."""
    guest = connected.borrower
    job = guest.start(f"{WITH_PYTHON} -c {shlex.quote(PUT_WHEN_TOLD)}")
    wait_until("it has a pool", lambda: guest.run("test -e /tmp/ready").code == 0)
    with late_lender(connected):
        guest.sh("rm /tmp/ready")
        assert "TooSlowError" in job.result().output


def test_a_lender_is_late_for_redis(connected: Pair, redis: Guest) -> None:
    """A put is refused by name; when the lender is back the next one is taken."""
    large = "eval \"return redis.call('tide.set', KEYS[1], string.rep('v', 2097152))\" 1"
    with late_lender(connected):
        replies = [reply for reply in asked(redis, *(f"{large} {key}" for key in range(4))) if reply]
    assert replies[-1].startswith("LATE")
    assert asked(redis, "tide.set k v", "tide.get k") == ["OK", "v"]


def test_another_version(connected: Pair, tmp_path: Path) -> None:
    """A library that is newer than the module says so."""
    (tmp_path / "tidepool").mkdir()
    shutil.copy(C / "include" / "tidepool.h", tmp_path)
    device, ours = (C / "include" / "tidepool" / "device.h").read_text(), "#define TIDEPOOL_API\t\t1\n"
    assert device.count(ours) == 1
    (tmp_path / "tidepool" / "device.h").write_text(device.replace(ours, "#define TIDEPOOL_API 2\n"))
    install(connected.borrower, "newer", C / "examples" / "words.c", tmp_path)
    refused = connected.borrower.start("newer novel", b"tide\n").result()
    assert (refused.code, "the kernel module and this library are of different versions" in refused.output) == (1, True)


def test_who_may_only_read(connected: Pair) -> None:
    """Another user sees what is in a pool whose mode lets him, and cannot change it."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool && echo a word | words lexicon")
    try:
        other = f"{AS_USER} words lexicon"
        assert guest.start(other, b"").wait().split() == ["1", "a", "1", "word"]
        refused = guest.start(other, b"more\n").result()
        assert (refused.code, "not change it" in refused.output) == (1, True)
        look = "import tidepool; pool = tidepool.Pool('lexicon'); print(sorted(pool)); pool[b'k'] = b'v'"
        said = guest.run(f"{AS_USER} env {WITH_PYTHON} -c {shlex.quote(look)}").output
        assert "[b'a', b'word']" in said
        assert "NotAllowedError" in said
    finally:
        guest.sh("chmod 0600 /dev/tidepool")


@contextmanager
def only_putting(guest: Guest) -> Iterator[str]:
    """The beginning of a command by a user who is in the device's group, which may only put."""
    guest.sh("chmod 0620 /dev/tidepool && chmod 1777 /tmp")
    try:
        yield AS_USER  # his group stays root's
    finally:
        guest.sh("chmod 0600 /dev/tidepool")


def test_who_may_only_put(connected: Pair) -> None:
    """Others read what he puts; he does not, and is told why."""
    guest = connected.borrower
    with only_putting(guest) as user:
        assert "only put, and not read" in guest.sh(f"{user} check posts")
        put = "import tidepool; pool = tidepool.Pool('posted'); pool[b'x'] = b'v'; del pool[b'x']; pool[b'too'] = b'w'"
        for read in ("pool[b'too']", "pool.size(b'too')", "list(pool)", "pool.stats()"):
            said = guest.run(f"{user} env {WITH_PYTHON} -c {shlex.quote(f'{put}; {read}')}").output
            assert "NotAllowedError" in said
            assert "only put, and not read" in said
    look = "import tidepool; pool = tidepool.Pool('posted', mode=0o666); print(sorted(pool.get_many(pool).items()))"
    assert guest.sh(f"{WITH_PYTHON} -c {shlex.quote(f'{look}; pool.unlink()')}") == "[(b'k', b'v'), (b'too', b'w')]"


def server_command(module: str = "", more: str = "") -> str:
    """What runs a server with our module, and options of each."""
    serve = with_tools(SERVER).replace(SERVER, "redis-server")
    options = f"--port 0 --unixsocket {SOCKET} --save '' --enable-module-command yes {more}"
    return f"{serve} {options} --loadmodule {REDIS_MODULE} {module}"


@contextmanager
def server_with(guest: Guest, options: str, before: str = "") -> Iterator[Guest]:
    """A guest with a server that has the module."""
    server = guest.start(f"{before} {server_command(options)}")

    def answers() -> bool:
        assert server.running, server.result().output
        return guest.run(f"{CLI} ping").output == "PONG\n"

    wait_until("the server answers", answers)
    try:
        yield guest
    finally:
        guest.run(f"{CLI} shutdown nosave")
        server.result()


@pytest.fixture
def redis(connected: Pair, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A server with a pool of its own name."""
    with server_with(connected.borrower, f"POOL {request.node.name} QUOTA {16 * MIB} THREADS 3") as guest:
        yield guest


def asked(guest: Guest, *commands: str) -> list[str]:
    """What the server says to each."""
    return guest.start(CLI, "".join(f"{command}\n" for command in commands).encode()).wait().splitlines()


def compared(guest: Guest, what: str, count: int) -> list[str]:
    """What clients/redis/tests/compare.py says of a server."""
    guest.write("/compare.py", (REDIS / "tests" / "compare.py").read_text())
    return guest.sh(f"{WITH_PYTHON} /compare.py {what} {SOCKET} {count}").splitlines()


def figures(guest: Guest) -> dict[str, int]:
    """What the pool counts."""
    said = asked(guest, "tide.stats")
    return dict(zip(said[::2], map(int, said[1::2]), strict=True))


def test_redis_commands(redis: Guest) -> None:
    """Each, with what is no command; in a transaction and in a script, too, where no client may be made to wait."""
    assert asked(redis, "tide.set k value", "tide.get k", "tide.del k none", "tide.get k") == ["OK", "value", "1", ""]
    assert asked(redis, "tide.set k v px 100000", "tide.get k", "tide.set k v px 100") == ["OK", "v", "OK"]
    wait_until("it is gone by its time", lambda: asked(redis, "tide.get k") == [""])
    assert asked(redis, "multi", "tide.set k in", "tide.get k", "exec") == ["OK", "QUEUED", "QUEUED", "OK", "in"]
    assert asked(redis, "eval \"return redis.call('tide.get', KEYS[1])\" 1 k") == ["in"]
    assert figures(redis)["values"] == 1
    for command, error in (
        ("tide.set k", "wrong number of arguments"),
        ("tide.set k v in 5", "TIDE.SET key value [EX seconds | PX milliseconds]"),
        ("tide.set k v ex 0", "must be a number, 1 or more"),
        (f"tide.get {'k' * 251}", "BADKEY"),
        ("tide.get", "wrong number of arguments"),
        (f"module load {REDIS_MODULE} threads 0", "Error loading"),
    ):
        assert error in " ".join(asked(redis, command)), command
    assert asked(redis, "module unload tidepool") == ["OK"]


def test_redis_under_load(redis: Guest) -> None:
    """Its own benchmark: many clients at the same time; more than the quota is refused by name, and all goes on."""
    bench = f"{with_tools('redis-benchmark')} -s {SOCKET} -q -c 8 -r 300"
    before = figures(redis)
    redis.sh(f"{bench} -n 1500 tide.set key:__rand_int__ {'v' * 1000}")
    redis.sh(f"{bench} -n 1500 tide.get key:__rand_int__")
    after = figures(redis)
    assert after["puts"] - before["puts"] == 1500
    assert after["hits"] - before["hits"] > 1000
    assert after["local"] > 0
    assert after["front_bytes"] > 0
    assert (after["spilled"], after["moved"] >= before["moved"]) == (0, True)
    assert "TOOLARGE" in " ".join(
        asked(redis, "eval \"return redis.call('tide.set', KEYS[1], string.rep('v', 2097153))\" 1 k")
    )
    large = asked(redis, *(f"tide.set large:{number} {'v' * 60_000}" for number in range(400)))
    assert {line.partition(" ")[0] for line in large if line} == {"OK", "QUOTA"}
    assert asked(redis, "ping") == ["PONG"]


@pytest.mark.parametrize("wait_us", [0, 100, 3000, 100_000])
def test_redis_gets_what_many_clients_want(connected: Pair, wait_us: int) -> None:
    """Together, alone or by threads, whatever the server waits: each client has its own values."""
    guest = connected.borrower
    with limit(guest, "front_bytes", 0), server_with(guest, f"WAIT {wait_us}"):
        compared(guest, "together", 300)
        said = figures(guest)
    assert said["hits"] > 1000
    assert said["lost"] == said["local"] == 0


def test_redis_does_not_wait_long_for_a_lender(connected: Pair, redis: Guest) -> None:
    """One that stands still: who gets a value waits, and others are served."""
    asked(redis, *(f"tide.set far:{number} {'v' * 4000}" for number in range(100)))
    client = f"{CLI} tide.get far:7"
    with late_lender(connected):
        job = redis.start(client)
        slowest_ms = int(compared(redis, "pings", 20)[0])
        assert job.running
    assert job.result().output.strip() == "v" * 4000
    assert slowest_ms < 500  # a server that waited itself would wait for a lender's deadline, again and again


def test_redis_takes_long_pipelines(connected: Pair) -> None:
    """A command of one takes about as long as one of many short ones: the server does not move all of it each time."""
    guest, count, runs = connected.borrower, 6000, list[list[int]]()
    with server_with(guest, "POOL pipelined"):
        for _ in range(3):  # the machine may be busy with something else for a while
            runs.append([int(one) for one in compared(guest, "pipe", count)[0].split()])
            short, long = map(min, zip(*runs, strict=True))
            print(f"{count} values: {short} ms in short pipelines, {long} ms in one")
            if long < 3 * short:
                break
        assert long < 3 * short, runs


def test_redis_may_only_read(connected: Pair) -> None:
    """Somebody else's pool, whose mode lets it: what is set is refused by name, and what is there is got."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool && chmod 1777 /tmp && echo tide tide | words given")
    try:
        with server_with(guest, "POOL given", f"{AS_USER} env"):
            assert asked(guest, "tide.get tide")[0].startswith("\x02")
            assert asked(guest, "tide.set tide v")[0].startswith("NOTALLOWED")
            assert asked(guest, "tide.del tide")[0].startswith("NOTALLOWED")
    finally:
        guest.sh("chmod 0600 /dev/tidepool")


def test_redis_may_only_put(connected: Pair) -> None:
    """What it puts, others get; no ordinary value goes where the server cannot bring it back from."""
    with (
        only_putting(connected.borrower) as user,
        server_with(connected.borrower, "POOL posted", f"{user} env") as guest,
    ):
        assert asked(guest, "tide.set k v", "tide.set l v", "tide.del l") == ["OK", "OK", "1"]
        for read in ("tide.get k", "tide.stats"):
            assert asked(guest, read)[0].startswith("NOTALLOWED")
        transparent = server_command("TRANSPARENT yes", f"--maxmemory-policy allkeys-lru --unixsocket {SOCKET}.2")
        refused = guest.start(f"{user} env {transparent}").result()
        assert refused.code == 1
        assert "TRANSPARENT: you may only read" in refused.output


def test_redis_without_a_lender(connected: Pair, redis: Guest) -> None:
    """What is set is refused; a server without the device does not load the module."""
    with connected.without_lender():
        assert asked(redis, "tide.set k v")[0].startswith("NOLENDER")
        assert asked(redis, "tide.get k") == [""]


EVERYWHERE = {"EFAULT", "ENOMEM", "EINTR"}  # what any call may fail with, said once


def errnos(text: str) -> set[str]:
    """Those that a text names."""
    return {name for name in re.findall(r"\bE[A-Z0-9]+\b", text) if hasattr(errno, name)}


def errnos_of_header() -> dict[str, set[str]]:
    """By function, as the end of its comment says them."""
    comments = re.findall(r"/\*\*\n \* (tidepool_\w+)\(\)(.*?)\*/", LIBRARY[1].read_text(), re.DOTALL)
    found = {function: errnos(comment.partition("errno:")[2]) for function, comment in comments}
    return {function: some for function, some in found.items() if some}


def errnos_of_manual() -> tuple[dict[str, set[str]], set[str]]:
    """By function, and those whose meaning it says."""
    _, _, section = (C / "man" / "libtidepool.3").read_text().partition(".Sh ERRORS\n")
    functions, *_ = section.partition(".El")
    listed = {name: errnos(text) for name, text in re.findall(r"\.It Fn (\w+)\n((?:\.Er .*\n)+)", functions)}
    return listed, set(re.findall(r"\.It Bq Er (\w+)", section))


def test_manual_has_every_errno() -> None:
    """Of each function those that the header says, and what each means; the page of the device has them, too."""
    listed, explained = errnos_of_manual()
    assert listed == errnos_of_header()
    assert explained == set().union(*listed.values()) | EVERYWHERE
    _, _, page = (TOP / "kernel-module" / "APPMEM.md").read_text().partition("## Errors")
    assert explained - errnos(page) == {"EMFILE", "ENFILE", "ENOTDIR", "EROFS"}  # of files and folders: open(2)


def fields(text: str, structure: str) -> list[list[str]]:
    """Types and names of those that a text declares."""
    (body,) = re.findall(rf"^struct {structure} {{\n(.*?)^}};", text, re.MULTILINE | re.DOTALL)
    return [one.split() for one in re.findall(r"^\s+([\w*\s]+);", body, re.MULTILINE)]


@pytest.mark.parametrize(("structure", "header"), [("tidepool_limits", LIBRARY[1]), ("tidepool_call", LIBRARY[2])])
def test_manual_shows_structures(structure: str, header: Path) -> None:
    """Those that programs fill, as the headers declare them."""
    shown = fields((C / "man" / "libtidepool.3").read_text(), structure)
    assert len(shown) > 1
    assert shown == fields(header.read_text(), structure)


def test_c_is_installed_as_a_library(tmp_path: Path) -> None:
    """With its header, manual and pkg-config file; a program finds it, and nothing but its functions is exported."""
    build = ["make", "-s", "-C", str(C), "install", f"DESTDIR={tmp_path}", "PREFIX=/opt", f"BUILD={tmp_path}/build"]
    subprocess.run(build, check=True)
    libraries = tmp_path / "opt" / "lib"
    found = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "tidepool"], env=found, check=True, capture_output=True, text=True
    ).stdout.split()
    program = tmp_path / "words"
    subprocess.run(["gcc", "-o", program, C / "examples" / "words.c", *flags], check=True)
    ran = subprocess.run([program, "novel"], env={"LD_LIBRARY_PATH": str(libraries)}, capture_output=True, check=False)
    assert ran.returncode == 1
    assert b"/dev/tidepool" in ran.stderr
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", libraries / "libtidepool.so.1"], check=True, capture_output=True, text=True
    ).stdout.split()[2::3]
    functions = {name.split("@")[0] for name in symbols if name.startswith("tidepool_")}
    assert {name.split("@")[0] for name in symbols} - functions == {"TIDEPOOL_1"}
    subprocess.run(["mandoc", "-Tlint", "-Wwarning", C / "man" / "libtidepool.3"], check=True)
    manual = tmp_path / "opt" / "share" / "man" / "man3"
    assert {page.stem for page in manual.glob("tidepool_*.3")} == functions
