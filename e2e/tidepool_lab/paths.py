"""Where things are: sources, build products, cache, run-time directory."""

from __future__ import annotations

import os
from pathlib import Path

E2E = Path(__file__).resolve().parents[1]
ROOT = E2E.parent
VERSION = (ROOT / "VERSION").read_text().strip()

BUILD = ROOT / "build"
# Labs with different names can be up at the same time: all addresses are inside their namespaces.
NAME = os.environ.get("TIDEPOOL_LAB_NAME", "lab")
STATE = BUILD / NAME  # what one lab writes; `down` removes all of it but the logs
LOGS = STATE / "log"
GUESTS = STATE / "guests"
PKI = STATE / "pki"

# Sockets live here and not below STATE: a clone may sit so deep that a path there is too long for a socket.
RUN = Path(f"/run/tidepool-{NAME}")


def cache() -> Path:
    """The folder of everything that is expensive to make and keyed by what it was made from."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TIDEPOOL_CACHE") or Path(base) / "tidepool")
