"""The command line of `e2e/lab`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tidepool_lab import (
    cluster,
    debian,
    gotools,
    guests,
    lifecycle,
    migration,
    mkosi,
    monitoring,
    nodes,
    prepared,
    published,
    schemas,
    shell,
    spec,
)
from tidepool_lab.progress import LabError

CACHED: dict[str, Callable[[], Path]] = {
    "schemas": schemas.folder,
    "published-crds": published.crds,
    "checkpatch": debian.checkpatch,
    "sshd": lambda: debian.program("openssh-server", "usr/sbin/sshd"),
    "lua5.1": lambda: debian.program("lua5.1"),
    "chromium": lambda: debian.program("chromium", "usr/lib/chromium/chromium"),
    "mcopy": lambda: debian.program("mtools", "usr/bin/mcopy"),
    "secilc": lambda: debian.program("secilc"),
    "prepared-guest": prepared.guest,
    "cloud-image": prepared.cloud_image,
    "mkosi": mkosi.program,
    "firmware": prepared.firmware,
    "virt-fw-vars": prepared.variables,
    "promtool": lambda: monitoring.program("promtool"),
}
Handler = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as interruptible as by Ctrl-C
    try:
        options = _parser().parse_args(_protected(arguments))
        handler: Handler = options.handler
        return handler(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"lab: {' '.join(map(str, error.cmd))}: exit code {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; `e2e/lab down` takes down what is there", file=sys.stderr)
        return 130


def _protected(arguments: Sequence[str]) -> list[str]:
    """Hides what belongs to kubectl and helm from our own parser: everything after the verb."""
    if arguments and arguments[0] in ("kubectl", "helm"):
        return [arguments[0], "--", *arguments[1:]]
    return list(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="e2e/lab", description="a one-machine Kubernetes cluster with real guests")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_up(verbs)
    _add_guest(verbs)
    _add_in_guest(verbs)
    for name in ("kubectl", "helm"):
        verb = _verb(verbs, name, _pass_on, f"{name} against the lab")
        verb.add_argument("arguments", nargs=argparse.REMAINDER)
        verb.set_defaults(program=name)
    logs = _verb(verbs, "logs", _logs, "print the log of a daemon or the console of a guest; without a name list them")
    logs.add_argument("name", nargs="?")
    _verb(verbs, "status", lambda _: lifecycle.status(), "what runs; exit code 1 when something has ended")
    path = _verb(verbs, "path", _path, "where a program (helm, kubectl, checkpatch …) or `schemas` is in the cache")
    path.add_argument("name")
    query = _verb(verbs, "query", _query, "ask Prometheus (`up --prometheus`); the samples as JSON")
    query.add_argument("expression")
    _verb(verbs, "prepare", _prepare, "build and fetch everything that `up` needs")
    _verb(verbs, "reload", _reload, "rebuild operator and agent from the sources and restart them")
    _verb(verbs, "down", _down, "take everything down; nothing is left")
    return parser


def _add_up(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = _verb(verbs, "up", _up, "bring up the cluster, the guests and the chart")
    up.add_argument("--guest", action="append", default=[], metavar="SPEC", help=spec.FORM)
    up.add_argument("--nodes", type=int, default=1, choices=range(1, nodes.MOST + 1), help="how many; default 1")
    up.add_argument(
        "--family", type=int, default=4, choices=(4, 6), help="6: addresses of IPv6 and no others; default 4"
    )
    up.add_argument("--no-chart", action="store_true", help="leave out the chart")
    up.add_argument("--prometheus", action="store_true", help="also run Prometheus")


def _add_guest(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    actions = verbs.add_parser("guest", help="add, migrate, kill or delete a guest").add_subparsers(
        required=True, metavar="ACTION"
    )
    _verb(actions, "add", _guest_add, "start one more guest").add_argument("spec", help=spec.FORM)
    migrate = _verb(actions, "migrate", _guest_migrate, "move it to another node while it runs")
    migrate.add_argument("name")
    migrate.add_argument("node")
    _verb(actions, "kill", _guest_kill, "SIGKILL its QEMU").add_argument("name")
    _verb(actions, "delete", _guest_delete, "delete it and all of it").add_argument("name")


def _add_in_guest(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = _verb(verbs, "exec", _exec, "run a command in a guest: its output, its exit code")
    run.add_argument("guest")
    run.add_argument("command", nargs=argparse.REMAINDER)
    copy = _verb(
        verbs, "cp", lambda options: shell.copy(options.source, options.destination), "copy to or from a guest"
    )
    copy.add_argument("source", help="PATH or GUEST:PATH")
    copy.add_argument("destination", help="PATH or GUEST:PATH")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, handler: Handler, text: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(handler=handler)
    return parser


def _up(options: argparse.Namespace) -> int:
    specs = [spec.parse(text) for text in options.guest]
    lifecycle.up(
        specs,
        count=options.nodes,
        family=options.family,
        chart=not options.no_chart,
        prometheus=options.prometheus,
    )
    return 0


def _down(_: argparse.Namespace) -> int:
    lifecycle.down()
    return 0


def _path(options: argparse.Namespace) -> int:
    try:
        print(CACHED[options.name]() if options.name in CACHED else gotools.path(options.name))
    except KeyError:
        raise LabError(f"path: {options.name!r} is not among what the lab builds") from None
    return 0


def _query(options: argparse.Namespace) -> int:
    lifecycle.require()
    print(json.dumps(monitoring.query(options.expression), indent=1))
    return 0


def _prepare(_: argparse.Namespace) -> int:
    lifecycle.prepare()
    return 0


def _reload(_: argparse.Namespace) -> int:
    lifecycle.reload()
    return 0


def _guest_add(options: argparse.Namespace) -> int:
    lifecycle.require()
    guests.add_all([spec.parse(options.spec)])
    return 0


def _guest_migrate(options: argparse.Namespace) -> int:
    lifecycle.require()
    migration.migrate(options.name, nodes.named(options.node))
    return 0


def _guest_kill(options: argparse.Namespace) -> int:
    lifecycle.require()
    guests.kill(options.name)
    return 0


def _guest_delete(options: argparse.Namespace) -> int:
    lifecycle.require()
    guests.delete(options.name)
    return 0


def _exec(options: argparse.Namespace) -> int:
    lifecycle.require()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise LabError("exec: no command; say `e2e/lab exec GUEST -- COMMAND`")
    return shell.run(options.guest, command)


def _pass_on(options: argparse.Namespace) -> int:
    lifecycle.require()
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    command = cluster.command(options.program, arguments)
    os.execvpe(command[0], command, cluster.environment())


def _logs(options: argparse.Namespace) -> int:
    files = lifecycle.log_files()
    if options.name is None:
        print("\n".join(sorted(files)))
        return 0
    if options.name not in files:
        raise LabError(f"no log {options.name!r}; there are: {', '.join(sorted(files))}")
    sys.stdout.flush()
    with files[options.name].open("rb") as file:
        sys.stdout.buffer.write(file.read())
    return 0
