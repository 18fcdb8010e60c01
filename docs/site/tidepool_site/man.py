"""The man pages: tidepool(4) from the module's ABI.md, kubectl-tidepool(1) from the plugin's command line and its page.

`python -m tidepool_site.man FOLDER` writes both.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import typer

from tidepool_kubectl.cli import app
from tidepool_site import roff
from tidepool_site.pages import ROOT

ABI = "kernel-module/ABI.md"
MAIN = "kernel-module/control/main.c"
PLUGIN = "docs/reference/kubectl-tidepool.md"
CLI = "kubectl-plugin/tidepool_kubectl/cli.py"
DESCRIPTION = re.compile(r'^MODULE_DESCRIPTION\("(.*)"\);$', re.MULTILINE)


def main() -> None:
    """Writes the pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {"tidepool.4": module_page(), "kubectl-tidepool.1": plugin_page()}.items():
        (folder / name).write_text(roff.text(lines))


def module_page() -> list[str]:
    """tidepool(4)."""
    _, *blocks = roff.tree((ROOT / ABI).read_text())
    loading = next(block.content for block in blocks if block.type == "fence")
    (said,) = DESCRIPTION.findall((ROOT / MAIN).read_text())
    return [
        *_head("tidepool", 4, "Kernel module", ABI),
        *roff.name("tidepool", _small(said)),
        roff.section("Synopsis"),
        *roff.prose(f"`{loading.strip()}`"),
        roff.section("Description"),
        *roff.lines(blocks),
        *_see_also("kubectl-tidepool(1)", "modprobe(8)", "dmsetup(8)"),
    ]


def plugin_page() -> list[str]:
    """kubectl-tidepool(1)."""
    _, *blocks = roff.tree((ROOT / PLUGIN).read_text())
    first = next(at for at, block in enumerate(blocks) if block.type == "heading")
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return [
        *_head("kubectl-tidepool", 1, "User commands", PLUGIN, CLI),
        *roff.name("kubectl-tidepool", _small(str(group.help).split(".")[0])),
        roff.section("Synopsis"),
        *roff.prose("**kubectl tidepool** *COMMAND* [*OPTIONS*]"),
        roff.section("Description"),
        *roff.lines([block for block in blocks[:first] if block.type == "paragraph"]),
        roff.section("Commands"),
        *(line for name, command in group.commands.items() for line in _command(name, command)),
        *roff.lines(blocks[first:]),
        *_see_also("kubectl(1)", "tidepool(4)"),
    ]


def _command(name: str, command: object) -> list[str]:
    assert isinstance(command, typer.core.TyperCommand)
    context = typer.Context(command, info_name=name)
    records = filter(None, (parameter.get_help_record(context) for parameter in command.params))
    return [
        roff.subsection(" ".join([name, *command.collect_usage_pieces(context)])),
        *roff.prose(str(command.help)),
        *(line for names, said in records for line in roff.entry(f"`{names}`", said)),
    ]


def _head(name: str, number: int, manual: str, *sources: str) -> list[str]:
    """The title: with the day on which a source last changed, so that a page changes with these alone."""
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%cs", "--", *sources], cwd=ROOT, capture_output=True, text=True, check=True
    )
    version = (ROOT / "VERSION").read_text().strip()
    return [f'.TH {name.upper()} {number} {shown.stdout.strip()} "Tidepool {version}" "{manual}"']


def _small(said: str) -> str:
    return said[0].lower() + said[1:]


def _see_also(*pages: str) -> list[str]:
    return [roff.section("See also"), *roff.prose(", ".join(re.sub(r"^([\w-]+)", r"**\1**", page) for page in pages))]


if __name__ == "__main__":
    main()
