"""Toy peers: the real client with a learner of two numbers, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from builders.sync_server import DEADLINE_SECONDS, TestServer, eventually, job_settings
from builders.toy_learner import SEQUENCE_TOKENS, ToyLearner, ToyVolume
from safetensors.numpy import load_file
from spes_proto.v1 import control_pb2
from spes_sync.client import JobTerms, PeerOptions, PeerOutcome, StepPosition, run_peer
from spes_sync.codec import Array
from spes_sync.manifest import Manifest

# Of the worked example: with these two peers one synchronised step gives psi 0.2, phi (0.2, 0.4).
TARGETS: Mapping[str, tuple[float, float]] = {"uni-a.0": (1.0, 2.0), "uni-b.0": (3.0, 4.0)}


class CrashError(Exception):
    """Stands for SIGKILL: the process says nothing more."""


@dataclass
class ToyPeer:
    """One peer over its processes: directory and volume survive, learner and thread do not."""

    name: str
    directory: Path
    address: str
    ca_file: Path
    token_file: Path
    manifest: Manifest | None = None
    targets: tuple[float, float] | None = None
    targets_of: Mapping[str, tuple[float, float]] = field(default_factory=lambda: TARGETS)
    volume: ToyVolume = field(default_factory=ToyVolume)
    before_step: Callable[[StepPosition], None] = lambda _: None
    kind: type[ToyLearner] = ToyLearner
    adjust: Callable[[ToyLearner], None] = lambda _: None
    token_patience: timedelta = timedelta(seconds=60)
    learner: ToyLearner | None = None
    outcome: PeerOutcome | None = None
    error: BaseException | None = None
    live: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a process of this peer."""
        self.outcome = self.error = self.learner = None
        self.stop, self.live = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wait(self) -> PeerOutcome:
        """Its outcome; raises what it raised."""
        assert self._thread is not None
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} still runs"
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome

    def crash(self) -> None:
        """Kill the process at its next step."""
        self.before_step = _crash
        assert self._thread is not None
        self._thread.join(DEADLINE_SECONDS)
        assert isinstance(self.error, CrashError), f"{self.name}: {self.error}"
        self.before_step = lambda _: None

    def interrupt(self) -> PeerOutcome:
        """SIGTERM, and wait for the end."""
        self.stop.set()
        return self.wait()

    def end(self) -> None:
        """Make sure that nothing of it runs."""
        self.stop.set()
        if isinstance(self.before_step, Gate):
            self.before_step.open()
        if self._thread is not None:
            self._thread.join(DEADLINE_SECONDS)

    def _run(self) -> None:
        try:
            self.outcome = run_peer(self._build, self._options(), self.stop)
        except BaseException as error:
            self.error = error

    def _build(self, terms: JobTerms) -> ToyLearner:
        a, b = self.targets or self.targets_of[terms.peer]
        self.learner = self.kind(a=a, b=b, volume=self.volume, manifest=self.manifest)
        self.learner.before_step = lambda position: self.before_step(position)
        self.adjust(self.learner)
        return self.learner

    def _options(self) -> PeerOptions:
        return PeerOptions(
            directory=self.directory,
            peer=self.name,
            address=self.address,
            ca_file=self.ca_file,
            token_file=self.token_file,
            token_patience=self.token_patience,
            while_live=self.live.set,
        )


def _crash(_: StepPosition) -> None:
    raise CrashError


def make_peer(server: TestServer, name: str, **changes: object) -> ToyPeer:
    """A peer with a token that the server knows after the next plan."""
    root = server.directory.parent
    peer = ToyPeer(
        name=name,
        directory=root / name,
        address=server.address,
        ca_file=server.tls.ca_file,
        token_file=root / f"{name}.token",
        **changes,  # type: ignore[arg-type]
    )
    peer.token_file.write_text(server.hub.invite(name))
    return peer


@contextmanager
def seeded_peers(server: TestServer, *names: str, **changes: object) -> Iterator[list[ToyPeer]]:
    """Peers that have caught up with version 0, which the first has seeded; none is placed yet."""
    peers = [make_peer(server, name, **changes) for name in names]
    server.hub.apply(seed_peer=names[0])
    try:
        for peer in peers:
            peer.start()
        eventually(lambda: all_caught_up(server, names), f"{names} caught up")
        yield peers
    finally:
        for peer in peers:
            peer.end()


def all_caught_up(server: TestServer, names: tuple[str, ...]) -> bool:
    """Whether these peers are live and hold the latest version."""
    states = [peer_state(server, name) for name in names]
    return all(state.connected and state.caught_up for state in states)


def peer_state(server: TestServer, name: str) -> control_pb2.PeerState:
    """What the server thinks of a peer."""
    known = {peer.peer: peer for peer in server.hub.state().peers}
    return known.get(name, control_pb2.PeerState())


def served(server: TestServer, version: int) -> dict[str, Array]:
    """The model of a version, from the server's volume."""
    path = server.directory / "versions" / f"{version:06d}" / "model.safetensors"
    tensors: dict[str, Array] = load_file(path)
    return tensors


def toy_settings(
    *, steps: int = 2, rounds: int = 1000, num_peers: int = 2, **changes: object
) -> str:
    """A job of toy peers that is complete after so many full rounds."""
    sequences_per_step = 2
    return job_settings(
        **{
            "sync__everySteps": steps,
            "training__batchTokens": sequences_per_step * SEQUENCE_TOKENS,
            "training__maxTokens": sequences_per_step
            * SEQUENCE_TOKENS
            * steps
            * rounds
            * num_peers,
            "members__min": num_peers,
            "data__heldOutFraction": 0.0,
            **changes,
        }
    )


class Gate:
    """Holds a peer before the first step of each round until that round is opened to it."""

    _ALL = 1 << 31

    def __init__(self, seconds: float = DEADLINE_SECONDS) -> None:
        self._seconds = seconds  # that a peer may be held, or that is waited for one
        self._changed = threading.Condition()
        self._open_to = 0
        self._reached = 0

    def __call__(self, position: StepPosition) -> None:
        with self._changed:
            self._reached = max(self._reached, position.round)
            self._changed.notify_all()
            opened = self._changed.wait_for(lambda: self._open_to >= position.round, self._seconds)
        assert opened, f"nobody opened round {position.round}"

    def open(self, number: int = _ALL) -> None:
        """Let the peer train up to this round."""
        with self._changed:
            self._open_to = number
            self._changed.notify_all()

    def wait_until_reached(self, number: int = 1) -> None:
        """Wait until the peer is about to make its first step of this round."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._reached >= number, self._seconds)
        assert came, f"the peer never came to round {number}"


def committed_peers(server: TestServer, version: int) -> list[str]:
    """Whose work is in a version, as the journal tells."""
    (commit,) = (c for c in server.journal("committed") if c["version"] == version)
    return [row["peer"] for row in commit["peers"]]


def version_of(server: TestServer) -> int:
    """The version that is served."""
    return server.hub.state().version
