"""The command line of `kubectl tidepool`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from tidepool_api import GuestKey, ObjectKey, printable
from tidepool_kubectl import check as checking
from tidepool_kubectl import collect as collecting
from tidepool_kubectl import explain as explaining
from tidepool_kubectl import options, plan_text, verdict
from tidepool_kubectl import plan as planning
from tidepool_kubectl import top as showing
from tidepool_kubectl import values as programs
from tidepool_kubectl import who as lending
from tidepool_kubectl.cluster import Cluster, Unusable
from tidepool_kubectl.elapsed import Moment
from tidepool_kubectl.figures import Figures, hits_per_second
from tidepool_kubectl.snapshot import Fleet, Snapshot
from tidepool_kubectl.ui.browse import in_browser
from tidepool_kubectl.ui.listen import server
from tidepool_kubectl.ui.reading import Reader

app = typer.Typer(
    help="What Tidepool's pools are worth, what is in a guest's way, and whether all is well. Nothing is changed.",
    no_args_is_help=True,
    add_completion=False,  # kubectl completes with kubectl_complete-tidepool
    pretty_exceptions_enable=False,
)
console = Console()

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="The context's own if not given.")]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Context = Annotated[str | None, typer.Option(help="The kubeconfig's context.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The archive; the time gives it a name if not given.")
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="What if each borrower had so much; several times for several sizes."),
]
System = Annotated[str, typer.Option(help="Where Tidepool is installed.")]
SYSTEM = "tidepool-system"
NOBODY = "nobody lends to anybody"


@app.command()
def top(
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    system: System = SYSTEM,
    interval: Annotated[
        float, typer.Option(parser=options.interval, metavar="<float>", help="Seconds between two readings.")
    ] = 5,
    once: Annotated[
        bool,
        typer.Option("--once", help="One table, over one interval, instead of a live one; so it is in a pipe, too."),
    ] = False,
) -> None:
    """What each pairing is worth: hit ratio, latency, memory, spared disk reads; and what programs of guests keep."""
    cluster = _cluster(context, namespace, everywhere, system)
    try:
        if once or not console.is_terminal:
            _once(cluster, interval)
        else:
            _live(cluster, interval)
    except Unusable as error:
        _give_up(error)


@app.command()
def explain(
    guest: Annotated[str, typer.Argument(help="The name of a MemoryGuest, which is that of its virtual machine.")],
    namespace: Namespace = None,
    context: Context = None,
    system: System = SYSTEM,
) -> None:
    """Why a guest lends, borrows or does neither, step by step; exit code 1 if something is in its way."""
    cluster = _cluster(context, namespace, False, system)
    try:
        steps = explaining.explain(GuestKey(cluster.namespace, guest), cluster.snapshot())
    except Unusable as error:
        _give_up(error)
    raise typer.Exit(0 if verdict.show(console, steps) else 1)


@app.command()
def check(
    namespace: Namespace = None,
    context: Context = None,
    system: System = SYSTEM,
    seconds: Annotated[
        float, typer.Option(parser=options.seconds, metavar="<float>", help="How long round trips are watched.")
    ] = 5,
) -> None:
    """Whether the installation is well, all namespaces unless one is given; exit code 1 if not."""
    cluster = _cluster(context, namespace, namespace is None, system)
    try:
        before, _ = _watched(cluster, seconds)
        steps = checking.check(cluster.snapshot(metrics=True), before)
    except Unusable as error:
        _give_up(error)
    raise typer.Exit(0 if verdict.show(console, steps) else 1)


@app.command()
def who(
    guest: Annotated[str | None, typer.Argument(help="The name of a MemoryGuest; all of them if not given.")] = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
) -> None:
    """Who holds memory for whom, in both directions and across namespaces; exit code 1 if there is no such guest."""
    cluster = _cluster(context, namespace, everywhere and guest is None, "")
    try:
        now = cluster.lendings()
    except Unusable as error:
        _give_up(error)
    one = GuestKey(cluster.namespace, guest) if guest else None
    if one and one not in {each.key for each in now.guests}:
        console.print(f"no MemoryGuest {one}", soft_wrap=True, highlight=False)
        raise typer.Exit(1)
    rows = lending.rows(now.pairings, one)
    if one:
        console.print(lending.summary(one, rows), soft_wrap=True, highlight=False)
    console.print(lending.table(rows) if rows else NOBODY, crop=False)
    for remark in lending.remarks(now, one):
        console.print(printable(remark), style="yellow", soft_wrap=True, highlight=False, markup=False)


@app.command()
def plan(
    pool: Annotated[str | None, typer.Argument(help="The name of a MemoryPool; all of them if not given.")] = None,
    sizes: Sizes = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    system: System = SYSTEM,
    seconds: Annotated[
        float,
        typer.Option(
            parser=options.seconds, metavar="<float>", help="How long reads are counted; 0 to go by the curves."
        ),
    ] = 5,
) -> None:
    """What memory is worth to each guest of a pool, now and at other sizes; exit code 1 if there is no such pool."""
    chosen = [options.memory(one) for one in sizes or ()]
    cluster = _cluster(context, namespace, everywhere and pool is None, system)
    try:
        fleet, spared = _counted(cluster, seconds)
    except Unusable as error:
        _give_up(error)
    pools = [one for one in fleet.pools if pool in (None, one.name)]
    for one in pools:
        _show(planning.plan(one, fleet, spared, chosen))
    for unread in fleet.unread:
        console.print(f"no figures of {unread}", style="yellow", soft_wrap=True, markup=False)
    if not pools:
        console.print(f"no MemoryPool {cluster.namespace}/{pool}" if pool else "no MemoryPool", highlight=False)
    raise typer.Exit(1 if pool and not pools else 0)


def _show(made: planning.Plan) -> None:
    console.print(plan_text.title(made), soft_wrap=True, highlight=False)
    if made.rows:
        console.print(plan_text.table(made), crop=False)
    for line in plan_text.summary(made):
        console.print(line, soft_wrap=True, highlight=False)
    for remark in plan_text.remarks(made):
        console.print(remark, style="yellow", soft_wrap=True, highlight=False, markup=False)
    console.print()


def _counted(cluster: Cluster, seconds: float) -> tuple[Fleet, dict[ObjectKey, float]]:
    """What there is, and the reads a second that each pairing answers."""
    before, begun = _watched(cluster, seconds) if seconds else (Figures(), Moment.now())
    fleet = cluster.fleet()
    return fleet, hits_per_second(before, fleet.figures, begun.until(Moment.now()))


def _watched(cluster: Cluster, seconds: float) -> tuple[Figures, Moment]:
    """The agents' metrics of so long ago, and when that was; there is nothing to wait for where nobody lends."""
    before, begun = cluster.figures(), Moment.now()
    time.sleep(seconds if before.pairings else 0)
    return before, begun


