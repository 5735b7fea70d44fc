"""One `spes run` from its first process to its last: watches, fires events, saves, ends well.

Called by `cli.run` with everything prepared. Writes no report; the folder holds all that one needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from datetime import timedelta
from enum import Enum
from pathlib import Path

from spes_operator.display import Display
from spes_operator.errors import SpesError
from spes_operator.hub.sync_state import Phase
from spes_operator.k8s.memory import MemoryApi, write_snapshot
from spes_operator.local.events import Event, Verb, due
from spes_operator.local.machine import Machine
from spes_operator.local.observer import Observer
from spes_operator.local.picture import Moment, picture, waiting
from spes_operator.local.prepare import Prepared
from spes_operator.local.saved import Progress
from spes_operator.local.stall import Watchdog
from spes_operator.local.world import World

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.25
_SAVE_SECONDS = 2.0
# For trainers to end after the server's Stop, besides the time in which one of them may evaluate
# the final version; then they are asked to, and at last killed.
_END_LIMIT = timedelta(seconds=30)


class Outcome(Enum):
    """How a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class RunError(SpesError):
    """The run cannot go on; says why and where to look."""


class Interrupts:
    """What the user asked for by Ctrl-C: once to save and end, twice to end at once."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.save = asyncio.Event()
        self.kill = asyncio.Event()

    def interrupt(self) -> None:
        """Count one Ctrl-C."""
        (self.kill if self.save.is_set() else self.save).set()


class LocalRun:
    """A run while it lasts."""

    def __init__(self, prepared: Prepared, machine: Machine, display: Display) -> None:
        """Prepare; nothing is started before `run`."""
        cluster = prepared.folder.cluster
        self._prepared = prepared
        self._display = display
        self._api = MemoryApi.load(cluster) if cluster.exists() else MemoryApi()
        self._world = World(prepared, self._api, machine)
        self._observer = Observer(prepared, self._api, self._world)
        self._watchdog = Watchdog(prepared.job.spec)
        self._pending = list(prepared.progress.pending)
        self._acts: dict[Event, asyncio.Task[None]] = {}
        self._absent = prepared.progress.absent
        self._preempted = prepared.progress.preempted
        self._started_at = self._saved_at = time.monotonic()
        self._finished = False
        self._is_unsaved = False

    async def run(self, interrupts: Interrupts) -> Outcome:
        """Run until the job is complete or the user interrupts; no process is left afterwards.

        Raises:
            RunError: The job cannot go on.
        """
        self._link_datasets()
        try:
            await self._world.open()
            while not interrupts.save.is_set():
                if await self._tick():
                    await self._end(interrupts)
                    return Outcome.FINISHED
                await _wait(interrupts.save, _TICK_SECONDS)
            await self._save_and_end(interrupts)
            return Outcome.INTERRUPTED
        finally:
            for act in self._acts.values():
                act.cancel()
            await self._world.close(timedelta(0))
            await self._try_to_save()

    async def _tick(self) -> bool:
        """Look once, show it, let due events happen; answers whether the job is complete."""
        self._world.check()
        moment = await self._observer.look(self._elapsed)
        self._absent, self._preempted = moment.absent, moment.preempted
        self._display.show(picture(moment))
        if moment.sync is not None and moment.sync.phase is Phase.COMPLETE:
            return True
        await self._give_up_if_stuck(moment)
        self._fire(moment)
        if time.monotonic() - self._saved_at > _SAVE_SECONDS:
            await self._try_to_save()
        return False

    @property
    def _elapsed(self) -> timedelta:
        return timedelta(
            seconds=self._prepared.progress.elapsed + time.monotonic() - self._started_at
        )

    def _fire(self, moment: Moment) -> None:
        """Begin every event that is due; raise what ended an earlier one."""
        for event in [event for event, act in self._acts.items() if act.done()]:
            self._acts.pop(event).result()
        sync = moment.sync
        open_round = sync.round if sync and sync.phase is Phase.OPEN else max(0, moment.version)
        elapsed = self._elapsed.total_seconds()
        for event in due(self._pending, open_round=open_round, elapsed=elapsed):
            self._pending.remove(event)
            self._acts[event] = asyncio.create_task(self._world.act(event))

    async def _give_up_if_stuck(self, moment: Moment) -> None:
        """Raise when nothing that is still to come could help; no round comes by itself."""
        if any(event.verb is Verb.JOINS and event.when.unit == "second" for event in self._pending):
            return
        if reason := await self._world.broken():
            raise RunError(reason)
        if self._watchdog.is_stuck(moment.version, now=time.monotonic()):
            raise RunError(
                f"no round was committed for {self._watchdog.limit.total_seconds():.0f} s "
                f"({waiting(moment) or 'no reason is known'}); logs are in "
                f"{self._prepared.folder.logs}"
            )

    async def _end(self, interrupts: Interrupts) -> None:
        """Every trainer ends by itself after the server's Stop; then the rest is ended in order."""
        self._finished = True
        evaluation = timedelta(seconds=self._prepared.job.spec.sync.timeout_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((_END_LIMIT + evaluation).total_seconds()):
                while await self._world.running_trainers() and not interrupts.save.is_set():
                    await self._show("finishing")
                    await _wait(interrupts.save, _TICK_SECONDS)
        await self._show("finished")
        await self._world.close(self._grace)
        export = self._prepared.folder.root / "export"
        if not export.is_symlink():
            export.symlink_to(Path("sync") / "export")

    async def _save_and_end(self, interrupts: Interrupts) -> None:
        """End in order, unless the user interrupts again."""
        closing = asyncio.create_task(self._world.close(self._grace))
        killing = asyncio.create_task(interrupts.kill.wait())
        while not closing.done() and not killing.done():
            await self._show("saving; Ctrl-C again ends at once")
            await asyncio.wait(
                [closing, killing], timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        for task in (closing, killing):
            task.cancel()
        await asyncio.gather(closing, killing, return_exceptions=True)

    async def _show(self, phase: str) -> None:
        self._display.show(picture(await self._observer.look(self._elapsed, phase)))

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self._prepared.job.spec.trainer.grace_period_seconds)

    def _link_datasets(self) -> None:
        """Dataset NAME is at data/NAME for every trainer, as a mounted volume is in a pod."""
        folder = self._prepared.folder.data
        folder.mkdir(exist_ok=True)
        for name, root in self._prepared.progress.datasets.items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(root)
        self._copy_tokenizer()

    def _copy_tokenizer(self) -> None:
        """Beside the served model, where exporting and sampling look for it."""
        place, folder = self._prepared.job.spec.data.tokenizer_place, self._prepared.folder
        if place is not None:
            folder.sync.mkdir(exist_ok=True)
            found = folder.data / place.name / place.path
            shutil.copyfile(found, folder.sync / "tokenizer.json")

    async def _try_to_save(self) -> None:
        """Save; a disk that is full now stops no training, and may not be full next time."""
        try:
            await self._save()
        except OSError as error:
            if not self._is_unsaved:
                folder = self._prepared.folder.root
                logger.warning("progress of the run not saved: %s: %s", folder, error.strerror)
            self._is_unsaved, self._saved_at = True, time.monotonic()
        else:
            self._is_unsaved = False

    async def _save(self) -> None:
        """Write what a resumed run needs."""
        folder = self._prepared.folder
        progress = Progress(
            finished=self._finished,
            elapsed=self._elapsed.total_seconds(),
            pending=(*self._acts, *self._pending),
            absent=self._absent,
            preempted=self._preempted,
            datasets=self._prepared.progress.datasets,
        )
        await asyncio.to_thread(write_snapshot, self._api.snapshot(), folder.cluster)
        progress.save(folder.progress)
        self._saved_at = time.monotonic()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until `event`, but no longer than `seconds`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
