"""`python -m tidepool_release [FOLDER] [--key KEY]`: makes a release, in dist/ unless another folder is named."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tidepool_lab import paths
from tidepool_lab.progress import LabError, say
from tidepool_release import chart, clients, guests, images, module, nodelender, papers, plugin, standalone
from tidepool_release.source import Source, changes


def release(folder: Path, key: Path | None = None) -> None:
    """Makes everything, and then puts it in the place of what is there."""
    source = Source.here()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=folder.parent) as scratch:
        work, made = Path(scratch, "work"), Path(scratch, "dist")
        work.mkdir()
        for name in ("images", "sbom", "chart", "module", "plugin", "standalone", "clients", "guests", "node-lender"):
            (made / name).mkdir(parents=True)
        _build(made, work, source)
        if key:
            papers.sign(made, key, source)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    say(f"{folder}: release {source.version} of {source.revision[:12]}, {'signed' if key else 'not signed (--key)'}")


def _build(made: Path, work: Path, source: Source) -> None:
    papers.write_notes(made, source)  # first, for it can fail
    modules = work / "modules"
    module.build_store(modules)
    module.pack_store(made / f"module/tidepool-modules-{source.version}.tar.gz", modules, source)
    module.build_package(made / "module", work, source)
    plugin.build(made / "plugin", work, source)
    standalone.pack(made / f"standalone/tidepool-standalone-{source.version}.tar.gz", source)
    guests.pack(made / f"guests/tidepool-guests-{source.version}.tar.gz", source)
    clients.build(made / "clients", made / "sbom", work, source)
    nodelender.build(made / "node-lender", made / "sbom", work, source)
    digests = images.build(made / "images", made / "sbom", modules, source)
    chart.build(made / "chart", work, digests, source)
    papers.write_push(made, source)
    papers.write_sums(made)


def main() -> int:
    """Returns an exit code."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=paths.ROOT / "dist")
    parser.add_argument("--key", type=Path, help="a secret key of minisign's, by which the checksums are signed")
    parser.add_argument("--changed", action="store_true", help="also with changes that are not committed")
    options = parser.parse_args()
    try:
        if not options.changed and (found := changes()):
            raise LabError(f"commit these changes first, or say --changed:\n{found}")
        if options.key and not options.key.is_file():
            raise LabError(f"--key {options.key}: there is no such file")
        release(options.folder.resolve(), options.key)
    except LabError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
