"""The command line of `kubectl tidepool`."""

from __future__ import annotations

import time
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from tidepool_kubectl import check as checking
from tidepool_kubectl import explain as explaining
from tidepool_kubectl import top as showing
from tidepool_kubectl import verdict
from tidepool_kubectl.cluster import Cluster, Unusable

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
System = Annotated[str, typer.Option(help="Where Tidepool is installed.")]
SYSTEM = "tidepool-system"


@app.command()
def top(
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    system: System = SYSTEM,
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between two readings.")] = 5,
    once: Annotated[bool, typer.Option("--once", help="One table, over one interval, instead of a live one.")] = False,
) -> None:
    """What each pairing is worth: hit ratio, latency, memory, and the reads that the disk was spared."""
    cluster = _cluster(context, namespace, everywhere, system)
    try:
        if once:
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
        steps = explaining.explain(cluster.namespace, guest, cluster.snapshot())
    except Unusable as error:
        _give_up(error)
    raise typer.Exit(0 if verdict.show(console, steps) else 1)


@app.command()
def check(
    namespace: Namespace = None,
    context: Context = None,
    system: System = SYSTEM,
    seconds: Annotated[float, typer.Option(min=0, help="How long round trips are watched.")] = 5,
) -> None:
    """Whether the installation is well, all namespaces unless one is given; exit code 1 if not."""
    cluster = _cluster(context, namespace, namespace is None, system)
    try:
        before = cluster.figures()
        time.sleep(seconds if before.pairings else 0)
        steps = checking.check(cluster.snapshot(metrics=True), before)
    except Unusable as error:
        _give_up(error)
    raise typer.Exit(0 if verdict.show(console, steps) else 1)


def _once(cluster: Cluster, interval: float) -> None:
    before, begun = cluster.figures(), time.monotonic()
    time.sleep(interval if before.pairings else 0)
    now = cluster.snapshot(metrics=True)
    console.print(showing.table(showing.rows(now, before, time.monotonic() - begun)), crop=False)
    for one in now.unread:
        console.print(f"no figures of {one}", style="yellow", soft_wrap=True)


def _live(cluster: Cluster, interval: float) -> None:
    before, begun = cluster.figures(), time.monotonic()
    with Live(console=console, screen=True) as live:
        while True:
            now = cluster.snapshot(metrics=True)
            live.update(showing.table(showing.rows(now, before, time.monotonic() - begun)), refresh=True)
            before, begun = now.figures, time.monotonic()
            time.sleep(interval)


def _cluster(context: str | None, namespace: str | None, everywhere: bool, system: str) -> Cluster:
    try:
        return Cluster(context=context, namespace=namespace, everywhere=everywhere, system=system)
    except Unusable as error:
        _give_up(error)


def _give_up(error: Unusable) -> NoReturn:
    Console(stderr=True).print(f"tidepool: {error}", style="red", soft_wrap=True, highlight=False)
    raise typer.Exit(2)
