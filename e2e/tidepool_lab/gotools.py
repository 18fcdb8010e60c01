"""Programs that are built from their Go modules: the cluster itself, Helm, and what the linters call.

Each folder of `e2e/binaries` is a Go module that pins versions and checksums; a build is cached by that folder's
content.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidepool_lab import debian, paths, store
from tidepool_lab.progress import step

MODULES = paths.E2E / "binaries"
KUBERNETES_VERSION = "v1.36.3"
OLDEST_GO = (1, 26)
# What is linked without debugging information need not be compiled with it.
COMPILER_GOGC = "400"  # in percent: the compiler has memory enough, and collects its garbage a quarter as often
COMPILER = ("-gcflags=all=-dwarf=false",)


@dataclass(frozen=True)
class Build:
    """Programs of one pinned module."""

    module: str
    packages: tuple[str, ...]
    estimate: str
    ldflags: str = "-s -w"
    cgo: bool = False  # with parts in C and C++

    @property
    def name(self) -> str:
        """What progress lines call it."""
        return ", ".join(package.rsplit("/", 1)[1] for package in self.packages)


KUBERNETES_FLAGS = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
# The cluster that `helm template` and `helm lint` assume, when there is none to ask.
_HELM_ASSUMES = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
HELM_FLAGS = f"-s -w -X {_HELM_ASSUMES}Major={_MAJOR} -X {_HELM_ASSUMES}Minor={_MINOR}"

BUILDS = (
    Build(
        "kubernetes",
        tuple(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        "about 7 min on two cores",
        KUBERNETES_FLAGS,
    ),
    Build(
        "kubernetes",
        ("k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-proxy"),
        "about 5 min on two cores",
        KUBERNETES_FLAGS,
    ),
    Build("helm", ("helm.sh/helm/v3/cmd/helm",), "about 1 min", HELM_FLAGS),
    Build(
        "tools",
        (
            "github.com/yannh/kubeconform/cmd/kubeconform",
            "sigs.k8s.io/controller-tools/cmd/controller-gen",
            "sigs.k8s.io/cri-tools/cmd/crictl",
        ),
        "about 1 min",
    ),
    Build("krew", tuple(f"sigs.k8s.io/krew/cmd/{name}" for name in ("krew", "validate-krew-manifest")), "about 1 min"),
    Build("vale", ("github.com/vale-cli/vale/v3/cmd/vale",), "about 2 min", cgo=True),
)


def path(program: str) -> Path:
    """The built program, built now if the cache has none."""
    for build in BUILDS:
        if program in (package.rsplit("/", 1)[1] for package in build.packages):
            return _programs(build) / program
    raise KeyError(program)


def build_all() -> None:
    """Builds whatever the cache lacks."""
    for build in BUILDS:
        _programs(build)
    kubevirt_crds()


def kubevirt_crds() -> Path:
    """KubeVirt's CRDs as its own API module defines them, one YAML file per kind."""
    module = MODULES / "kubevirt"
    key = store.digest(store.digest_files(module.iterdir(), module), _module_key("tools"))
    return store.entry("kubevirt-crds", key, lambda out: _generate_crds(module, out))


def environment() -> dict[str, str]:
    """The environment in which `go` is the compiler that the modules ask for."""
    env = dict(os.environ, GOFLAGS="-buildvcs=false -p=2", CGO_ENABLED="0", GOWORK="off", GOTOOLCHAIN="auto")
    env.setdefault("GOGC", COMPILER_GOGC)
    if not _is_recent(shutil.which("go")):
        env |= {"PATH": f"{_go_from_debian()}/bin:{env['PATH']}"}
    return env


def _programs(build: Build) -> Path:
    key = store.digest(_module_key(build.module), *build.packages, build.ldflags)
    return store.entry("bin", key, lambda out: _compile(build, out))


def _module_key(name: str) -> str:
    return store.digest_files((MODULES / name).iterdir(), MODULES)


def _compile(build: Build, out: Path) -> None:
    with step(f"building {build.name} ({build.estimate})"):
        subprocess.run(
            ["go", "build", "-trimpath", *COMPILER, "-ldflags", build.ldflags, "-o", f"{out}/", *build.packages],
            cwd=MODULES / build.module,
            env=environment() | {"CGO_ENABLED": str(int(build.cgo))},
            check=True,
        )


def _generate_crds(module: Path, out: Path) -> None:
    generator = path("controller-gen")
    with step("generating KubeVirt's CRDs from its API module"):
        subprocess.run(
            [generator, "crd:allowDangerousTypes=true", "paths=kubevirt.io/api/core/v1", f"output:crd:dir={out}"],
            cwd=module,
            env=environment(),
            check=True,
        )


def _is_recent(go: str | None) -> bool:
    if go is None:
        return False
    answer = subprocess.run([go, "env", "-json", "GOVERSION"], capture_output=True, text=True, check=True)
    found = re.match(r"go(\d+)\.(\d+)", json.loads(answer.stdout)["GOVERSION"])
    return found is not None and tuple(map(int, found.groups())) >= OLDEST_GO


def _go_from_debian() -> Path:
    """A Go that can fetch newer toolchains by itself; bookworm's own is too old for that."""
    root = debian.unpacked("trixie", "golang-1.24-go", "golang-1.24-src")
    return root / "usr/lib/go-1.24"
