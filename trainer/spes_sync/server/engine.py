"""The one owner of a run's state: events go in one at a time, their effects are carried out here.

For each event: decide (pure), make the change durable, adopt it, then tell peers and journal. If
the disk refuses, nothing has happened and the caller hears of it; time brings the event again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spes_api.ranges import format_ranges
from spes_proto.v1 import sync_pb2

from spes_sync.errors import DiskFullError
from spes_sync.journal import Journal
from spes_sync.leases import LeaseBook
from spes_sync.plan import PeerId
from spes_sync.rounds import Effect, Event, Round, State, Step, advance
from spes_sync.rounds import events as ev
from spes_sync.server import messages
from spes_sync.server.accounts import Accounts
from spes_sync.server.outboxes import Outboxes
from spes_sync.server.run import Run
from spes_sync.server.threads import Threads
from spes_sync.volume import Job, Ledger, Volume

logger = logging.getLogger(__name__)

# How often silences and deadlines are looked at; a lost peer is noticed this much later at most.
TICK = timedelta(seconds=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Monotonic seconds for waits, Unix seconds for what must outlive the process."""

    now: Callable[[], float]
    unix: Callable[[], float]


class Engine:
    """Holds the run and applies events to it."""

    def __init__(self, volume: Volume, journal: Journal, threads: Threads, clocks: Clocks) -> None:
        """Start empty; `run` is set by recovery or by the first plan."""
        self.volume = volume
        self.journal = journal
        self.threads = threads
        self.clocks = clocks
        self.lock = asyncio.Lock()
        self.accounts = Accounts()
        self.outboxes = Outboxes()
        self.run: Run | None = None
        self.on_commit_wanted: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.on_completed: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._changed = asyncio.Condition()
        self._changes = 0
        self._opened_at = clocks.now()
        self._looked_at: Ledger | None = None  # the ledger whose durable form is the saved one
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()

    @property
    def changes(self) -> int:
        """Counts what has happened; for watchers."""
        return self._changes

    @property
    def round_seconds(self) -> float:
        """How long the round has been open."""
        return self.clocks.now() - self._opened_at

    async def post(self, event: Event) -> None:
        """Apply one event.

        Raises:
            DiskFullError: it could not be made durable; nothing has changed.
        """
        async with self.lock:
            await self.apply(event)

    async def apply(self, event: Event) -> None:
        """Apply one event; the caller holds the lock."""
        run = self.run
        assert run is not None, "no event before the first plan"
        step = advance(run.state, event, self.clocks.now())
        if step.state is run.state and not step.effects:
            return
        book = self._leases_after(run, step)
        try:
            wrote = await self._make_durable(run, step, book)
        except DiskFullError as error:
            run.disk_problem = str(error)
            raise
        if wrote:
            run.disk_problem = ""
        run.state = step.state
        if book is not run.ledger.book:
            run.ledger = run.ledger.with_book(book)
        self._looked_at = run.ledger
        self.accounts.keep_only(frozenset(run.state.peers))
        for effect in step.effects:
            self._carry_out(run, effect)
        await self.notify()

    async def notify(self) -> None:
        """Wake watchers."""
        self._changes += 1
        async with self._changed:
            self._changed.notify_all()

    async def changed_since(self, seen: int) -> None:
        """Wait until something has happened since `changes` was `seen`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes != seen)

    def start(self, task: Coroutine[Any, Any, None]) -> None:
        """Run something beside the events; `close` ends it, and `failed` tells of its errors."""
        started = asyncio.create_task(task)
        self._tasks.add(started)
        started.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._failed.set()

    async def failed(self) -> None:
        """Wait until something that runs beside the events has failed, and raise its error.

        Without it time would stand still, or a round never be committed, and nobody would know.
        """
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def tick_forever(self) -> None:
        """Let time pass for the state machine."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if self.run is None:
                continue
            try:
                await self.post(ev.Tick())
            except DiskFullError as error:
                logger.warning("%s", error)

    async def close(self) -> None:
        """End what runs beside; a write in a thread is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Durable first.

    def _leases_after(self, run: Run, step: Step) -> LeaseBook:
        book = run.ledger.book
        for effect in step.effects:
            if isinstance(effect, ev.LeasesReturned):
                book = book.give_back(effect.peer)
            elif isinstance(effect, ev.Opened) and step.state.round is not None:
                opened = step.state.round
                wanted = {peer: self._block(run, opened, peer) for peer in opened.expected}
                book = book.grant(wanted)
        return book

    def _block(self, run: Run, opened: Round, peer: PeerId) -> int:
        if opened.has_pushed(peer):  # before the round was opened again
            return 0
        return run.settings.block(self.accounts.of(peer).heartbeat.tokens_per_second)

    async def _make_durable(self, run: Run, step: Step, book: LeaseBook) -> bool:
        """Write what changed, in the order in which a restart can make sense of a part of it.

        Returns:
            Whether anything was written.
        """
        state = step.state
        job = Job(
            uid=run.job.uid,
            incarnation=run.job.incarnation,
            active=state.active,
            newest=state.newest,
            seed_peer=state.seed_peer,
        )
        given_up = [e.number for e in step.effects if isinstance(e, ev.GivenUp)]
        writes: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self.volume.spools.remove, (number,)) for number in given_up
        ]
        ledger = run.saved_ledger
        if book is not run.ledger.book or run.ledger is not self._looked_at:
            ledger = run.ledger.with_book(book.unconsumed())
        if ledger != run.saved_ledger:
            writes.append((self.volume.save_ledger, (ledger,)))
        if job != run.job:
            writes.append((self.volume.save_job, (job,)))
        opened = _round_record(state)
        if opened is not None and (given_up or opened != _round_record(run.state)):
            writes.append((self.volume.spools.save_round, (state.round_number, opened)))
        if writes:
            await self.threads.run(_all, writes)
        run.job, run.saved_ledger = job, ledger
        return bool(writes)

    # Then the rest.

    def _carry_out(self, run: Run, effect: Effect) -> None:
        number = run.state.round_number
        match effect:
            case ev.Opened():
                self._tell_opened(run, effect)
            case ev.PlanChanged():
                for peer in self.outboxes.peers if effect.peers is None else effect.peers:
                    self.outboxes.send(messages.plan_of(run, peer), [peer])
                if effect.peers is None:
                    self.journal.write("plan", epoch=run.state.active.epoch, state="active")
            case ev.Dropped():
                self.journal.write("left", round=number, peer=effect.peer, reason=effect.reason)
            case ev.WasHeld():
                self.journal.write("held", round=number, problem=effect.problem)
            case ev.GivenUp():
                run.spools.clear()
                self.journal.write("givenUp", round=effect.number)
            case ev.CommitWanted() if self.on_commit_wanted is not None:
                self.start(self.on_commit_wanted())
            case ev.Completed() if self.on_completed is not None:
                self.start(self.on_completed())
            case _:
                self._tell(effect)

    def _tell(self, effect: Effect) -> None:
        match effect:
            case ev.SeedNeeded():
                wanted = sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted())
                self.outboxes.send(wanted, [effect.peer])
            case ev.DrainSent():
                drain = sync_pb2.Drain(grace_seconds=effect.grace)
                self.outboxes.send(sync_pb2.ServerEvent(drain=drain), effect.peers)
                self.journal.write("drain", peers=sorted(effect.peers or ()), grace=effect.grace)
            case ev.StopSent():
                self.outboxes.send(messages.stop(effect), effect.peers)
                self.journal.write(
                    "stop",
                    peers=sorted(effect.peers or ()),
                    reason=effect.reason,
                    evaluate=effect.evaluate_seconds > 0,
                )

    def _tell_opened(self, run: Run, effect: ev.Opened) -> None:
        opened = run.state.round
        assert opened is not None
        if not effect.reopened:
            self._opened_at = self.clocks.now()
        for peer in sorted(opened.expected):
            self.outboxes.send(messages.round_open(run, peer, self.clocks.now()), [peer])
        owners = {peer: format_ranges(opened.plan.experts_of(peer)) for peer in opened.plan.peers}
        self.journal.write(
            "opened",
            round=opened.number,
            base=opened.base,
            epoch=opened.plan.epoch,
            expected=sorted(opened.expected),
            owners=owners,
            deadlineSeconds=round(opened.deadline - self.clocks.now(), 3),
            reopened=effect.reopened,
        )
        leases = run.ledger.book.leased
        self.journal.write(
            "leases",
            round=opened.number,
            leases={
                peer: [list(r) for r in leases.get(peer, ())] for peer in sorted(opened.expected)
            },
        )


def _round_record(state: State) -> dict[str, Any] | None:
    """What `round.json` says."""
    if state.round is None:
        return None
    return {
        "number": state.round.number,
        "base": state.round.base,
        "epoch": state.round.plan.epoch,
        "expected": sorted(state.round.expected),
    }


def _all(writes: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
    for write, args in writes:
        write(*args)
