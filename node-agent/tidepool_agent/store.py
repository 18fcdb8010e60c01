"""The module store: prebuilt kernel modules, one folder per kernel release, each with its checksum beside it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tidepool_agent.errors import ModuleUnavailable

FILE = "tidepool.ko"
APP_FILE = "tidepool-app.ko"
TARGET_FILES = ("tidepool-file.ko", "tidepool-block.ko")
SIGNED = b"~Module signature appended~\n"
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
_MODINFO = re.compile(rb"(?<![A-Za-z_])(version|srcversion)=([A-Za-z0-9._+~-]{1,64})\0")


@dataclass(frozen=True)
class Build:
    """One module, whole and checked."""

    data: bytes
    sha256: str
    version: str
    srcversion: str

    @property
    def signed(self) -> bool:
        """Whether it has a signature; only the guest's kernel knows whether it is one that it trusts."""
        return self.data.endswith(SIGNED)


@dataclass(frozen=True)
class Sources:
    """The sources of the module as a tar archive of the folder that DKMS wants, whole and checked."""

    data: bytes
    sha256: str
    version: str


class Store:
    """Modules by kernel release."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._builds: dict[tuple[str, int, int], Build] = {}

    def has(self, release: str) -> bool:
        """Whether there is a module for this kernel."""
        return self._path(release).is_file()

    def build(self, release: str) -> Build:
        """The module for this kernel, checked against its checksum."""
        path = self._path(release)
        try:
            state = path.stat()
        except FileNotFoundError:
            raise ModuleUnavailable(self.advice(release)) from None
        key = release, state.st_mtime_ns, state.st_size
        if key not in self._builds:
            self._builds[key] = _read(path)
        return self._builds[key]

    def targets(self, release: str) -> dict[str, Build]:
        """The device-mapper targets for this kernel by their files' names, checked against their checksums."""
        return {name: self._target(release, name) for name in TARGET_FILES}

    def _target(self, release: str, name: str) -> Build:
        path = self._path(release).with_name(name)
        if not path.is_file():
            raise ModuleUnavailable(
                f"no {name} for kernel {release}: fill the agent's module store for it with "
                f"`kernel-module/tools/store`; for a kernel without device-mapper (CONFIG_BLK_DEV_DM) there is none"
            )
        return _read(path)

    def app(self, release: str) -> Build:
        """The module for programs for this kernel, checked against its checksum."""
        path = self._path(release).with_name(APP_FILE)
        if not path.is_file():
            raise ModuleUnavailable(
                f"no {APP_FILE} for kernel {release}: fill the agent's module store for it with "
                "`kernel-module/tools/store`; for a kernel without genalloc (CONFIG_GENERIC_ALLOCATOR) there is none"
            )
        return _read(path)

    def sources(self) -> Sources:
        """The sources of the module, as DKMS wants them, checked against their checksum."""
        found = sorted(self._folder.glob("source/tidepool-*.tar.gz"))
        if not found:
            raise ModuleUnavailable("the agent's module store has no sources: fill it with `kernel-module/tools/store`")
        data, digest = _checked(found[-1])
        return Sources(data, digest, found[-1].name.removeprefix("tidepool-").removesuffix(".tar.gz"))

    def advice(self, release: str) -> str:
        """What to do when there is none."""
        known = (
            ", ".join(sorted(folder.name for folder in self._folder.glob("*") if (folder / FILE).is_file())) or "none"
        )
        return (
            f"no tidepool.ko for kernel {release}: the agent's module store has {known}. Fill a store for that kernel "
            f"with `kernel-module/tools/store` and build the agent's image from it (`e2e/images/build STORE`), install "
            f"the module in the guest, or boot a kernel of the store"
        )

    def _path(self, release: str) -> Path:
        if not _RELEASE.fullmatch(release):
            raise ModuleUnavailable("the guest's kernel release is no name of a kernel")
        return self._folder / release / FILE


def _checked(path: Path) -> tuple[bytes, str]:
    """A file's content and its checksum, which lies beside it."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    stated = path.with_name(f"{path.name}.sha256").read_text().split()
    if stated[:1] != [digest]:
        raise ModuleUnavailable(f"{path} does not match its checksum: build the agent's image anew")
    return data, digest


def _read(path: Path) -> Build:
    data, digest = _checked(path)
    info = {name.decode(): value.decode() for name, value in _MODINFO.findall(data)}
    return Build(data, digest, info.get("version", ""), info.get("srcversion", ""))
