"""The images, each for every architecture, with a bill of materials of each."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

from tidepool_lab import images, rootfs, sbom, store
from tidepool_lab.images import Image
from tidepool_release import oci
from tidepool_release.archives import sha256
from tidepool_release.source import Source

ARCHITECTURES = ("amd64", "arm64")
VARIANTS = {"arm64": {"variant": "v8"}}
ABOUT = {
    "tidepool-operator": "Plans which virtual machine lends memory to which",
    "tidepool-agent": "Finds the virtual machines of a node, and sets them up to lend and borrow memory",
    "tidepool-node-lender": "Lends memory of a node that no virtual machine has",
}
PREFIX = "org.opencontainers.image"


def build(folder: Path, bills: Path, modules: Path, source: Source) -> dict[str, str]:
    """Writes an archive of each image, and bills of materials; returns the digests by the images' names.

    `modules` is the module store. It is for amd64 alone: elsewhere the agent has the sources only.
    """
    elsewhere = modules.with_name("modules-of-others")
    shutil.copytree(modules / "source", elsewhere / "source")
    each: dict[str, list[Image]] = {name: [] for name in ABOUT}
    for architecture in ARCHITECTURES:
        stock = modules if architecture == rootfs.NATIVE else elsewhere
        each["tidepool-operator"].append(images.operator(architecture))
        each["tidepool-agent"].append(images.agent(stock, architecture))
        each["tidepool-node-lender"].append(images.node_lender(architecture))
    digests = {}
    for name, built in each.items():
        artifact = oci.index([_manifest(image, source) for image in built], _labels(name, source))
        oci.write(folder / f"{name}.tar", artifact, source.version)
        digests[name] = artifact.root.digest
        for image in built:
            bill = bills / f"{name}-linux-{image.architecture}.cdx.json"
            bill.write_text(_bill(image))
    return digests


def _labels(name: str, source: Source) -> dict[str, str]:
    about = {
        "title": name,
        "description": ABOUT[name],
        "version": source.version,
        "revision": source.revision,
        "created": source.created,
        "licenses": "Apache-2.0 AND GPL-2.0-only" if name == "tidepool-agent" else "Apache-2.0",
        "url": source.home,
        "documentation": f"{source.home}/docs",
    }
    return {f"{PREFIX}.{key}": value for key, value in about.items()}


def _manifest(image: Image, source: Source) -> oci.Artifact:
    labels = _labels(image.short, source)
    variant = VARIANTS.get(image.architecture, {})
    labelled = Image(image.name, image.layers, image.config | {"Labels": labels}, image.architecture)
    history = [{"created": source.created, "created_by": "make release"} for _ in image.layers]
    config = images.configuration(labelled, created=source.created, history=history, **variant)
    platform = {"os": "linux", "architecture": image.architecture, **variant}
    layers = [_layer(path) for path in image.layers]
    return oci.manifest(oci.Blob(oci.CONFIG, config), layers, labels, platform=platform)


def _layer(path: Path) -> oci.Blob:
    """A layer, compressed; what was compressed once is in the cache."""
    packed = store.entry("oci-layer", images.diff_id(path), lambda out: _compress(path, out))
    return oci.Blob(oci.LAYER, packed / "layer.tar.gz", known=(packed / "sha256").read_text())


def _compress(path: Path, out: Path) -> None:
    packed = out / "layer.tar.gz"
    with path.open("rb") as plain, packed.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as target:
        shutil.copyfileobj(plain, target, 1 << 20)
    (out / "sha256").write_text(sha256(packed))


def _bill(image: Image) -> str:
    """What is in the image of one architecture."""
    identity = sha256(json.dumps([images.diff_id(path) for path in image.layers]).encode())
    return sbom.of_layers(image.name, identity, image.layers)
