"""What `make release` makes: it is whole, the same each time, and installs from a registry without being built."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import subprocess
import tarfile
import urllib.request
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from released import Dist, Place, plain_registry, shell

import docs
from tidepool_lab import debian, gotools, paths
from tidepool_lab.images import NODE_LENDER
from tidepool_release import images, module, oci, papers, plugin
from tidepool_release.__main__ import release
from tidepool_release.archives import members

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = re.compile(r"\.so(\.|$)|bin/python3\.11$|bin/tidepool-node-lender$")
MACHINES = {"amd64": 62, "arm64": 183}  # as ELF numbers them
GNU = {"amd64": "x86_64", "arm64": "aarch64"}  # as QEMU has them


@pytest.fixture(scope="module")
def registry(dist: Dist) -> Iterator[str]:
    """The prefix of names in a registry that has what was released."""
    folder = dist.folder.parent / "registry"
    folder.mkdir()
    with plain_registry(folder) as address:
        pushed = dist.push(f"{address}/some/prefix", options="--dest-tls-verify=false")
        assert pushed.returncode == 0, pushed.stderr
        yield f"{address}/some/prefix"


def stored(prefix: str, name: str, reference: str) -> Any:
    """A manifest as the registry has it."""
    host, _, path = prefix.partition("/")
    request = urllib.request.Request(f"http://{host}/v2/{path}/{name}/manifests/{reference}")
    request.add_header("Accept", f"{oci.INDEX}, {oci.MANIFEST}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read()
    assert not reference.startswith("sha256:") or reference == f"sha256:{hashlib.sha256(body).hexdigest()}"
    return json.loads(body)


def digests(folder: Path) -> dict[str, str]:
    """Of every file, by its name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_second_release_is_the_same_bytes(dist: Dist) -> None:
    """Signature included. Layers of images may come from the cache; test_images.py makes those twice."""
    again = dist.folder.with_name("again")
    release(again, dist.folder.with_name("key"))
    assert digests(again) == digests(dist.folder)


def test_signature_and_checksums_hold(dist: Dist) -> None:
    said = dist.verify()
    assert said.returncode == 0, said.stderr
    assert f"Trusted comment: Tidepool {paths.VERSION}, " in said.stdout
    listed = {line.split("  ")[1] for line in (dist.folder / papers.SUMS).read_text().splitlines()}
    assert listed | {papers.SUMS, f"{papers.SUMS}.minisig"} == set(digests(dist.folder))


def test_what_was_changed_afterwards_is_noticed(dist: Dist) -> None:
    """By who verifies, for the sums; by `push`, for the rest, before anything is in a registry."""
    sums, notes = dist.folder / papers.SUMS, dist.folder / "NOTES.md"
    for file, tool in ((sums, dist.verify), (notes, lambda: dist.push("registry.invalid"))):
        before = file.read_bytes()
        file.write_bytes(before + b"\n")
        said = tool()
        file.write_bytes(before)
        assert said.returncode != 0
        assert "Signature verification failed" in said.stderr or "NOTES.md: FAILED" in said.stdout


def test_chart_and_images_install_from_a_registry(dist: Dist, registry: str) -> None:
    """What the README's command renders: images by digest that are there, for each architecture; nothing is built."""
    line = docs.command("install-release").replace("helm install", "helm template").replace("MY/PREFIX", registry)
    done = shell(f"{line} --plain-http", dist.folder.parent)
    assert done.returncode == 0, done.stderr
    used = set(re.findall(r"image: (\S+)", done.stdout))
    assert len(used) == 2
    for image in used:
        name, _, reference = image.removeprefix(f"{registry}/").partition(":")
        version, _, digest = reference.partition("@")
        assert version == paths.VERSION
        index = stored(registry, name, digest)
        assert index == stored(registry, name, version)
        platforms = {one["platform"]["architecture"]: one["digest"] for one in index["manifests"]}
        assert set(platforms) == set(images.ARCHITECTURES)
        for manifest in platforms.values():
            labels = stored(registry, name, manifest)["annotations"]
            assert labels["org.opencontainers.image.version"] == paths.VERSION
            assert re.fullmatch(r"[0-9a-f]{40}\+?", labels["org.opencontainers.image.revision"])


