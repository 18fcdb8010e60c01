"""Those who run the daemon: its configuration, its figures, what it does without."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from daemon import MIB, Allowed, Config, Daemon, program

from bed.protocol import Borrower
from bed.tidepool import wait_until


def _status(daemon: Daemon) -> dict[str, str]:
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_it_has_no_rights() -> None:
    """Started as root it is somebody else, in no group, without a capability, and can get none; nobody can read it."""
    with Daemon() as daemon:
        status = _status(daemon)
        assert "0" not in status["Uid"].split() + status["Gid"].split()
        assert status["Groups"].split() == []
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        assert status["NoNewPrivs"] == "1"
        assert status["CoreDumping"] == "0"


def test_a_wrong_file_changes_nothing(daemon: Daemon) -> None:
    """The answer names the field, its value and what would be right; who is connected stays so."""
    own = daemon.lend()
    borrower = Borrower(daemon.address, own, daemon.lender, MIB)
    good = daemon.config
    wrong = Config(listen=good.listen, linger_seconds=4000, borrowers=good.borrowers)
    daemon.config = wrong
    daemon.write()
    assert re.fullmatch(r"error: .*config\.toml: linger_seconds: 4000: 3600 at most", daemon.say("reload"))
    daemon.config = Config(max_lend="1GB", listen=good.listen, borrowers=good.borrowers)  # type: ignore[arg-type]
    daemon.write()
    assert re.fullmatch(r"error: .*config\.toml: line 4: max_lend = 1GB: .*", daemon.say("reload"))
    borrower.ping()
    assert daemon.lent()["state"] == "Connected"
    borrower.close()
    daemon.config = good
    assert daemon.say("dance") == 'error: "dance": say state or reload'


def test_it_waits_for_its_file() -> None:
    """With --wait, as in a pod: whoever configures it may come later. Without it a file that is missing is an error."""
    with tempfile.TemporaryDirectory(prefix="node-lender-") as folder:
        path, control = Path(folder) / "config.toml", Path(folder) / "control.sock"
        path.parent.chmod(0o777)
        command = [str(program()), "--config", str(path)]
        assert subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 1
        with subprocess.Popen([*command, "--wait"], stderr=subprocess.DEVNULL) as process:
            time.sleep(1)
            assert process.poll() is None
            path.write_text(Config().toml(control))
            path.chmod(0o644)
            wait_until("it lends", control.exists)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_figures_are_scraped(daemon: Daemon) -> None:
    own = daemon.lend()
    borrower = Borrower(daemon.address, own, daemon.lender, MIB)
    assert borrower.store(1, 1, 1, bytes(4096))
    host, port = _metrics(daemon)
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert f'tidepool_node_lender_puts_total{{borrower="{daemon.NAME}"}} 1\n' in text
    assert f'tidepool_node_lender_lent_pages{{borrower="{daemon.NAME}"}} 1\n' in text
    borrower.close()


def _metrics(daemon: Daemon) -> tuple[str, int]:
    (port,) = re.findall(r"metrics.*address=\S+:(\d+)", daemon.log.read_text())
    return "127.0.0.1", int(port)


def _ticks(daemon: Daemon) -> int:
    """Of its processor time."""
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_without_files_left_it_waits(daemon: Daemon) -> None:
    """Some come whom it cannot accept: it tries again, but not all the time."""
    files = len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))
    with Daemon(before=("prlimit", f"--nofile={files + 3}")) as full, contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(socket.create_connection(_metrics(full)))
        wait_until("it has no files left", lambda: "could not be accepted" in full.log.read_text())
        before = _ticks(full)
        time.sleep(1)
        assert _ticks(full) - before < os.sysconf("SC_CLK_TCK") / 4


def _wakes(daemon: Daemon, seconds: float) -> float:
    """How often in a second one of its threads goes on."""

    def slept() -> int:
        tasks = Path(f"/proc/{daemon.process.pid}/task").glob("*/status")
        return sum(int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", task.read_text(), re.M)[0]) for task in tasks)

    before = slept()
    time.sleep(seconds)
    return (slept() - before) / seconds


def test_it_rests_while_nothing_is_lent(daemon: Daemon) -> None:
    """Somebody is connected and has no page: it wakes now and then; with the first page it looks ten times a second."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, MIB)) as borrower:
        wait_until("the handshake is over", lambda: _wakes(daemon, 1) < 4)
        assert borrower.store(1, 1, 1, bytes(4096))
        wait_until("it looks after the page", lambda: 8 <= _wakes(daemon, 1) < 20)


