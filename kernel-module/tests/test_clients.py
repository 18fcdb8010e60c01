"""Libraries for /dev/tidepool: every function of each, in a guest with a lender and without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bed.device import MODULES, load_target
from bed.image import CFLAGS, TOP, build_program, python_disk, with_python
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB

CLIENTS = TOP / "clients"
C, PYTHON = CLIENTS / "c", CLIENTS / "python"
LIBRARY = (C / "src" / "tidepool.c", C / "include" / "tidepool.h", C / "include" / "tidepool" / "device.h")


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected; the borrower has the device, and Python."""
    with (pair := Pair(kernel, modules=MODULES, tools=python_disk(PYTHON / "tidepool"))):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        for name, source in (("check", "tests/check.c"), ("words", "examples/words.c")):
            install(pair, name, C / source)
        pair.borrower.write("/check.py", (PYTHON / "tests" / "check.py").read_text())
        yield pair
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")


def install(pair: Pair, name: str, source: Path) -> None:
    """A program with the C library, in the borrower."""
    program = build_program(name, [source, *LIBRARY], (*CFLAGS, "-I", str(C / "include")))
    pair.borrower.start(f"cat > /bin/{name} && chmod 0755 /bin/{name}", program.read_bytes()).wait()


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
    assert connected.borrower.sh(f"{with_python()} /check.py") == "all is well"


def test_without_a_lender(connected: Pair) -> None:
    """Both say so, instead of losing what is put."""
    connected.b.set("lenders/pair/enabled", 0)
    try:
        assert connected.borrower.sh("check refused") == "no lender takes pages"
        assert "no lender takes pages" in connected.borrower.sh(f"{with_python()} /check.py refused")
    finally:
        connected.b.set("lenders/pair/enabled", 1)
        connected.b.wait_state("lenders/pair", "Connected")


def test_without_the_device(connected: Pair) -> None:
    """Both say that it is not there, and to a user who may not open it that he may not."""
    connected.borrower.sh("mv /dev/tidepool /dev/away")
    try:
        assert "/dev/tidepool" in connected.borrower.run("check").output
        assert "NoDeviceError" in connected.borrower.run(f"{with_python()} /check.py").output
    finally:
        connected.borrower.sh("mv /dev/away /dev/tidepool")


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
