"""The commands that the documentation gives, block by block."""

from __future__ import annotations

import re
import shlex
import subprocess

from product import BORROWER, LENDER, POOL

from demo import lab
from tidepool_lab import paths

INDENT = "    "
NAMES = {
    "NAMESPACE": "default",
    "POOL": POOL,
    "PAIRING": f"{POOL}.{BORROWER}.{LENDER}",
    "GUEST": BORROWER,
    "demo": "default",
    "db": BORROWER,
    "batch": LENDER,
}
# What changes nothing, and what leaves a pool at work as it is.
VERBS = ("get", "describe", "logs", "wait", "rollout status", "tidepool", "label", "patch memorypool ")
QUERIES = ("sum by", "histogram_quantile", "lender:")
IN_A_GUEST = ("cat /", "dmesg", "grep", "cd /sys")


def blocks(pages: str = "docs/*.md") -> list[list[str]]:
    """Every run of indented lines, without the comments at their ends."""
    listed = subprocess.run(["git", "ls-files", pages], cwd=paths.ROOT, capture_output=True, text=True, check=True)
    texts = [(paths.ROOT / name).read_text() for name in listed.stdout.splitlines()]
    return [_lines(block) for text in texts for block in re.findall(r"(?:^    .*\n?)+", text, re.MULTILINE)]


def _lines(block: str) -> list[str]:
    return [re.sub(r"\s{2,}#.*| # .*", "", line.removeprefix(INDENT)) for line in block.splitlines()]


def is_for_kubectl(line: str) -> bool:
    """Whether it is a kubectl command that can be tried beside others."""
    return line.startswith(tuple(f"kubectl {verb}" for verb in VERBS))


def is_query(line: str) -> bool:
    """Whether it is for Prometheus."""
    return line.startswith(QUERIES)


def is_for_a_guest(block: list[str]) -> bool:
    """Whether it is to be typed in a guest."""
    return block[0].startswith(IN_A_GUEST)


def filled_in(line: str) -> str:
    """With names that are there in place of those that stand for them."""
    return re.sub(r"\b(" + "|".join(NAMES) + r")\b", lambda match: NAMES[match[1]], line)


def examples(page: str) -> list[str]:
    """The YAML that a page shows."""
    return re.findall(r"^```yaml\n(.*?)^```", (paths.ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(line: str) -> None:
    """Runs a kubectl command as a shell would; what would go on for ever is done once. Raises what it said."""
    once = " --interval 1" + ("" if "--once" in line else " --once") if "tidepool top" in line else ""
    script = f'kubectl() {{ {shlex.quote(str(lab.LAB))} kubectl "$@"; }}; {filled_in(line)}{once}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
