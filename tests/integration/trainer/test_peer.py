"""Torch peers against a real sync server over loopback TLS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from builders.closeness import assert_close
from builders.nano import nano_spec, write_words
from builders.plain_loop import plain_loop
from builders.sync_server import DEADLINE_SECONDS, TestServer, eventually, running_server
from safetensors.torch import load_file
from spes_sync.client import PeerOutcome
from spes_sync.disk import Disk
from spes_sync.manifest import expert_of
from spes_trainer.assembly import build_stepper
from spes_trainer.checkpoint import CheckpointStore, Snapshot
from spes_trainer.errors import ConfigError, NonFiniteError
from spes_trainer.peer import PeerArguments, train_as_peer

EVERY_STEPS = 4


@dataclass
class Job:
    """A server, a hub and peers that run as threads of this process."""

    root: Path
    server: TestServer
    pool: ThreadPoolExecutor
    stops: dict[str, threading.Event] = field(default_factory=dict)

    @property
    def hub(self):
        return self.server.hub

    def directory(self, peer: str) -> Path:
        return self.root / peer

    def start(self, peer: str, *, token: str | None = None, **changes) -> Future[PeerOutcome]:
        """Run a peer; with a token it is its first start."""
        token_file = self.root / f"{peer}.token"
        if token is not None:
            token_file.write_text(token)
        arguments = PeerArguments(
            peer=peer,
            server=self.server.address,
            directory=self.directory(peer),
            ca_file=self.server.tls.ca_file,
            token_file=token_file,
            data_root=self.root / "data",
            token_patience=timedelta(seconds=1),
            **changes,
        )
        self.stops[peer] = threading.Event()
        return self.pool.submit(train_as_peer, arguments, stop=self.stops[peer])

    def version(self) -> int:
        return int(self.hub.state().version)

    def num_caught_up(self) -> int:
        return sum(peer.caught_up for peer in self.hub.state().peers)

    def model(self, version: int) -> dict[str, torch.Tensor]:
        return load_file(self.server.directory / "versions" / f"{version:06d}/model.safetensors")


@pytest.fixture
def make_job(tmp_path) -> Iterator[Callable[..., Job]]:
    """Starts a job with one token a peer; every peer is told to stop at the end."""
    write_words(tmp_path / "data")
    with ExitStack() as stack:
        jobs: list[Job] = []

        def make(spec=None) -> Job:
            server = stack.enter_context(running_server(tmp_path / "sync"))
            server.hub.settings_json = (spec or nano_spec()).canonical_json()
            jobs.append(Job(tmp_path, server, ThreadPoolExecutor(4)))
            return jobs[-1]

        try:
            yield make
        finally:
            for job in jobs:
                for stop in job.stops.values():
                    stop.set()
                job.pool.shutdown(wait=True)


def begin(job: Job, *peers: str, **changes) -> dict[str, Future[PeerOutcome]]:
    """Invite and start peers, the first of which seeds."""
    tokens = {peer: job.hub.invite(peer) for peer in peers}
    job.hub.apply(seed_peer=peers[0])
    running = {peer: job.start(peer, token=tokens[peer], **changes) for peer in peers}
    eventually(lambda: job.num_caught_up() == len(peers), "all have caught up with the seed")
    return running


def checkpoint(job: Job, peer: str) -> Snapshot:
    """The last complete checkpoint of a peer."""
    kept = CheckpointStore(job.directory(peer), keep_last=1, disk=Disk()).load()
    assert kept is not None
    return kept


def steps_of(job: Job, peer: str) -> dict[int, int]:
    """Optimizer steps behind each expert that a peer trains, as of its checkpoint."""
    kept = checkpoint(job, peer).optimizer
    return {
        expert_of(name): int(value.item())
        for name, value in kept.items()
        if name.startswith("step.")
    }


def test_one_peer_equals_the_plain_loop(make_job):
    """To 1e-6 the plain loop; bit for bit one that applies the delta to the base each round."""
    spec = nano_spec()
    job = make_job(spec)
    (running,) = begin(job, "uni-a.0").values()
    job.hub.apply(dict.fromkeys(range(4), "uni-a.0"))
    assert running.result(DEADLINE_SECONDS).reason == "COMPLETE"

    final = job.model(4)
    exact = plain_loop(spec, job.root / "data", every=EVERY_STEPS)
    plain = plain_loop(spec, job.root / "data")
    for name, value in final.items():
        assert torch.equal(value, exact[name]), name
        assert_close(value, plain[name], rtol=1e-6, atol=1e-6)


def test_two_peers_train_one_model(make_job):
    job = make_job(nano_spec())
    running = begin(job, "uni-a.0", "uni-b.0")
    job.hub.apply({0: "uni-a.0", 1: "uni-a.0", 2: "uni-b.0", 3: "uni-b.0"})
    outcomes = {peer: future.result(DEADLINE_SECONDS) for peer, future in running.items()}
    assert {outcome.reason for outcome in outcomes.values()} == {"COMPLETE"}
    assert sum(outcome.tokens for outcome in outcomes.values()) == 1024

    last = job.model(2)
    seed = build_stepper(nano_spec()).model.named_parameters()
    assert not [name for name, value in seed if torch.equal(value, last[name])]
    for peer in outcomes:
        kept = checkpoint(job, peer)
        pulled = job.model(kept.state["point"]["version"])
        assert all(torch.equal(kept.weights[name], pulled[name]) for name in pulled)
    losses = [event["loss"] for event in job.server.journal("evaluated")]
    assert losses[-1] < losses[0]


def test_moved_experts_go_on_and_lost_ones_freeze(make_job):
    job = make_job(nano_spec(maxTokens=64 * 40))
    running = begin(job, "uni-a.0", "uni-b.0", slowdown=3)
    job.hub.apply({0: "uni-a.0", 1: "uni-a.0", 2: "uni-b.0", 3: "uni-b.0"})
    eventually(lambda: job.version() >= 1, "a round is committed")
    job.hub.apply({0: "uni-a.0", 1: "uni-b.0", 2: "uni-b.0", 3: "uni-b.0"})
    for future in running.values():
        assert future.result(DEADLINE_SECONDS).reason == "COMPLETE"
    assert set(steps_of(job, "uni-a.0")) == {-1, 0}
    trained = steps_of(job, "uni-b.0")
    assert set(trained) == {-1, 1, 2, 3}
    assert 0 < trained[1] < trained[2]


def test_a_stopped_peer_hands_over_and_the_next_owner_takes_its_moments(make_job):
    job = make_job(nano_spec(maxTokens=64 * 400))
    running = begin(job, "uni-a.0", "uni-b.0", slowdown=2)
    job.hub.apply({0: "uni-a.0", 1: "uni-a.0", 2: "uni-b.0", 3: "uni-b.0"})
    eventually(lambda: job.version() >= 2, "two rounds are committed")
    job.stops["uni-a.0"].set()
    assert running["uni-a.0"].result(DEADLINE_SECONDS).interrupted
    handed_over = {path.name for path in (job.server.directory / "moments").iterdir()}
    assert any(name.startswith("0") for name in handed_over)

    given = steps_of(job, "uni-a.0")[0]
    job.hub.apply(dict.fromkeys(range(4), "uni-b.0"))
    eventually(lambda: steps_of(job, "uni-b.0").get(0, 0) > given, "the new owner goes on")


def test_a_stopped_peer_resumes_from_its_checkpoint_with_its_own_token(make_job):
    job = make_job(nano_spec(maxTokens=64 * 60))
    running = begin(job, "uni-a.0", slowdown=2)
    job.hub.apply(dict.fromkeys(range(4), "uni-a.0"))
    eventually(lambda: job.version() >= 2, "two rounds are committed")
    job.stops["uni-a.0"].set()
    first = running["uni-a.0"].result(DEADLINE_SECONDS)
    assert first.interrupted
    assert not (job.directory("uni-a.0") / "ready").exists()

    second = job.start("uni-a.0").result(DEADLINE_SECONDS)
    assert second.reason == "COMPLETE"
    assert second.steps > first.steps - EVERY_STEPS


def test_ready_exists_while_the_session_is_live(make_job):
    job = make_job(nano_spec(maxTokens=64 * 400))
    running = begin(job, "uni-a.0", slowdown=3)
    ready = job.directory("uni-a.0") / "ready"
    eventually(ready.exists, "the peer is ready")
    job.stops["uni-a.0"].set()
    running["uni-a.0"].result(DEADLINE_SECONDS)
    assert not ready.exists()


def test_missing_data_is_the_peers_configuration_error(make_job):
    job = make_job()
    token = job.hub.invite("uni-a.0")
    job.hub.apply(seed_peer="uni-a.0")
    (job.root / "data" / "words").rename(job.root / "data" / "other")
    with pytest.raises(ConfigError, match=r"holds other"):
        job.start("uni-a.0", token=token).result(DEADLINE_SECONDS)


def test_a_peer_that_diverges_stops_and_says_where(make_job):
    """Its weights are finite, so they can be the seed, but their gradients overflow."""
    spec = nano_spec()
    wild = spec.model.config.model_copy(update={"init_std": 1e30})
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"config": wild})})
    job = make_job(spec)
    running = begin(job, "uni-a.0")
    job.hub.apply(dict.fromkeys(range(4), "uni-a.0"))
    with pytest.raises(NonFiniteError, match=r"first seen in the gradient of head"):
        running["uni-a.0"].result(DEADLINE_SECONDS)
    assert job.version() == 0
    eventually(lambda: job.server.journal("leaving"), "the server was told")