def test_the_chart_in_the_registry_is_the_one_in_the_folder(dist: Dist, registry: str) -> None:
    name = f"tidepool-{paths.VERSION}.tgz"
    pulled = shell(f"helm pull oci://{registry}/charts/tidepool --plain-http", dist.folder.parent)
    assert pulled.returncode == 0, pulled.stderr
    assert (dist.folder.parent / name).read_bytes() == (dist.folder / "chart" / name).read_bytes()


@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
@pytest.mark.parametrize("name", images.ABOUT)
def test_an_image_has_programs_of_its_architecture_alone(dist: Dist, name: str, architecture: str) -> None:
    """Python of arm64 does not run here; that its parts fit each other can be seen. Its bill lists what is in it."""
    found = set()
    with tarfile.open(dist.folder / f"images/{name}.tar") as archive:
        for layer in _layers(archive, architecture):
            with tarfile.open(fileobj=layer) as files:
                for member in files:
                    is_one = member.isfile() and PROGRAMS.search(member.name)  # a link may lead out of its layer
                    if is_one and (file := files.extractfile(member)):
                        head = file.read(20)
                        found.add(struct.unpack_from("<H", head, 18)[0] if head.startswith(b"\x7fELF") else None)
    assert found - {None} == {MACHINES[architecture]}
    bill = json.loads((dist.folder / f"sbom/{name}-linux-{architecture}.cdx.json").read_text())
    packages = [one["bom-ref"] for one in bill["components"] if one["bom-ref"].startswith("pkg:deb/debian/libc6@")]
    assert [re.findall(r"arch=(\w+)", one) for one in packages] == [[architecture]]
    modules = Counter(one["name"] for one in bill["components"] if one["name"].endswith(".ko"))
    has_modules = (name, architecture) == ("tidepool-agent", "amd64")
    assert modules == (dict.fromkeys(module.files(), len(module.KERNELS)) if has_modules else {})


@pytest.mark.parametrize("architecture", images.ARCHITECTURES)
def test_a_node_lender_runs_with_what_its_image_has(dist: Dist, architecture: str, tmp_path: Path) -> None:
    """With the libraries there and none of this machine's: one of arm64 in an emulator of that processor.

    It reads its configuration, and says what is wrong with it. Nothing in it says where it was built.
    """
    with tarfile.open(dist.folder / "images/tidepool-node-lender.tar") as archive:
        for layer in _layers(archive, architecture):
            with tarfile.open(fileobj=layer) as files:
                files.extractall(tmp_path / "root")
    program = tmp_path / "root" / NODE_LENDER
    assert str(paths.cache()).encode() not in program.read_bytes()
    file = tmp_path / "node-lender.toml"
    file.write_text('listen = "127.0.0.1:7470"\nmax_lend = 1048576\nreserve = 0\n')
    said = _run(architecture, tmp_path / "root", program, "--check", "--config", file)
    assert (said.returncode, said.stderr) == (0, "")
    file.write_text("listen = 3")
    said = _run(architecture, tmp_path / "root", program, "--check", "--config", file)
    assert said.returncode != 0
    assert "listen" in said.stderr + said.stdout


