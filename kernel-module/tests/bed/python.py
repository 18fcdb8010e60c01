"""Python in a guest: this machine's, with its library, on a disk of tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bed.image import with_tools

INTERPRETER = "/usr/bin/python3"
NEEDLESS = {"__pycache__", "test", "tests", "idlelib", "ensurepip", "site-packages", "dist-packages", "tkinter"}


def library() -> Path:
    """Where this machine has the modules of Python's own library."""
    where = [INTERPRETER, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'), end='')"]
    return Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout)


def library_files() -> dict[str, Path]:
    """The files of the library, by their names on the disk; the interpreter is a program like any other."""
    folder = library()
    return {
        f"lib/{folder.name}/{file.relative_to(folder)}": file
        for file in folder.rglob("*")
        if file.suffix in (".py", ".so") and not NEEDLESS & set(file.relative_to(folder).parts)
    }


def with_python(path: str = "/tools") -> str:
    """A shell command's beginning that runs Python in a guest, with the disk on /tools; modules are also in `path`."""
    return f"PYTHONHOME=/tools PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1 {with_tools(INTERPRETER)}"
