"""What the documentation says to build and to try with the sources alone, done in a fresh checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import docs
from tidepool_lab import paths
from tidepool_release import module

# In place of what is the reader's own, and of what would take long or change this machine.
INSTEAD = {
    "apt-get install": "apt-get --simulate install",
    "…": str(paths.ROOT),
    "make demo": "make --dry-run demo",  # six minutes; its parts are what the tests of the product are made of
    "tests/run": "tests/run --collect-only",  # `make test` runs these tests; here they are only found
    "-m pytest": "-m pytest --collect-only",
    "STORE": "build/another-store",
    "~/.local/bin": "build/bin",
}


def test_a_fresh_checkout_does_what_is_said_of_it() -> None:
    """Every such command in its order; then stores, images and the plugin hold what was promised."""
    with tempfile.TemporaryDirectory(prefix="checkout-", dir=paths.BUILD) as folder:
        checkout = Path(folder) / "tidepool"
        for line in docs.commands("checkout"):
            for written, here in INSTEAD.items():
                line = line.replace(written, here)
            _run(line, checkout if checkout.exists() else checkout.parent)
            if line.startswith("git clone"):
                _as_it_is_here(checkout)
        for store, signer in (("store", ""), ("another-store", "tidepool")):
            found = sorted((checkout / "build" / store).glob("*/*.ko"))
            assert Counter(path.name for path in found) == dict.fromkeys(module.files(), len(module.KERNELS))
            assert {_signer(path) for path in found if path.parent == found[0].parent} == {signer}
        bill = json.loads((checkout / "build/images/tidepool-agent.cdx.json").read_text())
        held = Counter(one["name"] for one in bill["components"])
        assert all(held[name] > 1 for name in module.files())
        assert _run("build/bin/kubectl-tidepool --help", checkout)
        assert "explain" in _run("build/bin/kubectl_complete-tidepool ''", checkout).split()


def _as_it_is_here(checkout: Path) -> None:
    """With changes that are not committed yet, with what has been built of these sources, and a folder for programs."""
    listed = _run("git ls-files --cached --others --exclude-standard", paths.ROOT)
    for name in filter(lambda name: (paths.ROOT / name).is_file(), listed.splitlines()):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).unlink(missing_ok=True)  # a link is made, not written to
        shutil.copy(paths.ROOT / name, checkout / name, follow_symlinks=False)
    (checkout / "build/bin").mkdir(parents=True)
    for name in ("images", "modules"):
        if (paths.BUILD / name).exists():
            _run(f"cp -al {paths.BUILD / name} build", checkout)


def _run(line: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-ec", line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def _signer(file: Path) -> str:
    return _run(f"PATH=$PATH:/usr/sbin:/sbin modinfo -F signer {file}", file.parent).strip()
