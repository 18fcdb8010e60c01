"""OCI image layouts (image-spec 1.1) as tar files, which skopeo, containerd and podman read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool_release.archives import Content, sha256, write_tar

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REFERENCE = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Blob:
    """Something that is known by its digest."""

    kind: str
    content: Content
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else its descriptor says."""
    known: str = ""
    """Its digest, where somebody has computed it already."""

    @property
    def digest(self) -> str:
        """As descriptors have it."""
        return f"sha256:{self.known or sha256(self.content)}"

    @property
    def descriptor(self) -> dict[str, Any]:
        """By which others refer to it."""
        size = len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size
        return {"mediaType": self.kind, "digest": self.digest, "size": size, **self.more}


@dataclass(frozen=True)
class Artifact:
    """A manifest, or an index of several, with all that it refers to."""

    root: Blob
    parts: tuple[Blob, ...]

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All of it."""
        return (*self.parts, self.root)


def manifest(config: Blob, layers: Iterable[Blob], annotations: Mapping[str, str], **platform: Any) -> Artifact:
    """One image, or a chart; `platform` is what an index says of it."""
    parts = (config, *layers)
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor,
        "layers": [one.descriptor for one in parts[1:]],
        "annotations": dict(annotations),
    }
    return Artifact(Blob(MANIFEST, _json(document), platform), parts)


def index(images: Iterable[Artifact], annotations: Mapping[str, str]) -> Artifact:
    """One image for several architectures."""
    each = tuple(images)
    document = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [one.root.descriptor for one in each],
        "annotations": dict(annotations),
    }
    return Artifact(Blob(INDEX, _json(document)), tuple(blob for one in each for blob in one.blobs))


def write(target: Path, artifact: Artifact, tag: str) -> None:
    """The layout of one artifact, under a tag."""
    root = artifact.root.descriptor | {"annotations": {REFERENCE: tag}}
    content: dict[str, Content] = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [root]}),
    }
    for blob in artifact.blobs:
        content[f"blobs/{blob.digest.replace(':', '/')}"] = blob.content
    write_tar(target, content)


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
