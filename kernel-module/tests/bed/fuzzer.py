"""The module's own parsers in a program: their sources, a little of the kernel (tests/fuzz), and sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from bed.image import BUILD, TESTS
from bed.sources import MODULE, sources

FUZZ = TESTS / "fuzz"
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
# Kernel headers that tests/fuzz/kernel.h stands in for; and ours that only make sense in the kernel.
EMPTY = re.compile(r"#include <((?:linux|net|crypto)/[\w/-]+\.h)>")
LEFT_OUT = {"base/compat.h", "base/trace.h"}
SYSTEM = {"linux/types.h"}


def build(name: str, without: tuple[str, str] | None = None) -> Path:
    """The program of tests/fuzz/NAME.c; `without` names a source and a check to take out of it."""
    work = BUILD / "fuzz" / f"{name}{'-broken' if without else ''}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for source in FUZZ.glob("*.[ch]"):
        shutil.copy(source, work)
    for source in sources():
        path = str(source.relative_to(MODULE))
        text = "" if path in LEFT_OUT else source.read_text()
        if without and path == without[0]:
            assert without[1] in text, f"{without[1]!r} is not in {path}"
            text = text.replace(without[1], "", 1)
        (work / path).parent.mkdir(exist_ok=True)
        (work / path).write_text(text)
        _make_headers(work / "include", text)
    command = ["gcc", *FLAGS, "-include", "kernel.h", "-I", "include", "-I", ".", "-o", name, f"{name}.c", "fuzz.c"]
    subprocess.run(command, cwd=work, check=True)
    return work / name


def _make_headers(include: Path, text: str) -> None:
    """An empty file for each of the kernel's headers."""
    for header in set(EMPTY.findall(text)) - SYSTEM:
        (include / header).parent.mkdir(parents=True, exist_ok=True)
        (include / header).touch()


def run(name: str, messages: int, seed: int, without: tuple[str, str] | None = None) -> str:
    """What it says at its end; anything that a sanitizer or the fuzzer itself finds raises, with its report."""
    program = build(name, without)
    result = subprocess.run([program, str(messages), str(seed)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{name} {messages} {seed}:\n{result.stderr[-6000:]}"
    return result.stdout