@app.command()
def collect(
    output: Output = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Of one namespace only.")] = None,
    context: Context = None,
    system: System = SYSTEM,
) -> None:
    """One archive for a bug report, of what you may read: objects, events, logs, versions and metrics; no secrets."""
    cluster = _cluster(context, namespace, namespace is None, system)
    at = datetime.now(UTC)
    folder = f"tidepool-{at:%Y%m%d-%H%M%S}"
    path = output or Path(f"{folder}.tar.gz")
    collector = collecting.Collector(cluster.read, namespace=namespace or "", system=system)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            found = collecting.write(file, folder, collector, at)
    except Unusable as error:
        path.unlink()
        _give_up(error)
    except OSError as error:
        _give_up(Unusable(f"cannot write {path}: {error.strerror}"))
    console.print(f"{path}: {len(found)} files", soft_wrap=True, highlight=False, markup=False)
    for one in collector.unread:
        console.print(f"not read: {one}", style="yellow", soft_wrap=True, highlight=False, markup=False)


@app.command()
def ui(
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    system: System = SYSTEM,
    port: Annotated[
        int, typer.Option(parser=options.port, metavar="<int>", help="Of this machine; 0 for any that is free.")
    ] = 0,
    browse: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
) -> None:
    """A page on this machine, until Ctrl-C: a live map of who lends to whom, and each guest's curve and what if."""
    reader = Reader(_cluster(context, namespace, everywhere, system))
    try:
        with server(reader.now, port) as (listening, address):
            reader.now()
            console.print(f"open {address}", soft_wrap=True, highlight=False, markup=False)
            sys.stdout.flush()
            with in_browser(address) if browse else nullcontext():
                listening.serve_forever()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except Unusable as error:
        _give_up(error)


def _once(cluster: Cluster, interval: float) -> None:
    before, begun = _watched(cluster, interval)
    now = cluster.snapshot(metrics=True)
    pairings, *values = _tables(now, before, begun.until(Moment.now()))
    console.print(pairings, *(() if now.pairings else (NOBODY,)), *values, crop=False, sep="\n")
    for one in now.unread:
        console.print(f"no figures of {one}", style="yellow", soft_wrap=True)


def _tables(now: Snapshot, before: Figures, seconds: float) -> list[Table]:
    """The pairings, and then the guests whose programs have memory, if there are some."""
    guests = programs.rows(now, before, seconds)
    return [showing.table(showing.rows(now, before, seconds)), *([programs.table(guests)] if guests else [])]


def _live(cluster: Cluster, interval: float) -> None:
    before, begun = cluster.figures(), Moment.now()
    with Live(console=console, screen=True) as live:
        while True:
            now = cluster.snapshot(metrics=True)
            live.update(Group(*_tables(now, before, begun.until(Moment.now()))), refresh=True)
            before, begun = now.figures, Moment.now()
            time.sleep(interval)


def _cluster(context: str | None, namespace: str | None, everywhere: bool, system: str) -> Cluster:
    try:
        return Cluster.reached(context=context, namespace=namespace, everywhere=everywhere, system=system)
    except Unusable as error:
        _give_up(error)


def _give_up(error: Unusable) -> NoReturn:
    said = printable(f"tidepool: {error}")
    Console(stderr=True).print(said, style="red", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(2)
