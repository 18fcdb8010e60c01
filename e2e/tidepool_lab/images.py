"""Container images without a container daemon or a registry.

Debian root file systems and folders become layers of a docker-archive that containerd imports. A layer is cached by
what it is made from. The last layer of the operator and of the agent holds only our own sources, so that a change of
them is in the cluster within seconds.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidepool_lab import paths, rootfs, rust, store
from tidepool_lab.progress import LabError, say, step

PREFIX = "tidepool.local"
PAUSE = f"{PREFIX}/pause:{paths.VERSION}"
LAUNCHER = f"{PREFIX}/virt-launcher:{paths.VERSION}"
ARCHIVES = paths.BUILD / "images"
KERNELS = ("6.1", "6.12")
USER = 65532
QEMU_USER = 107
INTERPRETER = "usr/bin/tidepool-agent"
NODE_LENDER = "usr/bin/tidepool-node-lender"
# What pip is told where it is to fetch for another machine than this one; Debian 12 has Python 3.11 and glibc 2.36.
PLATFORMS: dict[str, tuple[str, ...]] = {
    rootfs.NATIVE: (),
    "arm64": (
        "--python-version=3.11", "--only-binary=:all:", "--platform=manylinux_2_28_aarch64",
        "--platform=manylinux_2_17_aarch64", "--platform=manylinux2014_aarch64",
    ),
}  # fmt: skip

PYTHON_BASE = ("python3", "ca-certificates")
PASSWD = (f'echo "tidepool:x:{USER}:{USER}::/tmp:/usr/sbin/nologin" >> "$1"/etc/passwd',
          f'echo "tidepool:x:{USER}:" >> "$1"/etc/group')  # fmt: skip
# The agent's capabilities come with its interpreter, as node-agent/Containerfile says.
AGENT = (f'install -m 0750 -g {USER} "$1"/usr/bin/python3 "$1"/{INTERPRETER}',
         f'setcap cap_sys_ptrace,cap_dac_override+ep "$1"/{INTERPRETER}')  # fmt: skip
# An absolute /var/run would lead somebody who looks in through /proc/PID/root out of the container again.
QEMU_PASSWD = ('ln -sfn ../run "$1"/var/run',
               f'echo "qemu:x:{QEMU_USER}:{QEMU_USER}:qemu:/run/vm:/usr/sbin/nologin" >> "$1"/etc/passwd',
               f'echo "qemu:x:{QEMU_USER}:" >> "$1"/etc/group')  # fmt: skip


@dataclass(frozen=True)
class Image:
    """An image before it is written: its name, its layers (tar files, lowest first) and how it starts."""

    name: str
    layers: tuple[Path, ...]
    config: dict[str, object]
    architecture: str = rootfs.NATIVE

    @property
    def archive(self) -> Path:
        """Where the docker-archive goes."""
        return ARCHIVES / f"{self.short}.tar"

    @property
    def short(self) -> str:
        """Its name without a registry and a version."""
        return self.name.rpartition("/")[2].partition(":")[0]


def build_all(modules: Path | None = None) -> list[Path]:
    """Builds every image that the sources allow and returns the archives.

    `modules` is a module store for the agent, as kernel-module/tools/store fills it; without, one is made for the
    kernels of the lab.
    """
    images = [pause(), launcher()]
    if (paths.ROOT / "operator/requirements.lock").exists():
        images.append(operator())
    if (paths.ROOT / "node-agent/requirements.lock").exists():
        images.append(agent(modules or _module_store()))
    if (paths.ROOT / "node-lender/Cargo.lock").exists():
        images.append(node_lender())
    with store.locked("images", "archives"):
        archives = [write(image) for image in images]
        _list_materials([archive for archive in archives if not archive.with_suffix(".cdx.json").exists()])
    return archives


def pause() -> Image:
    """The sandbox of every pod: a static program that reaps and waits."""
    source = paths.E2E / "images/pause.c"
    layer = store.entry("layer", f"pause-{store.digest(source.read_bytes())}", lambda out: _compile_pause(source, out))
    return Image(PAUSE, (layer / "layer.tar",), {"Entrypoint": ["/pause"], "User": "65535:65535"})


def launcher() -> Image:
    """What stands in for KubeVirt's virt-launcher: libvirt and QEMU of trixie, as an unprivileged user."""
    packages = ("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86", "procps")
    base = rootfs.build(rootfs.Recipe("virt-launcher", "trixie", packages, hooks=QEMU_PASSWD))
    return Image(LAUNCHER, (base,), {"User": f"{QEMU_USER}:{QEMU_USER}", "Entrypoint": ["/bin/sh"]})


