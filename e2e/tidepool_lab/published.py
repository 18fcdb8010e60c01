"""CRDs of other projects, of whose kinds the chart has objects, as these projects publish them in their Go modules."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tidepool_lab import gotools, store
from tidepool_lab.progress import step

MODULE = gotools.MODULES / "published"
MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com"
FILES = {
    "github.com/prometheus-operator/prometheus-operator": tuple(
        f"{MONITORING}_{kind}.yaml" for kind in ("podmonitors", "prometheusrules", "servicemonitors")
    ),
    "github.com/openshift/api": ("security/v1/0000_03_security-openshift_01_scc.crd.yaml",),
}


def crds() -> Path:
    """The folder of these CRDs, a YAML file for each kind."""
    key = store.digest(
        store.digest_files(MODULE.iterdir(), MODULE), *(name for names in FILES.values() for name in names)
    )
    return store.entry("published-crds", key, _fetch)


def _fetch(out: Path) -> None:
    """Of the versions in go.mod; go compares their content with go.sum."""
    with step("fetching the CRDs of the Prometheus operator and of OpenShift"):
        for wanted in _go("mod", "edit", "-json")["Require"]:
            folder = Path(_go("mod", "download", "-json", f"{wanted['Path']}@{wanted['Version']}")["Dir"])
            for name in FILES[wanted["Path"]]:
                shutil.copyfile(folder / name, out / Path(name).name)


def _go(*arguments: str) -> Any:
    """What a command of go's prints, which is JSON."""
    done = subprocess.run(
        ["go", *arguments], cwd=MODULE, env=gotools.environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)
