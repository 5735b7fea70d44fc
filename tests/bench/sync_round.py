"""A round of four peers through the sync server: time against a floor, memory, bytes.

    nice -n 10 python tests/bench/sync_round.py [--rounds 3] [--scale 1]

The sizes are 64 MiB of shared parameters and 96 MiB of experts a peer: 160 MiB up, 352 MiB down, a
model of 448 MiB. Server, peers and floor are processes of their own; a round lasts from the first
push's start to the last pull's end. The floor is bare gRPC that moves the FP32 round's bytes with
SHA-256 on both sides and one write and fsync of the model; it is measured before and after what it
is held against, under the same TLS, and once without: the server itself never speaks without. CPU
seconds are of all processes of a side, and less moved by other work on the machine than its time.
The server's memory is read from outside. Writes raw JSON to tests/bench/results/.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

# Programs here find the modules beside them and the builders of the tests.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
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
TRIPLE = Sizes(shared=192, expert=288)
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
    server_cpu: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def warm(self) -> Phase:
        """The same without the times of the rounds that warm up."""
        return replace(
            self,
            times=self.times[WARM_UP:],
            server_cpu=self.server_cpu[WARM_UP:],
            cpu=self.cpu[WARM_UP:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process of this program, and the line to it."""

    line: Connection
    pid: int


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
def children(target: Callable[..., None], arguments: list[tuple]) -> Iterator[list[Child]]:
    """One process for each tuple of arguments; all have said "ready"."""
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
        yield [
            Child(line=line, pid=process.pid)
            for line, process in zip(lines, processes, strict=True)
        ]
    finally:
        for line in lines:
            line.send(None)
        for process in processes:
            process.join(20)
            process.kill()


def receive(line: Connection) -> object:
    assert line.poll(PATIENCE_SECONDS), "a process says nothing"
    return line.recv()


def ask(peers: list[Child], word: str) -> list:
    """Give all processes a word and collect their answers."""
    for peer in peers:
        peer.line.send(word)
    return [receive(peer.line) for peer in peers]


def span(times: list[RoundTimes]) -> float:
    return max(each.ended for each in times) - min(each.started for each in times)


def measure_floor(
    root: Path, tls: TestTls, sizes: Sizes, rounds: int, *, secure: bool = True
) -> Phase:
    """Rounds of the floor."""
    floor = Floor(
        key=(tls.directory / "tls.key").read_bytes(),
        certificate=(tls.directory / "tls.crt").read_bytes(),
        ca=tls.ca_file.read_bytes(),
        secure=secure,
        directory=root,
        up_bytes=(sizes.shared + sizes.expert) * MIB,
        down_bytes=(sizes.shared + (sizes.num_peers - 1) * sizes.expert) * MIB,
        model_bytes=sizes.manifest.num_bytes,
    )
    ours, theirs = _CONTEXT.Pipe()
    server = _CONTEXT.Process(target=run_floor_server, args=(floor, theirs), daemon=True)
    server.start()
    phase = Phase()
    try:
        port = receive(ours)
        with children(run_floor_peer, [(floor, port)] * sizes.num_peers) as peers:
            for _ in range(WARM_UP + rounds):
                one_round(phase, server.pid, peers)
    finally:
        ours.send(None)
        server.join(20)
        server.kill()
    return phase.warm()


def one_round(phase: Phase, server: int, peers: list[Child]) -> None:
    """Let the peers go through a round and note what it took."""
    pids = [server, *(peer.pid for peer in peers)]
    before = [cpu_of(pid) for pid in pids]
    times = ask(peers, "round")
    taken = [cpu_of(pid) - was for pid, was in zip(pids, before, strict=True)]
    phase.times.append(span(times))
    phase.peers.append(times)
    phase.memory.append(memory_of(server))
    phase.server_cpu.append(taken[0])
    phase.cpu.append(sum(taken))


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
        with children(run_wire_peer, [(peer,) for peer in stage.peers]) as peers:
            ask(peers, "seed")
            stage.place()
            for _ in range(WARM_UP + rounds):
                one_round(phase, server.pid, peers)
    return phase.warm()


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
        peers = stack.enter_context(children(run_wire_peer, [(peer,) for peer in placed]))
        ask(peers, "seed")
        before = [(relay.bytes_up, relay.bytes_down) for relay in relays]
        for relay in relays:
            relay.bytes_per_second = LINK_BYTES_PER_SECOND
        stage.place()
        seconds = span(ask(peers, "round"))
        after = [(relay.bytes_up, relay.bytes_down) for relay in relays]
    up, down = (
        sum(new[way] - old[way] for old, new in zip(before, after, strict=True)) for way in (0, 1)
    )
    return {"seconds": seconds, "bytes_up": up, "bytes_down": down}


