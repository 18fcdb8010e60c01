"""Redis in a guest: commands for its shell that start it, fill it, ask it and stop it, and what they print."""

from __future__ import annotations

import csv
import re
import subprocess
from pathlib import Path

from tidepool_lab import paths

CLIENTS = paths.ROOT / "clients"
SOCKET, LOG = "/tmp/redis.sock", "/tmp/redis.log"
MODULE = "/tmp/tidepool.so"  # Tidepool's, among the guest's programs
CLI = f"redis-cli -s {SOCKET}"
START_SECONDS = 60
# No more than 64 KiB are on their way. While a client waits for a module's command, the server reads on, and copies all
# that it has read with each command.
FILL = r"""
    my ($path, $next, $end, $size, $command) = @ARGV;
    my $server = IO::Socket::UNIX->new($path) or die "$path: $!";
    open my $chance, "<", "/dev/urandom" or die $!;
    while ($next < $end) {
        my ($sent, $count) = ("", 0);
        for (; $next < $end && length $sent < 65536; $next++, $count++) {
            read $chance, my $value, $size;
            my @words = ($command, sprintf("key:%012d", $next), $value);
            $sent .= join "", "*3\r\n", map { sprintf "\$%d\r\n%s\r\n", length, $_ } @words;
        }
        $server->print($sent) && $server->flush or die $!;
        while ($count--) {
            my $reply = <$server>;
            die $reply if $reply ne "+OK\r\n";
        }
    }
"""
END = f"{CLI} shutdown nosave; while pidof redis-server > /dev/null; do sleep 0.2; done"


def sources() -> list[Path]:
    """What the module is made of."""
    return sorted(file for part in ("c", "redis") for file in (CLIENTS / part).glob("src/*.[ch]"))


def module() -> Path:
    """Tidepool's for Redis, built now."""
    build = paths.BUILD / "redis-module"
    subprocess.run(["make", "-s", "-C", CLIENTS / "redis", f"BUILD={build}"], check=True)
    return build / "tidepool.so"


def serve(options: str = "") -> str:
    """Starts it, and waits until it answers; what it logged, if it does not."""
    files = f"--unixsocket {SOCKET} --save '' --appendonly no --dir /tmp --logfile {LOG}"
    wait = f"timeout {START_SECONDS} sh -c 'until {CLI} ping > /dev/null 2>&1; do sleep 0.2; done'"
    return f"redis-server --port 0 {files} --daemonize yes {options} && {wait} || {{ cat {LOG}; exit 1; }}"


def fill(values: range, size: int, command: str = "SET") -> str:
    """Values of so many bytes, which no compression makes smaller, under the names that redis-benchmark asks for.

    It fails with the first reply that is not OK.
    """
    return f"perl -MIO::Socket::UNIX -e '{FILL}' {SOCKET} {values.start} {values.stop} {size} {command}"


def ask(requests: int, values: int, clients: int, command: str = "GET") -> str:
    """So many requests, each for one of the first so many values, at random; it prints `times`."""
    return f"redis-benchmark -s {SOCKET} --csv -r {values} -n {requests} -c {clients} {command} key:__rand_int__"


def ask_for(seconds: int, values: int, clients: int, command: str = "GET") -> str:
    """The same, for so long."""
    return f"timeout {seconds} {ask(10**9, values, clients, command)} > /dev/null 2>&1 || [ $? = 124 ]"


def times(said: str) -> dict[str, float]:
    """What `ask` found, as redis-benchmark calls it: `rps`, `p50_latency_ms`, `p99_latency_ms` and so on."""
    head, line = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))[-2:]
    return {name: float(value) for name, value in zip(head[1:], line[1:], strict=True)}


def figure(said: str, name: str) -> int:
    """A line `name:number` of what `info` says."""
    (count,) = re.findall(rf"^{name}:(\d+)", said, re.MULTILINE)
    return int(count)


def pool_figure(said: str, name: str) -> int:
    """A figure of what `tide.stats` says."""
    lines = said.split()
    return int(lines[lines.index(name) + 1])
