"""A round of four peers through the sync server: time against a floor, memory, bytes.

    nice -n 10 python tests/bench/sync_round.py [--rounds 5] [--scale 1]

The sizes are 64 MiB of shared parameters and 96 MiB of experts a peer: 160 MiB up, 352 MiB down, a
model of 448 MiB. Server, peers and floor are processes of their own; a round lasts from the first
push's start to the last pull's end. The floor is bare gRPC under the same TLS that moves the FP32
round's bytes with the same SHA-256 and one write and fsync of the model. The server's memory is
read from outside. Writes raw JSON to tests/bench/results/.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

# Programs here find the builders of the tests beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.sync_peers import (
    PATIENCE_SECONDS,
    Floor,
    RoundTimes,
    Sizes,
    WirePeer,
    run_floor_peer,
    run_floor_server,
    run_wire_peer,
)
from builders.relay import relay_to
from builders.sync_process import ServerProcess
from builders.sync_server import job_settings
from builders.tls import TestTls, make_tls
from spes_sync.quantize import Codec

MIB = 1 << 20
B1 = Sizes(shared=64, expert=96)
SMALL = Sizes(shared=8, expert=12)
WARM_UP = 1
GROWTH_ROUNDS = (5, 30)
LINK_BYTES_PER_SECOND = 20_000_000
# What the server may take beyond its start: models and MiB per stream.
MODELS, STREAM_MIB = 1.5, 64
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass
class Phase:
    """One server's life, and what was measured in it."""

    times: list[float] = field(default_factory=list)
    peers: list[list[RoundTimes]] = field(default_factory=list)
    memory: list[dict[str, int]] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A server and who may join it; `place` gives each peer its expert."""

    server: ServerProcess
    peers: list[WirePeer]
    place: Callable[[], object]


def memory_of(pid: int) -> dict[str, int]:
    """VmHWM and VmRSS of a process, in bytes."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS")}


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def children(target: Callable[..., None], arguments: list[tuple]) -> Iterator[list[Connection]]:
    """One process for each tuple of arguments, with a line to it; all have said "ready"."""
    lines, processes = [], []
    try:
        for each in arguments:
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=target, args=(*each, theirs), daemon=True)
            process.start()
            lines.append(ours)
            processes.append(process)
        for line in lines:
            assert receive(line) == "ready"
        yield lines
    finally:
        for line in lines:
            line.send(None)
        for process in processes:
            process.join(20)
            process.kill()


def receive(line: Connection) -> object:
    assert line.poll(PATIENCE_SECONDS), "a process says nothing"
    return line.recv()


def ask(lines: list[Connection], word: str) -> list:
    """Give all processes a word and collect their answers."""
    for line in lines:
        line.send(word)
    return [receive(line) for line in lines]


def span(times: list[RoundTimes]) -> float:
    return max(each.ended for each in times) - min(each.started for each in times)


def measure_floor(root: Path, tls: TestTls, sizes: Sizes, rounds: int) -> list[float]:
    """Seconds of each round of the floor."""
    floor = Floor(
        key=(tls.directory / "tls.key").read_bytes(),
        certificate=(tls.directory / "tls.crt").read_bytes(),
        ca=tls.ca_file.read_bytes(),
        directory=root,
        up_bytes=(sizes.shared + sizes.expert) * MIB,
        down_bytes=(sizes.shared + (sizes.num_peers - 1) * sizes.expert) * MIB,
        model_bytes=sizes.manifest.num_bytes,
    )
    ours, theirs = _CONTEXT.Pipe()
    server = _CONTEXT.Process(target=run_floor_server, args=(floor, theirs), daemon=True)
    server.start()
    try:
        port = receive(ours)
        with children(run_floor_peer, [(floor, port)] * sizes.num_peers) as lines:
            times = [span(ask(lines, "round")) for _ in range(WARM_UP + rounds)]
        return times[WARM_UP:]
    finally:
        ours.send(None)
        server.join(20)
        server.kill()