def say(message: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {message}\n")


def run(rounds: int, scale: float) -> dict[str, object]:
    """All phases, one after another."""
    b1, triple = scaled(B1, scale), scaled(TRIPLE, scale)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        tls = make_tls(root / "tls")
        say("floor without TLS")
        plain = measure_floor(root, tls, b1, rounds, secure=False)
        say("floor")
        floors = [measure_floor(root, tls, b1, rounds)]
        phases: dict[Codec, Phase] = {}
        for codec in (Codec.FP32, Codec.INT8):
            say(f"rounds in {codec}")
            phases[codec] = measure(root, tls, b1, codec, rounds)
            say("floor again")
            floors.append(measure_floor(root, tls, b1, rounds))
        links = {}
        for codec in (Codec.FP32, Codec.INT8):
            say(f"slow links in {codec}")
            links[codec] = measure_link(root, tls, b1, codec)
        say("three times the sizes")
        large = measure(root, tls, triple, Codec.FP32, 1)
        say("thirty rounds")
        growth = measure(root, tls, SMALL, Codec.FP32, GROWTH_ROUNDS[1] - WARM_UP)
    first, last = (growth.memory[number]["VmRSS"] for number in GROWTH_ROUNDS)
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "mib": {"shared": b1.shared, "expert": b1.expert, "model": b1.manifest.num_bytes // MIB},
        "floor": [numbers(floor) for floor in floors],
        "floor_without_tls": numbers(plain),
        "codecs": {
            codec: {
                **numbers(phase),
                **beside(phase, floors[index : index + 2]),
                "of_the_floor_without_tls": median(phase.times) / median(plain.times),
                "payload_bytes_up": sum(each.bytes_up for each in phase.peers[-1]),
                "payload_bytes_down": sum(each.bytes_down for each in phase.peers[-1]),
                **peaks(phase, b1),
                "slow_link": links[codec],
            }
            for index, (codec, phase) in enumerate(phases.items())
        },
        "int8_of_fp32_on_a_slow_link": links[Codec.INT8]["seconds"] / links[Codec.FP32]["seconds"],
        "three_times": {"seconds": large.times, **peaks(large, triple)},
        "growth": {"rss_5": first, "rss_30": last, "ratio": last / first},
    }


def scaled(sizes: Sizes, scale: float) -> Sizes:
    return replace(sizes, shared=int(sizes.shared * scale), expert=int(sizes.expert * scale))


def numbers(phase: Phase) -> dict[str, object]:
    return {"seconds": phase.times, "cpu_seconds": phase.cpu, "server_cpu": phase.server_cpu}


def beside(phase: Phase, floors: list[Phase]) -> dict[str, float]:
    """A phase over the floors before and after it: the machine may have other work."""
    seconds = median(time for floor in floors for time in floor.times)
    return {
        "floor_beside": seconds,
        "of_the_floor": median(phase.times) / seconds,
        "worst_of_the_floor": max(phase.times) / seconds,
        "cpu_of_the_floor": median(phase.cpu)
        / median(cpu for floor in floors for cpu in floor.cpu),
    }


def peaks(phase: Phase, sizes: Sizes) -> dict[str, int]:
    """The server's memory: at its start, at its highest, and what it may take."""
    start = phase.memory[0]["VmHWM"]
    return {
        "start_bytes": start,
        "peak_bytes": max(each["VmHWM"] for each in phase.memory),
        "allowed_bytes": start
        + int(MODELS * sizes.manifest.num_bytes)
        + STREAM_MIB * MIB * sizes.num_peers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each phase")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    options = parser.parse_args()
    save("sync_round", run(options.rounds, options.scale))


if __name__ == "__main__":
    main()