def _run(architecture: str, root: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of an image, with its own libraries alone."""
    machine = GNU[architecture]
    emulator = debian.unpacked(debian.HOST_SUITE, "qemu-user-static") / f"usr/bin/qemu-{machine}-static"
    return subprocess.run([emulator, "-L", root, *command], capture_output=True, text=True, check=False)


def _layers(archive: tarfile.TarFile, architecture: str) -> Iterator[Any]:
    """The layers of one image of an archive, through its index."""

    def blob(descriptor: dict[str, str]) -> Any:
        return archive.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")

    (root,) = json.load(archive.extractfile("index.json") or blob({}))["manifests"]
    (image,) = [one for one in json.load(blob(root))["manifests"] if one["platform"]["architecture"] == architecture]
    manifest = json.load(blob(image))
    assert json.load(blob(manifest["config"]))["architecture"] == architecture
    yield from map(blob, manifest["layers"])


def test_the_plugin_is_one_program_for_each_platform(dist: Dist, tmp_path: Path) -> None:
    """This machine's runs, as krew would put it there; all have what every Python wants."""
    krew = yaml.safe_load((dist.folder / "plugin/tidepool.yaml").read_text())
    assert (krew["metadata"]["name"], krew["spec"]["version"]) == ("tidepool", f"v{paths.VERSION}")
    for platform in krew["spec"]["platforms"]:
        archive = dist.folder / "plugin" / Path(platform["uri"]).name
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
        content = dict(members(archive))
        assert set(content) == {platform["bin"], plugin.MANUAL, "LICENSE"}
        program = tmp_path / archive.name / platform["bin"]
        program.parent.mkdir()
        program.write_bytes(content[platform["bin"]])
        program.chmod(0o755)
        with zipfile.ZipFile(program) as zipped:
            compiled = [Path(name).name for name in zipped.namelist() if "_pydantic_core" in name]
        assert {name.split("-")[1] for name in compiled if name.endswith(".so")} == {
            one.replace(".", "") for one in plugin.PYTHONS
        }
    (tmp_path / "bin").mkdir()
    assert shell(docs.command("plugin").replace("~/.local", str(tmp_path)), dist.folder.parent).returncode == 0
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ""}
    mine = [tmp_path / "bin/kubectl-tidepool", "--help"]
    said = subprocess.run(mine, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "explain" in said.stdout


def test_krew_installs_the_plugin(dist: Dist, tmp_path: Path) -> None:
    """As the page says: with the manifest and the archive for this machine, and no network."""
    (tmp_path / "kubectl-krew").symlink_to(gotools.path("krew"))
    (tmp_path / "kubectl").symlink_to(gotools.path("kubectl"))
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KREW_ROOT": str(tmp_path / "krew")}
    krew = {**places, "KREW_NO_UPGRADE_CHECK": "1"}
    done = shell(docs.command("krew"), dist.folder.parent, Place(environment=krew))
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        [tmp_path / "krew/bin/kubectl-tidepool", "--help"], capture_output=True, text=True, check=True
    )
    assert "explain" in said.stdout


def test_the_wheels_are_those_of_the_version(dist: Dist) -> None:
    wheels = sorted(path.name for path in (dist.folder / "plugin").glob("*.whl"))
    assert wheels == [f"{name}-{paths.VERSION}-py3-none-any.whl" for name in ("kubectl_tidepool", "tidepool_api")]


def test_the_debian_package_has_what_dkms_wants(dist: Dist, tmp_path: Path) -> None:
    """The tree that `dkms-tree` lays out, and scripts that are clean."""
    (package,) = (dist.folder / "module").glob("*.deb")
    subprocess.run(["dpkg-deb", "-R", package, tmp_path / "package"], check=True)
    tree = subprocess.run([module.TOOLS / "dkms-tree", tmp_path], check=True, capture_output=True, text=True)
    name = f"tidepool-{paths.VERSION}"
    assert tree.stdout.strip() == str(tmp_path / name)
    assert digests(tmp_path / "package/usr/src" / name) == digests(tmp_path / name)
    field = ["dpkg-deb", "-f", package, "Version"]
    assert subprocess.run(field, check=True, capture_output=True, text=True).stdout.strip() == paths.VERSION
    scripts = [tmp_path / "package/DEBIAN" / one for one in ("postinst", "prerm")]
    subprocess.run(["shellcheck", *scripts], check=True)


def test_the_store_has_every_module_for_every_kernel(dist: Dist, tmp_path: Path) -> None:
    """Those for devices, swap and programs beside the first."""
    store = dist.folder / f"module/tidepool-modules-{paths.VERSION}.tar.gz"
    subprocess.run(["tar", "-xzf", store, "-C", tmp_path], check=True)
    releases = sorted(path for path in (tmp_path / "modules").iterdir() if path.name != "source")
    series = {re.match(r"\d+\.\d+", path.name)[0] for path in releases}  # type: ignore[index]
    assert series == set(module.KERNELS)
    for path in releases:
        assert {one.name for one in path.glob("*.ko")} == module.files()
        sums = [f"{name}.sha256" for name in module.files()]
        subprocess.run(["sha256sum", "--quiet", "--check", *sums], cwd=path, check=True)
