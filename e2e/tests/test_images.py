"""The images: what is in them is listed, and the same sources give the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tarfile
from typing import TYPE_CHECKING

import pytest
from cyclonedx.model.bom import Bom

from tidepool_lab import images, paths, sbom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([^ ]+)", re.MULTILINE)
# As linux/capability.h has them.
VERSION_2, EFFECTIVE = 0x02000000, 0x000001
DAC_OVERRIDE, SYS_PTRACE = 1, 19


@pytest.fixture(scope="module")
def archives() -> dict[str, Path]:
    """Every image, by the name of its archive."""
    return {archive.stem: archive for archive in images.build_all()}


@pytest.mark.parametrize(("name", "part"), [("tidepool-operator", "operator"), ("tidepool-agent", "node-agent")])
def test_a_bill_of_materials_lists_what_is_in_an_image(archives: dict[str, Path], name: str, part: str) -> None:
    """All that the lock file pins, Debian's packages, and the agent's modules; other tools can read it."""
    bill = json.loads(archives[name].with_suffix(".cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == paths.VERSION
    found = {component["bom-ref"] for component in bill["components"]}
    for package, version in PINNED.findall((paths.ROOT / part / "requirements.lock").read_text()):
        assert f"pkg:pypi/{package.lower().replace('_', '-')}@{version}" in found
    assert any(reference.startswith("pkg:deb/debian/python3@") for reference in found)
    modules = [one for one in bill["components"] if one["name"] == "tidepool.ko"]
    assert len(modules) == (len(images.KERNELS) if part == "node-agent" else 0)
    assert len(Bom.from_json(bill).components) == len(found)  # type: ignore[attr-defined]


def test_a_bill_depends_on_the_image_alone(archives: dict[str, Path]) -> None:
    archive = archives["tidepool-agent"]
    assert sbom.document(archive) == archive.with_suffix(".cdx.json").read_text()


def test_the_agents_interpreter_alone_has_capabilities(archives: dict[str, Path]) -> None:
    """SYS_PTRACE and DAC_OVERRIDE, in effect once it is started, which only its group can; nothing else has any."""
    assert list(_with_capabilities(archives["tidepool-operator"])) == []
    ((agent, capabilities),) = _with_capabilities(archives["tidepool-agent"])
    assert (agent.name, agent.mode, agent.uid, agent.gid) == (f"./{images.INTERPRETER}", 0o750, 0, images.USER)
    assert capabilities == (VERSION_2 | EFFECTIVE, 1 << SYS_PTRACE | 1 << DAC_OVERRIDE, 0, 0, 0)


def _with_capabilities(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tuple[int, ...]]]:
    """The files of an image that have any, with the words of the kernel's struct vfs_cap_data."""
    with tarfile.open(archive) as image:
        (manifest,) = json.load(image.extractfile("manifest.json") or io.BytesIO())
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                for member in layer:
                    if found := member.pax_headers.get("SCHILY.xattr.security.capability"):
                        yield member, struct.unpack("<5I", found.encode("utf-8", "surrogateescape"))


def test_the_same_sources_give_the_same_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built twice from nothing, root file system, libraries and all."""
    monkeypatch.setattr(images, "ARCHIVES", tmp_path)
    digests = []
    for name in ("first", "second"):
        monkeypatch.setenv("TIDEPOOL_CACHE", str(tmp_path / name))
        image = images.operator()
        archive = images.write(image)
        digests.append(hashlib.sha256(archive.read_bytes()).hexdigest())
        archive.unlink()
    assert digests[0] == digests[1]