def test_visitors_that_ask_nothing_keep_nobody_out(daemon: Daemon) -> None:
    """More of them than are served at once, and whoever asks is answered."""
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(_metrics(daemon)))
        host, port = _metrics(daemon)
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        assert time.monotonic() - begin < 1.5


def test_a_second_daemon_says_what_is_wrong(daemon: Daemon, tmp_path: Path) -> None:
    """Its port is taken: it ends, and says which field that is."""
    path = tmp_path / "config.toml"
    path.write_text(Config(listen=f"127.0.0.1:{daemon.port}").toml(tmp_path / "control"))
    done = subprocess.run([program(), "--config", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"listen: 127.0.0.1:{daemon.port}:" in done.stderr
    assert "is another lender on this node" in done.stderr


def _another(daemon: Daemon) -> list[str]:
    """The command line of one more daemon, with a port of its own and the control socket of this one."""
    path = daemon.control.with_name("other.toml")
    path.write_text(Config().toml(daemon.control))
    path.chmod(0o644)
    return [str(program()), "--config", str(path)]


def test_a_second_daemon_leaves_the_control_socket_alone(daemon: Daemon) -> None:
    """The first one goes on answering there; the other ends, and says which field is wrong."""
    done = subprocess.run(_another(daemon), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"control: {daemon.control}: another lender answers there" in done.stderr
    assert daemon.state()["borrowers"] == []


def test_the_control_socket_of_a_daemon_that_was_killed_is_taken_over() -> None:
    with Daemon() as daemon:
        before = daemon.state()["identity"]
        daemon.process.kill()
        daemon.process.wait()
        daemon.process = subprocess.Popen(_another(daemon), stderr=subprocess.DEVNULL)

        def answers() -> bool:
            with contextlib.suppress(ConnectionError):
                return bool(daemon.state()["identity"] != before)
            return False

        wait_until("it answers", answers)


def test_a_file_that_only_root_can_read_is_refused_at_once(tmp_path: Path) -> None:
    """A reload reads it without root's rights: the daemon says so at the start."""
    path = tmp_path / "config.toml"
    path.write_text(Config().toml(tmp_path / "control"))
    path.chmod(0o600)
    done = subprocess.run([program(), "--config", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Permission denied (os error 13): a reload reads it as user 65534; let that user read it" in done.stderr


def test_a_hangup_as_soon_as_it_lends_is_heard() -> None:
    """It reads its configuration again, and goes on."""
    folder = Path(tempfile.mkdtemp(prefix="node-lender-"))
    folder.chmod(0o755)
    path = folder / "config.toml"
    path.write_text(f"listen = '127.0.0.1:0'\nmax_lend = {MIB}\nreserve = 0\n")
    with subprocess.Popen([program(), "--config", path], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if "lends" in line:
                process.send_signal(signal.SIGHUP)
            elif "configured anew" in line:
                process.terminate()
    shutil.rmtree(folder)
    assert process.returncode == 0


def test_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(Config(borrowers={"a": Allowed("x25519:12")}).toml(tmp_path / "control"))
    done = subprocess.run([program(), "--check", "--config", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert '"x25519:12" is no identity: write x25519: and 64 lowercase hexadecimal digits' in done.stderr
    path.write_text(Config().toml(tmp_path / "control"))
    assert subprocess.run([program(), "--check", "--config", path], timeout=60).returncode == 0