def operator(architecture: str = rootfs.NATIVE) -> Image:
    """The operator's image."""
    base = rootfs.Recipe("python-operator", "bookworm", PYTHON_BASE, hooks=PASSWD, architecture=architecture)
    return _python_image("operator", "tidepool_operator", base, "usr/bin/python3", {})


def agent(modules: Path, architecture: str = rootfs.NATIVE) -> Image:
    """The agent's image, with a module store and an interpreter that has the agent's two capabilities."""
    packages, hooks = (*PYTHON_BASE, "python3-libvirt"), PASSWD + AGENT
    base = rootfs.Recipe("python-node-agent", "bookworm", packages, hooks=hooks, architecture=architecture)
    return _python_image("node-agent", "tidepool_agent", base, INTERPRETER, _modules(modules))


def node_lender(architecture: str = rootfs.NATIVE) -> Image:
    """The node lender's image: one program, of Debian's compiler as node-lender/Containerfile has it."""
    recipe = rootfs.Recipe("node-lender", "bookworm", ("libgcc-s1",), hooks=PASSWD, architecture=architecture)
    config: dict[str, object] = {"User": f"{USER}:{USER}", "Entrypoint": [f"/{NODE_LENDER}"]}
    layers = (rootfs.build(recipe), _program(architecture))
    return Image(f"{PREFIX}/tidepool-node-lender:{paths.VERSION}", layers, config, architecture)


def _program(architecture: str) -> Path:
    """The layer with the node lender's daemon, built of the present sources."""
    with step(f"building the node lender for {architecture}"):
        built = rust.node_lender(architecture)
    key = f"node-lender-{store.digest(built.read_bytes())}"
    return store.entry("layer", key, _copier({NODE_LENDER: built})) / "layer.tar"


def _python_image(part: str, package: str, base: rootfs.Recipe, interpreter: str, more: Mapping[str, Path]) -> Image:
    """The image of one of our programs: Debian with Python, what its lock file pins, its sources, and other files."""
    config: dict[str, object] = {
        "User": f"{USER}:{USER}",
        "Entrypoint": [f"/{interpreter}", "-m", package],
        "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/app:/app/lib", "PYTHONUNBUFFERED=1", "HOME=/tmp",
            "USER=tidepool",
        ],
    }  # fmt: skip
    layers = (rootfs.build(base), _libraries(part, base.architecture), _sources(part, package, more))
    return Image(f"{PREFIX}/{package.replace('_', '-')}:{paths.VERSION}", layers, config, base.architecture)


def write(image: Image) -> Path:
    """Writes the archive, unless it already is that image."""
    layers = [(f"{diff_id(layer)}.tar", layer) for layer in image.layers]
    config = configuration(image)
    stamp = image.archive.with_suffix(".id")
    identity = hashlib.sha256(config).hexdigest()
    if image.archive.exists() and stamp.exists() and stamp.read_text() == identity:
        return image.archive
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    manifest = [{"Config": f"{identity}.json", "RepoTags": [image.name], "Layers": [name for name, _ in layers]}]
    with tempfile.TemporaryDirectory(dir=ARCHIVES) as work:  # so that nobody imports half of an archive
        new = Path(work) / "new.tar"
        with tarfile.open(new, "w") as archive:
            _add(archive, f"{identity}.json", config)
            for name, layer in layers:
                archive.add(layer, name, filter=_anybodys)
            _add(archive, "manifest.json", json.dumps(manifest).encode())
        stamp.unlink(missing_ok=True)
        image.archive.with_suffix(".cdx.json").unlink(missing_ok=True)
        new.rename(image.archive)
    stamp.write_text(identity)
    say(f"image {image.name}: {image.archive.stat().st_size / 1e6:.0f} MB")
    return image.archive


