"""A release as its users have it: a folder, the commands that they type there, and a registry for what is in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docs
from tidepool_api_testing.server import free_ports
from tidepool_lab import debian, gotools, paths, registry
from tidepool_release.__main__ import release
from tidepool_release.source import Source

PATIENCE = 30


def part(build: Callable[[Path, Path, Path, Source], None], folder: Path) -> Path:
    """What a part of the release writes, with its bill of materials, in one folder."""
    made, work = folder / "made", folder / "work"
    made.mkdir()
    work.mkdir()
    build(made, made, work, Source.here())
    return made


@dataclass(frozen=True)
class Dist:
    """A release that is signed, and the public half of its key."""

    folder: Path
    public: Path

    def verify(self) -> subprocess.CompletedProcess[str]:
        """As docs/how-to/verify-a-release.md says."""
        lines = " && ".join(docs.commands("verify")).replace("tidepool.pub", str(self.public))
        return shell(lines, self.folder.parent)

    def push(self, prefix: str, where: Place | None = None, options: str = "") -> subprocess.CompletedProcess[str]:
        """As the README says."""
        line = docs.command("push").replace("MY/PREFIX", prefix)
        return shell(f"{line} {options}", self.folder.parent, where)


@dataclass(frozen=True)
class Place:
    """Where commands are run that are not run here: what goes before them, and what is in their environment."""

    before: Sequence[str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def shell(line: str, folder: Path, where: Place | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command with the programs that it wants, those of Debian that are not installed among them."""
    where = where or Place()
    _trust(folder)
    places = [debian.program("minisign").parent, debian.program("skopeo").parent, gotools.path("helm").parent]
    environment = {**os.environ, "PATH": ":".join([*map(str, places), os.environ["PATH"]]), "HOME": str(folder)}
    command = [*where.before, "bash", "-ec", line]
    return subprocess.run(
        command, cwd=folder, env=environment | where.environment, capture_output=True, text=True, check=False
    )


def _trust(home: Path) -> None:
    """Gives skopeo the policy that its package has in /etc."""
    policy = home / ".config/containers/policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(debian.program("skopeo").parents[1] / "etc/containers/policy.json", policy)


@contextmanager
def made() -> Iterator[Dist]:
    """A release of this work tree, with a key of its own."""
    with tempfile.TemporaryDirectory(prefix="dist-", dir=paths.BUILD) as scratch:
        folder, key, public = (Path(scratch, name) for name in ("dist", "key", "tidepool.pub"))
        make = [debian.program("minisign"), "-G", "-W", "-p", public, "-s", key]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        release(folder, key)
        yield Dist(folder, public)


@contextmanager
def plain_registry(folder: Path) -> Iterator[str]:
    """One without TLS on a free port of this machine's loopback, and nothing in it; its name."""
    (port,) = free_ports(1)
    address, config = f"127.0.0.1:{port}", folder / "config.json"
    config.write_text(json.dumps(registry.settings(folder, address)))
    server = subprocess.Popen([debian.program("docker-registry"), "serve", config], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(f"http://{address}/v2/"):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
