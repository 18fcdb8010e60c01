"""The module's layers: each uses those below it, and none above or beside it (kernel-module/tools/layers.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bed.image import TESTS, TOOLS


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A copy of the module's sources."""
    folder = tmp_path / "module"
    shutil.copytree(TESTS.parent, folder, ignore=shutil.ignore_patterns("tests", "tools", "*.o", "*.ko"))
    return folder


def check(folder: Path) -> tuple[int, str]:
    """Its exit code and what it said."""
    command = [sys.executable, TOOLS / "layers.py", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def include(file: Path, name: str) -> None:
    """One more include, before all others."""
    file.write_text(f'#include "{name}"\n{file.read_text()}')


def test_all_run_down(module: Path) -> None:
    """Those of the module as it is."""
    code, said = check(module)
    assert code == 0, said


@pytest.mark.parametrize(
    ("file", "name", "fault"),
    [
        ("borrower/catalog.c", "pagecache/file.h", "borrower/ may not use pagecache/"),
        ("base/stats.h", "control/show.h", "base/ may not use control/"),
        ("lender/serve.c", "borrower/session.h", "lender/ may not use borrower/"),
        ("transport/tcp.h", "transport/handshake.h", "in a circle"),
        ("lender/serve.c", "serve.h", "no path of a layer's header"),
    ],
)
def test_one_that_does_not_is_named(module: Path, file: str, name: str, fault: str) -> None:
    """Up, far up, sideways, round within a layer, and past the layers; nothing else is complained of."""
    include(module / file, name)
    if fault == "in a circle":
        include(module / name, file)
    code, said = check(module)
    assert code == 1
    (line,) = said.splitlines()
    assert file in line
    assert fault in line


def test_a_socket_outside_the_transport_is_named(module: Path) -> None:
    """Whoever has a connection has no socket."""
    file = module / "lender/serve.c"
    file.write_text(file.read_text() + "\nstatic struct socket *one;\n")
    code, said = check(module)
    assert code == 1
    assert said.splitlines() == ["layers: lender/serve.c knows of sockets, which are transport/tcp.c's"]


def test_a_file_outside_the_layers_is_named(module: Path) -> None:
    """One beside the folders, and one in a folder that is no layer."""
    (module / "tidepool.h").write_text("")
    (module / "more").mkdir()
    (module / "more/more.c").write_text("")
    code, said = check(module)
    assert code == 1
    assert said.splitlines() == ["layers: more/more.c is in no layer", "layers: tidepool.h is in no layer"]