def _list_materials(archives: list[Path]) -> None:
    """A bill of materials beside each archive."""
    if archives:
        command = [str(paths.BUILD / "venv/bin/python"), "-m", "tidepool_lab.sbom", *map(str, archives)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(paths.E2E)})


def _anybodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without whose it was and when it was made."""
    member.mtime, member.mode = 0, 0o644
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def configuration(image: Image, **more: object) -> bytes:
    """How the image starts and what it consists of, in what Docker and OCI have in common."""
    diff_ids = [diff_id(layer) for layer in image.layers]
    document = {
        "architecture": image.architecture,
        "os": "linux",
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in diff_ids]},
        "history": [{"created_by": "e2e/images/build"} for _ in diff_ids],
    }
    return json.dumps(document | more).encode()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def diff_id(layer: Path) -> str:
    """The layer's digest, computed once: a layer in the cache never changes."""
    known = layer.with_suffix(".sha256")
    if not known.exists():
        with layer.open("rb") as file:
            known.write_text(hashlib.file_digest(file, "sha256").hexdigest())
    return known.read_text()


def _compile_pause(source: Path, out: Path) -> None:
    (out / "root").mkdir()
    subprocess.run(["gcc", "-static", "-Os", "-s", "-o", out / "root/pause", source], check=True)
    _pack(out / "root", out / "layer.tar")


def _libraries(part: str, architecture: str) -> Path:
    lock = paths.ROOT / part / "requirements.lock"
    platform = PLATFORMS[architecture]
    key = f"{part}-libraries-{store.digest(lock.read_bytes(), *platform)}"
    return store.entry("layer", key, lambda out: _install_libraries(lock, platform, out)) / "layer.tar"


def _install_libraries(lock: Path, platform: tuple[str, ...], out: Path) -> None:
    target = out / "root/app/lib"
    with step(f"installing what {lock.parent.name} pins"):
        pip = [str(paths.BUILD / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        options = ["--no-cache-dir", "--no-compile", "--no-deps", "--require-hashes", *platform]
        subprocess.run([*pip, *options, "--target", target, "-r", lock], check=True)
    for clutter in ("__pycache__", "tests", "bin"):
        for folder in list(target.rglob(clutter)):
            shutil.rmtree(folder, ignore_errors=True)
    compiler = [
        "/usr/bin/python3",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(out / "root"),
    ]
    subprocess.run([*compiler, target], check=True)
    _pack(out / "root", out / "layer.tar")


def _sources(part: str, package: str, more: Mapping[str, Path]) -> Path:
    """The thin layer: the API package, the program itself and, for the agent, the module store."""
    content = dict(more)
    for folder in (paths.ROOT / "crds/tidepool_api", paths.ROOT / part / package):
        for file in folder.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                content[f"app/{file.relative_to(folder.parent)}"] = file
    if not content:
        raise LabError(f"{part} has no sources to build an image from")
    key = store.digest(*(part for name in sorted(content) for part in (name, content[name].read_bytes())))
    return store.entry("layer", f"{part}-{key}", _copier(content)) / "layer.tar"


def _copier(content: dict[str, Path]) -> Callable[[Path], None]:
    def copy(out: Path) -> None:
        for name, file in content.items():
            target = out / "root" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        _pack(out / "root", out / "layer.tar")

    return copy


def _pack(root: Path, archive: Path) -> None:
    """A tar file that depends on names and contents only."""
    fixed = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rwX,go+rX,go-w"]
    subprocess.run(["tar", *fixed, "-C", root, "-cf", archive, "."], check=True)
    shutil.rmtree(root)


def _module_store() -> Path:
    """Our module for each kernel that the lab has, and no other."""
    folder = paths.BUILD / "module-store"
    shutil.rmtree(folder, ignore_errors=True)
    tool = paths.ROOT / "kernel-module/tools/store"
    subprocess.run([tool, folder, *KERNELS], check=True, stdout=subprocess.DEVNULL)
    return folder


def _modules(folder: Path) -> dict[str, Path]:
    """The agent's module store, by where its files go in the image."""
    files = sorted(folder.glob("*/tidepool*"))
    return {f"usr/share/tidepool/modules/{file.parent.name}/{file.name}": file for file in files}