@contextmanager
def served(root: Path, tls: TestTls, sizes: Sizes, codec: Codec) -> Iterator[Stage]:
    """A server whose job has these peers, each with its token."""
    directory = root / f"sync-{codec}-{time.monotonic_ns()}"
    directory.mkdir()
    server = ServerProcess(directory, tls)
    server.start()
    try:
        with server.hub() as hub:
            hub.settings_json = job_settings(
                members__min=sizes.num_peers,
                training__maxTokens=10**9,
                data__heldOutFraction=0.0,
                sync__timeoutSeconds=3000,
                sync__compression={"uplink": codec, "downlink": codec},
                reassignment={"unreachableAfterSeconds": 2000, "reassignAfterSeconds": 3000},
            )
            names = [f"peer-{number}.0" for number in range(sizes.num_peers)]
            peers = [
                WirePeer(
                    number=number,
                    address=server.address,
                    ca_file=tls.ca_file,
                    token=hub.invite(name),
                    sizes=sizes,
                    codec=codec,
                )
                for number, name in enumerate(names)
            ]
            hub.apply(seed_peer=names[0])
            yield Stage(server=server, peers=peers, place=lambda: hub.apply(dict(enumerate(names))))
    finally:
        server.reap()


def measure(root: Path, tls: TestTls, sizes: Sizes, codec: Codec, rounds: int) -> Phase:
    """Rounds of a server; its memory before the seed and after each round."""
    phase = Phase()
    with served(root, tls, sizes, codec) as stage:
        server = stage.server
        phase.memory.append(memory_of(server.pid))
        with children(run_wire_peer, [(peer,) for peer in stage.peers]) as lines:
            ask(lines, "seed")
            stage.place()
            for _ in range(WARM_UP + rounds):
                cpu = cpu_of(server.pid)
                times = ask(lines, "round")
                phase.times.append(span(times))
                phase.peers.append(times)
                phase.memory.append(memory_of(server.pid))
                phase.cpu_seconds.append(cpu_of(server.pid) - cpu)
    phase.times = phase.times[WARM_UP:]
    return phase


def measure_link(root: Path, tls: TestTls, sizes: Sizes, codec: Codec) -> dict[str, float]:
    """A round in which each peer has a slow link; bytes as the link counts them."""
    with ExitStack() as stack:
        stage = stack.enter_context(served(root, tls, sizes, codec))
        relays = [stack.enter_context(relay_to(stage.server.ports.port)) for _ in stage.peers]
        placed = [
            WirePeer(
                number=peer.number,
                address=relay.address,
                ca_file=peer.ca_file,
                token=peer.token,
                sizes=sizes,
                codec=codec,
            )
            for peer, relay in zip(stage.peers, relays, strict=True)
        ]
        lines = stack.enter_context(children(run_wire_peer, [(peer,) for peer in placed]))
        ask(lines, "seed")
        before = [(relay.bytes_up, relay.bytes_down) for relay in relays]
        for relay in relays:
            relay.bytes_per_second = LINK_BYTES_PER_SECOND
        stage.place()
        seconds = span(ask(lines, "round"))
        after = [(relay.bytes_up, relay.bytes_down) for relay in relays]
    up, down = (
        sum(new[way] - old[way] for old, new in zip(before, after, strict=True)) for way in (0, 1)
    )
    return {"seconds": seconds, "bytes_up": up, "bytes_down": down}


