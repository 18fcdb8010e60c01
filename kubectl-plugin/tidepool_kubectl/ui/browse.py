"""Opens a page in a browser without naming it on a command line, which all users of a machine can read."""

from __future__ import annotations

import html
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}"><title>Tidepool</title>\n'


@contextmanager
def in_browser(address: str) -> Iterator[None]:
    """Has the user's browser go to an address; meanwhile a file of the user's alone leads there.

    Some browsers stay until they are closed, so nobody waits for one.
    """
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(PAGE.format(html.escape(address)))
        threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
