"""The commands that README.md, CONTRIBUTING.md and docs/ give, and which test tries each of them.

A block that is indented holds commands. One that is fenced does not: pools, configuration, what something prints.
Names in capitals stand for the reader's own; a test puts what it has in their places.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from product import BORROWER, LENDER, POOL

from demo import lab
from tidepool_lab import paths

TUTORIAL = "docs/tutorial/first-pool.md"
PLAIN = "docs/how-to/plain-manifests.md"
CLASSES = "docs/how-to/set-defaults-for-pools.md"
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")  # in the order in which they are read
NAMES = {
    "NAMESPACE": "default",
    "POOL": POOL,
    "PAIRING": f"{POOL}.{BORROWER}.{LENDER}",
    "GUEST": BORROWER,
    "demo": "default",
    "db": BORROWER,
    "databases": POOL,
    "batch": LENDER,
}


@dataclass(frozen=True)
class Kind:
    """Commands that one test tries, all of them: how they begin, and in which file the test is."""

    begin: str
    by: str
    page: str = ""  # only on this page


# The first that fits.
KINDS = {
    "tutorial": Kind("kubectl ", "e2e/tests/test_product_tutorial.py", TUTORIAL),
    "kustomize": Kind("kubectl kustomize ", "e2e/tests/test_docs.py", PLAIN),
    "plain": Kind("helm template |kubectl delete (memorypools|namespace) ", "e2e/tests/test_product_release.py", PLAIN),
    "install-release": Kind("helm install tidepool oci:", "e2e/tests/test_dist.py"),
    "push": Kind("dist/push ", "e2e/tests/released.py"),
    "verify": Kind(r"minisign |\(cd dist ", "e2e/tests/released.py"),
    "plugin": Kind("tar -xzf dist/plugin/", "e2e/tests/test_dist.py"),
    "release": Kind("make release ", "e2e/tests/test_dist.py"),
    "install": Kind("helm install ", "e2e/tests/test_product_release.py"),
    "upgrade": Kind("helm upgrade tidepool .*reuse-values$", "e2e/tests/test_product_release.py"),
    "crds": Kind("kubectl apply .*charts/tidepool/crds/", "e2e/tests/test_product_release.py"),
    "keep": Kind("helm rollback tidepool REVISION ", "e2e/tests/test_product_release.py"),
    "give-up": Kind("helm uninstall .*--no-hooks", "e2e/tests/test_product_release.py"),
    "rollback": Kind("helm rollback ", "e2e/tests/test_product_release.py"),
    "monitoring": Kind("helm upgrade .*monitoring", "e2e/tests/test_product_release.py"),
    "lend-nodes": Kind("helm upgrade .*nodeLender", "e2e/tests/test_product_nodes.py"),
    "uninstall": Kind("helm uninstall ", "e2e/tests/test_product_release.py"),
    "delete-crds": Kind("kubectl delete crd ", "e2e/tests/test_product_release.py"),
    "openstack": Kind("helm upgrade --install |kubectl create namespace ", "e2e/tests/test_product_release.py"),
    "let-go": Kind("kubectl patch memorypairing ", "e2e/tests/test_product_faults.py"),
    "class-fields": Kind("kubectl patch memorypool .*null", "e2e/tests/test_docs_pools.py", CLASSES),
    "class-values": Kind("kubectl patch memorypool .*fromClass", "e2e/tests/test_docs_pools.py", CLASSES),
    "pause": Kind("kubectl patch memorypool .*paused", "e2e/tests/test_docs_pools.py", CLASSES),
    "nodes": Kind("e2e/lab up --nodes ", "e2e/tests/test_product_migration.py"),
    "migrate": Kind("e2e/lab guest migrate ", "e2e/tests/test_product_migration.py"),
    "up": Kind("e2e/lab up ", "e2e/tests/test_product_watch.py"),
    "lab": Kind("e2e/lab (kubectl|exec|logs) ", "e2e/tests/test_product_watch.py"),
    "reload": Kind("e2e/lab reload", "e2e/tests/test_product_release.py"),
    "down": Kind("e2e/lab down", "e2e/tests/conftest.py"),
    "look": Kind(
        "kubectl (get|describe|explain|edit|logs|rollout status|tidepool) ",
        "e2e/tests/test_product_watch.py",
    ),
    "delete": Kind("kubectl delete memorypairing ", "e2e/tests/test_product_watch.py"),
    "give-back": Kind("kubectl delete memorypool ", "e2e/tests/test_product_watch.py"),
    "reach": Kind("timeout 3 bash", "e2e/tests/test_product_watch.py"),
    "query": Kind("sum by|histogram_quantile|lender:", "e2e/tests/test_product_watch.py"),
    "ghost": Kind("(echo|cat) .*/ghost|sleep 600", "e2e/tests/test_product_watch.py"),
    "guest": Kind("cat /|dmesg|grep |cd /sys|echo 1 > events|head ", "e2e/tests/test_product_watch.py"),
    "kernel-module/tools/dkms-tree": Kind("kernel-module/tools/dkms-tree |dkms ", "kernel-module/tests/test_dkms.py"),
    "make -C": Kind(r"make -C |mkdir -p STORE/RELEASE |\(cd STORE/RELEASE ", "kernel-module/tests/test_dkms.py"),
    "checkout": Kind(
        "apt-get |git clone |make (demo|setup)$|kernel-module/t(ools|ests)/|e2e/images/build|openssl |"
        "python3 -m venv |build/plugin/|ln -st |"
        "cd [a-z-]+ && PYTHONPATH",
        "e2e/tests/test_checkout.py",
    ),
}
# Of what stands in a sentence, only such as can be typed as they are; the others are names of commands.
IN_A_SENTENCE = re.compile(r"`((?:kubectl (?:get|describe|explain|edit|delete) |timeout 3 |dmesg \|)[^`]+)`")
# What no test tries, and why.
UNTRIED = {
    "e2e/lint python": "`make test` is made of these",
    "e2e/check unit": "`make test` is made of these",
    "e2e/check quick": "`make test` is made of these",
    "mokutil --import tidepool.der": "it wants a guest with UEFI, and somebody at its console",
    "skopeo copy docker-archive:build/images/tidepool-agent.tar docker://MY/PREFIX/tidepool-agent:$(cat VERSION)": (
        "it wants a registry"
    ),
    "kubectl krew install --manifest=dist/plugin/tidepool.yaml "
    "--archive=$(ls dist/plugin/kubectl-tidepool-*-linux-amd64.tar.gz)": "it wants krew",
    "apt-get install ./dist/module/tidepool-dkms_*_all.deb": "it wants a guest; test_dist.py looks into the package",
}


def pages() -> list[str]:
    """Those whose commands are tried, by their paths."""
    listed = [
        subprocess.run(["git", "ls-files", one], cwd=paths.ROOT, capture_output=True, text=True, check=True)
        for one in PAGES
    ]
    return [page for one in listed for page in one.stdout.splitlines()]


def blocks(page: str) -> list[list[str]]:
    """The commands of each indented block of a page, without the comments at their ends; then those in sentences."""
    text = re.sub(r"^( *)```.*?^\1```$", "", (paths.ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    indented = re.compile(r"(?<=\n\n)(?: {4,}\S.*\n?)+")
    sentences = IN_A_SENTENCE.findall(indented.sub("", text))
    return [_commands(one) for one in indented.findall(text)] + [[" ".join(one.split())] for one in sentences]


def _commands(block: str) -> list[str]:
    joined = re.sub(r" *\\\n *", " ", textwrap.dedent(block))
    return [re.sub(r"\s{2,}#.*| # .*", "", line) for line in joined.splitlines()]


def kind_of(page: str, line: str) -> str | None:
    """By which name a command is asked for; None for one that no test asks for."""
    fitting = (name for name, kind in KINDS.items() if kind.page in ("", page) and re.match(kind.begin, line))
    return None if line in UNTRIED else next(fitting, None)


def scripts(kind: str) -> list[list[str]]:
    """The commands of a kind, those of one block together."""
    found = [[line for line in block if kind_of(page, line) == kind] for page in pages() for block in blocks(page)]
    return [script for script in found if script]


def commands(kind: str) -> list[str]:
    """The commands of a kind, each once, in the order in which they are read."""
    return list(dict.fromkeys(line for script in scripts(kind) for line in script))


def command(kind: str) -> str:
    """The only command of its kind."""
    (line,) = commands(kind)
    return line


def filled_in(line: str, names: Mapping[str, str] = NAMES) -> str:
    """With names that are there in place of those that stand for them."""
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[1]], line)


def examples(page: str) -> list[str]:
    """The YAML that a page shows."""
    return re.findall(r"^```yaml\n(.*?)^```", (paths.ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(line: str) -> str:
    """Runs a command as a shell would, kubectl and Helm being the lab's, and returns what it prints.

    What would go on for ever is done once. Raises AssertionError with what it said.
    """
    once = " --interval 1" + ("" if "--once" in line else " --once") if "tidepool top" in line else ""
    programs = [f'{name}() {{ {shlex.quote(str(lab.LAB))} {name} "$@"; }}' for name in ("kubectl", "helm")]
    script = "\n".join(["export KUBE_EDITOR=true", *programs, f"{line}{once}"])
    done = subprocess.run(
        ["bash", "-c", script], cwd=paths.ROOT, capture_output=True, text=True, check=False, timeout=660
    )
    assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
