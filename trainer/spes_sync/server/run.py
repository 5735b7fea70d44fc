"""The job that a server holds, in memory: one mutable record, changed under the engine's lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from spes_proto.v1 import sync_pb2

from spes_sync.gates import Allowance, JobId
from spes_sync.manifest import Manifest
from spes_sync.plan import PeerId
from spes_sync.recovery import Found
from spes_sync.rounds import State
from spes_sync.server.settings import Settings
from spes_sync.spools import Spool
from spes_sync.tokens import TokenBook
from spes_sync.versions import CommitRecord
from spes_sync.volume import Job, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The last evaluation: nats per token of a committed version."""

    version: int
    loss: float


@dataclass(slots=True, kw_only=True)
class Run:
    """Everything about the job but its tensors."""

    settings: Settings
    settings_json: str
    job: Job
    """As it was last saved."""
    tokens: TokenBook
    ledger: Ledger
    saved_ledger: Ledger
    """As it was last saved: without what verified pushes have consumed since."""
    state: State
    manifest: Manifest | None = None
    head: CommitRecord | None = None
    latest: sync_pb2.Committed | None = None
    """What peers are told of the newest version."""
    spools: dict[PeerId, list[Spool]] = field(default_factory=dict)
    """Verified pushes of the open round."""
    held_out: HeldOut | None = None
    disk_problem: str = ""
    """A write other than a commit's that failed; tried again with the next event."""
    export_problem: str = ""
    """Why the final model is not exported."""

    @classmethod
    def resumed(cls, found: Found, state: State, spools: list[Spool], settings_json: str) -> Run:
        """The run that a volume holds."""
        run = cls(
            settings=Settings.parse(settings_json),
            settings_json=settings_json,
            job=found.job,
            tokens=found.tokens,
            ledger=found.ledger,
            saved_ledger=found.ledger,
            state=state,
            manifest=found.manifest,
            head=found.head,
        )
        for spool in spools:
            run.add_spool(spool)
        return run

    @property
    def job_id(self) -> JobId:
        """What push keys must name."""
        return JobId(uid=self.job.uid, incarnation=self.job.incarnation)

    def allowance(self, peer: PeerId) -> Allowance:
        """What a push of this peer may claim: all that it was leased and has not seen committed."""
        consumed = sum(r.size for r in self.ledger.book.consumed.get(peer, ()))
        sequences = self.ledger.book.held(peer) + consumed
        tokens = sequences * self.settings.spec.data.sequence_tokens
        return Allowance(steps=sequences, tokens=tokens)

    def add_spool(self, spool: Spool) -> None:
        """Take a verified push into the open round; it uses up the peer's leases.

        The parts of one contribution speak of the same steps, so only the first uses anything up.
        """
        others = [s for s in self.spools.get(spool.peer, ()) if s.push.part != spool.push.part]
        self.spools[spool.peer] = [*others, spool]
        book = self.ledger.book
        used = sum(r.size for r in book.consumed.get(spool.peer, ()))
        more = self.settings.sequences(spool.push.tokens) - used
        if more > 0:
            self.ledger = self.ledger.with_book(book.consume(spool.peer, more))