def say(message: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {message}\n")


def run(sizes: Sizes, small: Sizes, rounds: int) -> dict[str, object]:
    """All phases, one after another."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        tls = make_tls(root / "tls")
        say("floor")
        floors = [measure_floor(root, tls, sizes, rounds)]
        phases, beside = {}, {}
        for codec in (Codec.FP32, Codec.INT8):
            say(f"rounds in {codec}")
            phases[codec] = measure(root, tls, sizes, codec, rounds)
            say("floor again")
            floors.append(measure_floor(root, tls, sizes, rounds))
            beside[codec] = median([*floors[-2], *floors[-1]])  # the machine may have other work
        links = {}
        for codec in (Codec.FP32, Codec.INT8):
            say(f"slow links in {codec}")
            links[codec] = measure_link(root, tls, sizes, codec)
        say("thirty rounds")
        growth = measure(root, tls, small, Codec.FP32, GROWTH_ROUNDS[1] - WARM_UP)
    model = sizes.manifest.num_bytes
    first, last = (growth.memory[number]["VmRSS"] for number in GROWTH_ROUNDS)
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "mib": {"shared": sizes.shared, "expert": sizes.expert, "model": model // MIB},
        "floor_seconds": floors,
        "codecs": {
            codec: {
                "seconds": phase.times,
                "floor_beside": beside[codec],
                "of_the_floor": median(phase.times) / beside[codec],
                "worst_of_the_floor": max(phase.times) / beside[codec],
                "server_cpu_seconds": median(phase.cpu_seconds),
                "payload_bytes_up": sum(each.bytes_up for each in phase.peers[-1]),
                "payload_bytes_down": sum(each.bytes_down for each in phase.peers[-1]),
                "start_bytes": phase.memory[0]["VmHWM"],
                "peak_bytes": max(each["VmHWM"] for each in phase.memory),
                "allowed_bytes": phase.memory[0]["VmHWM"]
                + int(MODELS * model)
                + STREAM_MIB * MIB * sizes.num_peers,
                "slow_link": links[codec],
            }
            for codec, phase in phases.items()
        },
        "int8_of_fp32_on_a_slow_link": links[Codec.INT8]["seconds"] / links[Codec.FP32]["seconds"],
        "growth": {"rss_5": first, "rss_30": last, "ratio": last / first},
    }


TARGETS = (
    ("FP32 round of the floor", lambda r: r["codecs"]["FP32"]["of_the_floor"], 1.6),
    ("INT8 round of the FP32 floor", lambda r: r["codecs"]["INT8"]["of_the_floor"], 1.0),
    ("INT8 of the FP32 round at 20 MB/s", lambda r: r["int8_of_fp32_on_a_slow_link"], 0.35),
    (
        "server's peak of what it may take",
        lambda r: max(c["peak_bytes"] / c["allowed_bytes"] for c in r["codecs"].values()),
        1.0,
    ),
    ("memory after 30 rounds of that after 5", lambda r: r["growth"]["ratio"], 1.1),
)


def table(result: dict) -> str:
    """The targets, and the numbers behind them."""
    lines = [f"{'':42}{'ratio':>8}{'target':>8}"]
    for name, value, target in TARGETS:
        ratio = value(result)
        lines.append(f"{name:42}{ratio:8.2f}{target:8.2f}{'' if ratio <= target else '  missed'}")
    for codec, of in result["codecs"].items():
        link = of["slow_link"]
        lines.append(
            f"{codec}: median {median(of['seconds']):.2f} s, worst {max(of['seconds']):.2f} s, "
            f"floor {of['floor_beside']:.2f} s; "
            f"server {of['server_cpu_seconds']:.2f} s of CPU, peak {of['peak_bytes'] / MIB:.0f} "
            f"MiB (start {of['start_bytes'] / MIB:.0f}); on the link {link['seconds']:.1f} s, "
            f"{link['bytes_up'] / MIB:.0f} MiB up, {link['bytes_down'] / MIB:.0f} MiB down"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each phase")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    options = parser.parse_args()
    sizes = Sizes(shared=int(64 * options.scale), expert=int(96 * options.scale))
    result = run(sizes, SMALL, options.rounds)
    sys.stdout.write(table(result))
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / "sync_round.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(f"written to {path}\n")


if __name__ == "__main__":
    main()
