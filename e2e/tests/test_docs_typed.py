"""What no test runs of the documentation can at least be typed: a shell reads it, and programs have its options."""

from __future__ import annotations

import gzip
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import docs
from tidepool_lab import debian, paths

ALL = sorted({line for page in docs.pages() for block in docs.blocks(page) for line in block})
OPTION = re.compile(r"--?[a-z][\w-]*")
QUERIES = ("lender:", "sum by", "histogram_quantile")  # not for a shell but for Prometheus


def _of_debian(package: str, program: str, *arguments: str) -> Callable[[], str]:
    return lambda: _said(debian.program(package, program), *arguments)


def _said(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _manual_of_mokutil() -> str:
    """For the program itself says nothing on a machine without UEFI."""
    manual = debian.unpacked(debian.HOST_SUITE, "mokutil") / "usr/share/man/man1/mokutil.1.gz"
    return gzip.decompress(manual.read_bytes()).decode().replace("\\-", "-")


def _options_of_mkosi() -> str:
    """Of a version that this machine's Debian has not."""
    return (debian.unpacked("trixie", "mkosi") / "usr/lib/python3/dist-packages/mkosi/config.py").read_text()


# What programs say of themselves that are not part of this repository.
HELP: dict[str, Callable[[], str]] = {
    "apparmor_parser": _of_debian("apparmor", "sbin/apparmor_parser", "--help"),
    "cp": lambda: _said("cp", "--help"),
    "mkosi": _options_of_mkosi,
    "mokutil": _manual_of_mokutil,
    "nc": _of_debian("netcat-openbsd", "bin/nc.openbsd", "-h"),
    "semodule": _of_debian("policycoreutils", "usr/sbin/semodule", "--help"),
    "skopeo": lambda: _said(debian.program("skopeo"), "copy", "--help"),
    "systemctl": lambda: _said("systemctl", "--help"),
    "tar": lambda: _said("tar", "--help"),
    "tidepool-node-lender": lambda: (paths.ROOT / "node-lender/src/main.rs").read_text(),
}
WORDS = {"echo"}
# Programs of ours that hand their arguments on, and to which.
TO = {
    "node-lender/cargo": ("/usr/bin/cargo", "build", "--help"),
    "node-lender/test": (sys.executable, "-m", "pytest", "--help"),
}


def calls(line: str) -> list[list[str]]:
    """The commands of a line, each by its words; what a substitution prints is one word."""
    said = re.sub(r"\$\([^)]*\)", "X", line)
    parts: list[list[str]] = [[]]
    for word in shlex.split(said):
        if word in ("&&", "|", ";"):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def described(program: str) -> str:
    """What is said of a program's options: of one of ours its own text. Raises KeyError for one that nobody knows."""
    own = paths.ROOT / program
    text = own.read_text() if own.is_file() else HELP[Path(program).name]()
    return text + (_said(*TO[program]) if program in TO else "")


@pytest.mark.parametrize("line", [line for line in ALL if not line.startswith(QUERIES)])
def test_a_shell_can_read_it(line: str) -> None:
    """Each command of each page, also of those that are run."""
    done = subprocess.run(["bash", "-n"], input=line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", docs.UNTRIED)
def test_programs_and_options_of_what_is_not_tried_exist(line: str) -> None:
    for program, *arguments in calls(line):
        if program in WORDS:
            continue
        text = described(program)
        for option in filter(OPTION.fullmatch, arguments):
            assert _has(text, option), f"{program} has no {option}"


def _has(text: str, option: str) -> bool:
    """Whether an option is described; short ones may stand together, as in `-xzf`."""
    if option.startswith("--"):
        return option in text or f'"{option.removeprefix("--")}"' in text
    return all(re.search(rf"(?<![\w-])-\w*{letter}", text) for letter in option[1:])


def test_an_option_that_is_none_is_noticed() -> None:
    text = "  -x, --extract\n  -z\n  -f, --file=ARCHIVE"
    assert _has(text, "--extract")
    assert _has(text, "-xzf")
    assert not _has(text, "-xq")
    assert not _has(text, "--squash")


def test_a_line_is_taken_apart() -> None:
    assert calls("a --b $(c -d) && e 'f | g' | h") == [["a", "--b", "X"], ["e", "f | g"], ["h"]]
