"""Training as a peer of a job: from the command line to the driver of `spes_sync.client`."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from spes_api.job import SpesJobSpec
from spes_api.readiness import READY_FILE
from spes_sync.client import JobTerms, PeerOptions, PeerOutcome, run_peer
from spes_sync.disk import Disk

from spes_trainer.crew import others_beside
from spes_trainer.data.reading import read_corpus
from spes_trainer.learner import TorchLearner
from spes_trainer.share import Workplace

logger = logging.getLogger(__name__)

# What the data are, for people and reports.
DATA = "data.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerArguments:
    """What the command line of a peer says."""

    peer: str
    server: str
    """HOST:PORT."""
    directory: Path
    ca_file: Path
    token_file: Path
    data_root: Path
    slowdown: float = 1.0
    profile_steps: int = 0
    token_patience: timedelta = timedelta(seconds=60)
    """How long a token that is not accepted may be replaced by a new one in its file."""
    disk: Disk = field(default_factory=Disk)


def train_as_peer(arguments: PeerArguments, *, stop: threading.Event) -> PeerOutcome:
    """Take part in the job until its server says Stop, or `stop` is set.

    Raises:
        ConfigError: the data cannot be used.
        SyncError: as `run_peer` says.
    """
    options = PeerOptions(
        directory=arguments.directory,
        peer=arguments.peer,
        address=arguments.server,
        ca_file=arguments.ca_file,
        token_file=arguments.token_file,
        token_patience=arguments.token_patience,
        while_live=(arguments.directory / READY_FILE).touch,
    )
    with ExitStack() as at_end:
        outcome = run_peer(lambda terms: _learner(arguments, terms, stop, at_end), options, stop)
    logger.info(
        "ended reason=%s version=%d steps=%d tokens=%d %s",
        outcome.reason,
        outcome.version,
        outcome.steps,
        outcome.tokens,
        outcome.detail,
    )
    return outcome


def _learner(
    arguments: PeerArguments, terms: JobTerms, stop: threading.Event, at_end: ExitStack
) -> TorchLearner:
    """The learner; what is to end with it, the last one first, is put on `at_end`."""
    directory, disk = arguments.directory, arguments.disk
    ready = directory / READY_FILE
    ready.unlink(missing_ok=True)  # of a process that was killed; the directory is ours now
    at_end.callback(ready.unlink, missing_ok=True)
    spec = SpesJobSpec.model_validate_json(terms.settings_json)
    corpus = read_corpus(spec, data_root=arguments.data_root, directory=directory, disk=disk)
    disk.write_json(directory / DATA, corpus.describe(), "data described")
    workplace = Workplace(
        directory=directory,
        data_root=arguments.data_root,
        stop=stop,
        slowdown=arguments.slowdown,
        profile_steps=arguments.profile_steps,
        disk=disk,
    )
    others = at_end.enter_context(others_beside(spec, workplace, document_end=corpus.document_end))
    learner = TorchLearner(spec, terms, corpus, workplace=workplace, others=others)
    at_end.callback(learner.close)
    return learner
