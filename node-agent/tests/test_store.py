"""The module store."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from tiny import PATH, TOP

from tidepool_agent.errors import ModuleUnavailable
from tidepool_agent.store import Store

TOOL = TOP / "kernel-module/tools/store"
VERSION = (TOP / "VERSION").read_text().strip()
ENV = {**os.environ, "PATH": PATH}


def put(folder: Path, release: str, data: bytes) -> Path:
    file = folder / release / "tidepool.ko"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    file.with_name("tidepool.ko.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  tidepool.ko\n")
    return file


def test_a_module_comes_with_its_versions(tmp_path: Path, module: Path) -> None:
    put(tmp_path, "6.1.0-1", module.read_bytes())
    build = Store(tmp_path).build("6.1.0-1")
    assert build.version == VERSION
    assert len(build.srcversion) == 23
    assert build.sha256 == hashlib.sha256(module.read_bytes()).hexdigest()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    store, file = Store(tmp_path), put(tmp_path, "r", b"one")
    assert store.build("r").data == b"one"
    file.unlink()
    file.with_name("tidepool.ko.sha256").unlink()
    file.parent.rmdir()
    put(tmp_path, "r", b"other")
    assert store.build("r").data == b"other"


def test_a_missing_kernel_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    put(tmp_path, "6.1.0-1", b"")
    store = Store(tmp_path)
    assert not store.has("6.12.0-2")
    with pytest.raises(ModuleUnavailable, match=r"kernel 6\.12\.0-2: the agent's module store has 6\.1\.0-1\."):
        store.build("6.12.0-2")


def test_the_targets_lie_beside_the_module(tmp_path: Path) -> None:
    """With checksums of their own; a kernel without device-mapper has none."""
    folder = put(tmp_path, "r", b"module").parent
    for name, data in (("tidepool-file.ko", b"file"), ("tidepool-block.ko", b"target")):
        with pytest.raises(ModuleUnavailable, match=rf"no {name} for kernel r: .*CONFIG_BLK_DEV_DM"):
            Store(tmp_path).targets("r")
        (folder / name).write_bytes(data)
        (folder / f"{name}.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    assert [build.data for build in Store(tmp_path).targets("r").values()] == [b"file", b"target"]
    (folder / "tidepool-block.ko.sha256").write_text("0" * 64)
    with pytest.raises(ModuleUnavailable, match="checksum"):
        Store(tmp_path).targets("r")


def test_the_module_for_programs_lies_beside_the_module(tmp_path: Path) -> None:
    """A kernel without genalloc has none."""
    folder = put(tmp_path, "r", b"module").parent
    with pytest.raises(ModuleUnavailable, match=r"no tidepool-app\.ko for kernel r: .*CONFIG_GENERIC_ALLOCATOR"):
        Store(tmp_path).app("r")
    (folder / "tidepool-app.ko").write_bytes(b"app")
    (folder / "tidepool-app.ko.sha256").write_text(f"{hashlib.sha256(b'app').hexdigest()}  tidepool-app.ko\n")
    assert Store(tmp_path).app("r").data == b"app"


def test_one_command_fills_a_store_and_signs_what_is_in_it(tmp_path: Path) -> None:
    """Item 9: for a list of kernels; the kernel's own tools read the signature."""
    key, cert, folder = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "store"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=Our own key"]
    subprocess.run(["openssl", *request, "-keyout", key, "-out", cert], check=True, capture_output=True)
    for options, signed in (((), False), (("--key", key, "--cert", cert), True)):
        made = subprocess.run([TOOL, *options, folder, "6.1"], check=True, stdout=subprocess.PIPE, text=True)
        files = [Path(line) for line in made.stdout.splitlines()]
        assert [file.stem for file in files] == ["tidepool-app", "tidepool-block", "tidepool-file", "tidepool"]
        build = Store(folder).build(files[0].parent.name)
        assert (build.version, build.signed) == (VERSION, signed)
        shown = subprocess.run(["modinfo", "-F", "signer", *files], check=True, capture_output=True, text=True, env=ENV)
        assert shown.stdout.split("\n")[:-1] == (["Our own key"] * len(files) if signed else [])


@pytest.mark.parametrize("release", ["..", "../other", "a/b", "", ".hidden", "x" * 200])
def test_a_guest_cannot_name_another_folder(tmp_path: Path, release: str) -> None:
    put(tmp_path.parent, f"{tmp_path.name}-other", b"")
    with pytest.raises(ModuleUnavailable, match="no name of a kernel"):
        Store(tmp_path).build(release)
