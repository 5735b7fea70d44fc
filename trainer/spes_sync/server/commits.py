"""What follows a closed round: its commit, the export at the end; and the seed's commit.

These are the slow effects: they run beside the events, read a snapshot and report back by an event.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from spes_api.ranges import format_ranges
from spes_proto.v1 import sync_pb2

from spes_sync.errors import DiskFullError, SyncError
from spes_sync.export import ExportSettings, export_model
from spes_sync.export.folder import exported_sha256
from spes_sync.export.tokenizer import TOKENIZER
from spes_sync.manifest import Manifest
from spes_sync.rounds import Event
from spes_sync.rounds import events as ev
from spes_sync.rounds.machine import RETRY_SECONDS
from spes_sync.server import heap, messages
from spes_sync.server.committing import Closing, Written, closing, write_commit, write_seed_commit
from spes_sync.server.engine import Engine
from spes_sync.server.run import Run
from spes_sync.versions import MODEL, CommitRecord
from spes_sync.work_shares import work_shares

logger = logging.getLogger(__name__)

# Where in a volume the final model is exported to.
EXPORT = "export"


class Commits:
    """Turns closed rounds into versions."""

    def __init__(self, engine: Engine) -> None:
        """Take over the engine's slow effects."""
        self._engine = engine
        engine.on_commit_wanted = self.commit
        engine.on_completed = self.complete

    async def commit(self) -> None:
        """Commit the closing round, or say why it cannot be."""
        engine = self._engine
        async with engine.lock:
            run = engine.run
            assert run is not None
            closed = closing(run)
        try:
            written = await engine.threads.run(write_commit, engine.volume, closed)
        except (SyncError, OSError) as error:
            logger.exception("commit failed round=%d", closed.round.number)
            await self._post(ev.CommitFailed(problem=str(error)))
            return
        async with engine.lock:
            self._serve(run, written)
            self._journal(closed, written.record)
        await self._post(ev.Committed(global_tokens=written.record.global_tokens))
        try:
            await engine.threads.run(self._clean, closed, written.record)
        except (SyncError, OSError):  # the version is served all the same
            logger.exception("clean-up failed round=%d", closed.round.number)

    async def seed(self, payload: Path, manifest: Manifest) -> None:
        """Make a verified seed version 0; the caller holds the lock.

        Raises:
            DiskFullError: it could not be written.
        """
        engine = self._engine
        run = engine.run
        assert run is not None
        written = await engine.threads.run(write_seed_commit, engine.volume, run, payload, manifest)
        run.manifest = manifest
        self._serve(run, written)
        engine.journal.write("seeded", modelSha256=written.record.model_sha256)
        await engine.apply(ev.Seeded())

    async def complete(self) -> None:
        """Export the final model, then let everyone go; again after a restart does no harm."""
        engine = self._engine
        run = engine.run
        assert run is not None
        assert run.head is not None
        head = run.head
        try:
            if exported_sha256(engine.volume.root / EXPORT) != head.model_sha256:
                await engine.threads.run(self._export, run, head)
        except (SyncError, OSError) as error:
            logger.exception("export failed")
            run.export_problem = f"export failed: {error}"
        engine.journal.write("complete", version=head.version, globalTokens=head.global_tokens)
        known = run.held_out is not None and run.held_out.version >= head.version
        holds_out = run.settings.spec.data.held_out_fraction > 0
        await self._post(ev.Exported(evaluate=holds_out and not known))

    def _serve(self, run: Run, written: Written) -> None:
        """Serve a version that is durable, and tell everyone."""
        record = written.record
        run.head = record
        run.latest = messages.committed(record, written.tensor_hashes)
        run.spools = {}
        run.ledger = replace(run.ledger, book=run.ledger.book.commit(), version=record.version)
        self._engine.outboxes.send(sync_pb2.ServerEvent(committed=run.latest))

    async def _post(self, event: Event) -> None:
        """Report back, however long the disk stays full."""
        while True:
            try:
                await self._engine.post(event)
            except DiskFullError as error:
                logger.warning("%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _journal(self, closed: Closing, record: CommitRecord) -> None:
        engine = self._engine
        peers, shares = [], work_shares(record)
        for each in record.contributions:
            traffic = engine.accounts.settle(each.peer, engine.clocks.now())
            rate = engine.accounts.of(each.peer).heartbeat.tokens_per_second
            peers.append(
                {
                    "peer": each.peer,
                    "experts": format_ranges(each.experts),
                    "weight": each.weight,
                    "staleness": each.staleness,
                    "steps": each.steps,
                    "tokens": each.tokens,
                    "contribution": shares[each.peer].latest,
                    "contributionSoFar": shares[each.peer].so_far,
                    "loss": each.loss,
                    "tokensPerSecond": rate,
                    "bytesUp": traffic.bytes_up,
                    "bytesDown": traffic.bytes_down,
                    "waitSeconds": traffic.wait_seconds,
                }
            )
        engine.journal.write(
            "committed",
            round=closed.round.number,
            version=record.version,
            epoch=record.epoch,
            seconds=engine.round_seconds,
            globalTokens=record.global_tokens,
            modelSha256=record.model_sha256,
            compression=record.frame.compression,
            codecError=record.frame.error,
            peers=peers,
        )
        if record.merge_alpha:
            engine.journal.write("merged", round=record.version, alpha=record.merge_alpha)

    def _clean(self, closed: Closing, record: CommitRecord) -> None:
        volume = self._engine.volume
        assert self._engine.run is not None
        volume.spools.remove(closed.round.number)
        volume.disk.reached("spools-removed")
        volume.versions.clean(self._engine.run.settings.retention)
        for each in record.contributions:
            volume.moments.release(each.experts, each.session)
        volume.disk.reached("cleaned")
        heap.give_back()

    def _export(self, run: Run, head: CommitRecord) -> None:
        spec, volume = run.settings.spec, self._engine.volume
        export_model(
            volume.versions.path(head.version) / MODEL,
            ExportSettings(
                config=spec.model.resolve(),
                tokenizer=spec.data.tokenizer,
                tokenizer_file=volume.root / TOKENIZER,
                sequence_tokens=spec.data.sequence_tokens,
            ),
            volume.root / EXPORT,
        )
