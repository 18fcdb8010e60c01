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


@pytest.mark.parametrize(
    ("file", "code", "call"),
    [
        ("borrower/object.c", "tide_object_put(NULL)", "tide_object_put of borrower/catalog_table"),
        ("lender/borrowers.c", "wake_up(&tide_connections_wait)", "tide_connections_wait of lender/connections"),
        ("borrower/breaker_state.h", "tide_breaker_update(NULL)", "tide_breaker_update of borrower/breaker"),
    ],
)
def test_a_circle_of_calls_is_named(module: Path, file: str, code: str, call: str) -> None:
    """A function, a variable, and what a header itself does; not what is only written about."""
    path = module / file
    text = path.read_text()
    path.write_text(f'{text}\n/* {code} */\n#define NAME "{code}"\n')
    assert check(module)[0] == 0
    path.write_text(f"{text}\nstatic void one(void)\n{{\n\t{code};\n}}\n")
    exit_code, said = check(module)
    assert exit_code == 1
    assert all(line.startswith("layers: calls in a circle: ") for line in said.splitlines())
    assert f"{file.partition('.')[0]} -> {call}" in said


@pytest.mark.parametrize(
    ("name", "declaration"), [("tide_listen", "int tide_listen(void);"), ("tide_port", "extern u16 tide_port;")]
)
def test_what_another_header_declares_is_named(module: Path, name: str, declaration: str) -> None:
    """Else it would not be known whose it is."""
    own, other = module / "lender/listen.h", module / "lender/serve.h"
    assert declaration in own.read_text()
    own.write_text(own.read_text().replace(declaration, ""))
    other.write_text(other.read_text().replace("struct", f"{declaration}\n\nstruct", 1))
    exit_code, said = check(module)
    assert exit_code == 1
    assert f"layers: lender/listen.c defines {name}, which lender/serve.h declares" in said.splitlines()


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
