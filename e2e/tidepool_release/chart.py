"""The chart as Helm packages it, with the digests of its images, and as an OCI artifact."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from tidepool_lab import gotools, paths
from tidepool_lab.progress import LabError
from tidepool_release import oci
from tidepool_release.archives import Content, members, write_tgz
from tidepool_release.source import Source

CHART = paths.ROOT / "charts/tidepool"
PARTS = ("operator", "agent", "node-lender")
OPEN = 'digests: {operator: "", agent: "", node-lender: ""}'
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def build(folder: Path, work: Path, digests: Mapping[str, str], source: Source) -> None:
    """Writes tidepool-VERSION.tgz and, for a registry, tidepool-VERSION.oci.tar."""
    packed = folder / f"tidepool-{source.version}.tgz"
    write_tgz(packed, _packaged(work, digests), source.when)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    config = oci.Blob(CONFIG, json.dumps(about, sort_keys=True).encode())
    labels = {
        "org.opencontainers.image.title": "tidepool",
        "org.opencontainers.image.description": about["description"],
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.created": source.created,
        "org.opencontainers.image.url": source.home,
    }
    artifact = oci.manifest(config, [oci.Blob(CONTENT, packed)], labels)
    oci.write(folder / f"tidepool-{source.version}.oci.tar", artifact, source.version)


def _packaged(work: Path, digests: Mapping[str, str]) -> dict[str, Content]:
    """The files that Helm puts into a package."""
    chart = work / "chart/tidepool"
    shutil.copytree(CHART, chart)
    values = (chart / "values.yaml").read_text()
    if values.count(OPEN) != 1:
        raise LabError(f"{CHART}/values.yaml: the digests of the images must stand there once, as `{OPEN}`")
    known = ", ".join(f'{part}: "{digests[f"tidepool-{part}"]}"' for part in PARTS)
    known = f"digests: {{{known}}}"
    (chart / "values.yaml").write_text(values.replace(OPEN, known))
    helm = gotools.path("helm")
    subprocess.run([helm, "package", chart, "--destination", work], check=True, stdout=subprocess.DEVNULL)
    (package,) = work.glob("tidepool-*.tgz")
    return dict(members(package))
