"""What is in an image, as a bill of materials: python -m tidepool_lab.sbom ARCHIVE...

Read from the image itself, not from what it was to be made of: Debian's packages, Python's distributions, and the
modules of the agent's store. Writes CycloneDX 1.6 as JSON beside the archive. (Runs with build/venv.)
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import IO

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

OURS, MODULES = "Apache-2.0", "GPL-2.0-only"
DPKG_STATUS = "var/lib/dpkg/status"
LICENSES = LicenseFactory()


def document(archive: Path) -> str:
    """The bill of a docker-archive; the same archive gives the same bill."""
    with tarfile.open(archive) as image:
        (manifest,) = json.load(_file(image, "manifest.json"))
        files = (_file(image, layer) for layer in manifest["Layers"])
        return _bill(manifest["RepoTags"][0], manifest["Config"].removesuffix(".json"), files)


def of_layers(image: str, identity: str, layers: Iterable[Path]) -> str:
    """The bill of an image whose layers are tar files; `identity` is a digest that stands for it."""
    with ExitStack() as files:
        return _bill(image, identity, [files.enter_context(layer.open("rb")) for layer in layers])


@dataclass(frozen=True)
class File:
    """Something that is installed by itself."""

    name: str
    content: bytes
    version: str
    licence: str


def of_files(name: str, version: str, files: Sequence[File]) -> str:
    """The bill of something that is released as several files."""
    parts = [_file_of(one) for one in files]
    identity = hashlib.sha256(b"".join(hashlib.sha256(one.content).digest() for one in files)).hexdigest()
    described = Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"release:{name}",
        licenses=[LICENSES.make_from_string(OURS)],
    )
    return _written(described, parts, identity)


def _file_of(one: File, reference: str = "") -> Component:
    return Component(
        name=one.name,
        version=one.version,
        type=ComponentType.FILE,
        bom_ref=reference or f"file:{one.name}",
        licenses=[LICENSES.make_from_string(one.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(one.content).hexdigest())],
    )


def _bill(image: str, identity: str, layers: Iterable[IO[bytes]]) -> str:
    parts = {part.bom_ref.value: part for layer in layers for part in _in_layer(layer)}
    name, version = image.rsplit("/", 1)[1].split(":")
    described = Component(
        name=name,
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref=f"image:{name}",
        licenses=[LICENSES.make_from_string(OURS)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=identity)],
    )
    return _written(described, parts.values(), identity)


def _written(described: Component, parts: Collection[Component], identity: str) -> str:
    metadata = BomMetaData(component=described, timestamp=datetime.fromtimestamp(0, UTC))
    bom = Bom(components=parts, metadata=metadata, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, identity))
    bom.register_dependency(described, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _in_layer(file: IO[bytes]) -> Iterator[Component]:
    with tarfile.open(fileobj=file) as layer:
        for member in layer:
            path = PurePosixPath(member.name.removeprefix("./"))
            if str(path) == DPKG_STATUS:
                yield from _debian(_text(layer, member))
            elif path.name == "METADATA" and path.parent.suffix == ".dist-info":
                yield _python(_parsed(_text(layer, member)))
            elif path.suffix == ".ko":
                yield _module(path, _file(layer, member).read())


def _file(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> tarfile.ExFileObject:
    found = archive.extractfile(member)
    if not isinstance(found, tarfile.ExFileObject):
        raise ValueError(f"{member} is no file")
    return found


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    return _file(archive, member).read().decode()


def _parsed(text: str) -> Message:
    return HeaderParser().parsestr(text)


def _debian(status: str) -> Iterator[Component]:
    """Every installed package; each one's licences are in its own copyright file, which is not machine-readable."""
    for paragraph in status.strip().split("\n\n"):
        fields = _parsed(paragraph)
        if "installed" in fields["Status"].split():
            name, version = fields["Package"], fields["Version"]
            purl = PackageURL("deb", "debian", name, version, {"arch": fields["Architecture"]})
            yield Component(name=name, version=version, purl=purl, bom_ref=purl.to_string())


def _python(metadata: Message) -> Component:
    name, version = metadata["Name"], metadata["Version"]
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), version)
    stated = metadata["License-Expression"]
    licenses = [LICENSES.make_from_string(stated)] if stated else []
    return Component(name=name, version=version, purl=purl, bom_ref=purl.to_string(), licenses=licenses)


def _module(path: PurePosixPath, content: bytes) -> Component:
    """tidepool.ko for one kernel, whose release is the name of its folder."""
    return _file_of(File(path.name, content, path.parent.name, MODULES), f"file:{path}")


def main(archives: list[str]) -> None:
    """Writes the bills."""
    for archive in map(Path, archives):
        archive.with_suffix(".cdx.json").write_text(document(archive))


if __name__ == "__main__":
    main(sys.argv[1:])
