"""The page of `kubectl tidepool ui` in pictures, while a pool is at work in the lab: python -m demo.page FOLDER GUEST.

As somebody sees it: the command is run, and a Chromium opens what it names. FOLDER gets ui-map.png and ui-guest.png.
Meanwhile the guest has to read what its lender has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from tidepool_api_testing.chart import program
from tidepool_lab import cluster, host

COMMAND = (sys.executable, "-m", "tidepool_kubectl", "ui", "-A", "--no-browser")
THERE = "--there"
SIZE: ViewportSize = {"width": 1100, "height": 560}
SECONDS = 120  # until all is shown, and a line has its figures, which takes two readings; on a busy machine


def draw(folder: Path, guest: str) -> None:
    """Draws the map, and the page of a guest of the namespace `default` that borrows."""
    with sync_playwright() as playwright, _opened() as address:
        browser = playwright.chromium.launch(executable_path=program("chromium"))
        _draw(browser, address, folder, guest)
        browser.close()


def _draw(browser: Browser, address: str, folder: Path, guest: str) -> None:
    page = browser.new_page(viewport=SIZE, device_scale_factor=2)
    page.set_default_timeout(SECONDS * 1000)
    expect.set_options(timeout=SECONDS * 1000)
    page.goto(address)
    expect(page.get_by_role("heading", name="Who lends to whom")).to_be_visible()
    pairings = page.get_by_role("table", name="Pairings")
    expect(pairings.get_by_role("cell", name="Connected")).to_be_visible()
    for nothing in ("unknown", "0/s"):
        expect(pairings.get_by_role("cell", name=nothing, exact=True)).to_have_count(0)
    page.screenshot(path=folder / "ui-map.png", full_page=True)
    page.get_by_role("link", name=f"default/{guest}, Borrower").first.click()
    expect(page.get_by_role("heading", name=f"default/{guest}")).to_be_visible()
    page.screenshot(path=folder / "ui-guest.png", full_page=True)


@contextmanager
def _opened() -> Iterator[str]:
    """The command while it runs: where its page is."""
    with subprocess.Popen(COMMAND, env=cluster.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().removeprefix("open ").strip()
        finally:
            process.terminate()  # not as Ctrl-C would: who was started in the background ignores that


if __name__ == "__main__":
    if sys.argv[1] == THERE:
        draw(Path(sys.argv[2]), sys.argv[3])
    else:  # the API server and what the command serves are reached in the lab's network namespace alone
        command = host.in_netns([sys.executable, "-m", "demo.page", THERE, *sys.argv[1:]])
        os.execvp(command[0], command)
