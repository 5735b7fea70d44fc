"""All that can be wrong with a run before it starts, each as one sentence.

Pure but for `data_problems` and `num_source_bytes`, which look at files, not into them. Called by
`prepare`; nothing has been started or written yet.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spes_api.job import DatasetPath, SpesJob
from spes_api.members import MemberEntry, MembersFile

from spes_operator.local.events import SYNC_SERVER, Event, Verb, absent_at_start, check_members
from spes_operator.names import PeerId
from spes_operator.placement.capacity import CANNOT_JOIN
from spes_operator.placement.slots import Room, slot_capacity, too_small


def membership_problems(job: SpesJob, members: MembersFile, events: Sequence[Event]) -> list[str]:
    """Events of unknown members, and too few members to begin with."""
    names = [member.name for member in members.members]
    problems = check_members(events, names)
    if SYNC_SERVER in names:
        problems.append(
            f"members: no member may be called {SYNC_SERVER}; events mean the sync server by it"
        )
    peers = [peer for member in starters(job, members, events) for peer, _ in member.peers]
    if len(peers) < job.spec.members.min:
        problems.append(
            f"spec.members.min must be at most the peers that are there at the start (got "
            f"{job.spec.members.min}, there are {len(peers)}: {', '.join(peers) or 'none'}); "
            "add members, loosen spec.members.selector, or let one join '@ N s'"
        )
    return problems


def room_problems(job: SpesJob, members: MembersFile, events: Sequence[Event]) -> list[str]:
    """Experts that the members at the start have no memory for, with the numbers."""
    num_experts = job.spec.model.resolve().num_experts
    slots = sorted(
        (peer, slot) for member in starters(job, members, events) for peer, slot in member.peers
    )
    rooms = {
        PeerId(peer): Room(slot.memory_bytes, slot.activation_bytes)
        for peer, slot in slots[: job.spec.members.max]
    }
    if small := too_small(job.spec, rooms):
        return [small]
    room = {peer: slot_capacity(job.spec, **slot._asdict()) for peer, slot in rooms.items()}
    total = sum(max(0, experts) for experts in room.values())
    if total >= num_experts or not room:
        return []
    listed = ", ".join(f"{peer} {_say(experts)}" for peer, experts in room.items())
    return [
        f"{num_experts} experts need an owner, the peers at the start have room for {total}: "
        f"{listed}; give slots more memory or add members"
    ]


def _say(experts: int) -> str:
    if experts == CANNOT_JOIN:
        return "none (its memory does not hold the shared parameters)"
    return str(experts)


def starters(
    job: SpesJob, members: MembersFile, events: Sequence[Event]
) -> tuple[MemberEntry, ...]:
    """The members that the job takes and that are there for its first round."""
    late = absent_at_start(events) - {
        event.target for event in events if event.verb is Verb.JOINS and event.when.unit == "second"
    }
    wanted = job.spec.members.selector.items()
    return tuple(
        member
        for member in members.members
        if wanted <= member.labels.items() and member.name not in late
    )


def data_problems(job: SpesJob, datasets: Mapping[str, Path]) -> list[str]:
    """Sources that are not given, not there, or hold nothing to train on."""
    problems = [
        f"--dataset {name}: the job reads no such dataset (it reads "
        f"{', '.join(job.spec.datasets) or 'none'})"
        for name in sorted(datasets.keys() - set(job.spec.datasets))
    ]
    for field, place in _single_places(job):
        if place.name not in datasets:
            problems.append(
                f"{field}: dataset {place.name!r} is not given; add --dataset {place.name}=PATH"
            )
        elif not (datasets[place.name] / place.path).exists():
            path = datasets[place.name] / place.path
            problems.append(f"{field}: {path} does not exist; check the path")
    for index, source in enumerate(job.spec.data.sources):
        if source.dataset is None:
            continue
        field, root = f"spec.data.sources[{index}].dataset", datasets.get(source.dataset.name)
        if root is None:
            problems.append(
                f"{field}: dataset {source.dataset.name!r} is not given; add "
                f"--dataset {source.dataset.name}=PATH"
            )
            continue
        path = root / source.dataset.path
        if not path.exists():
            problems.append(f"{field}: {path} does not exist; check the path")
        elif not any(_sizes(path, job.spec.data.include)):
            problems.append(
                f"{field}: nothing to train on in {path} (expected files that match "
                f"{job.spec.data.include!r} and are not empty); check spec.data.include"
            )
    return problems


def _single_places(job: SpesJob) -> Iterator[tuple[str, DatasetPath]]:
    """What a job reads beside its sources, by the path of its field."""
    if job.spec.model.upcycle_from is not None:
        yield "spec.model.upcycleFrom.dataset", job.spec.model.upcycle_from.dataset
    if job.spec.data.tokenizer_place is not None:
        yield "spec.data.tokenizer", job.spec.data.tokenizer_place


def num_source_bytes(job: SpesJob, datasets: Mapping[str, Path]) -> int:
    """Size of all files that a trainer would read of datasets that are there."""
    return sum(
        size
        for source in job.spec.data.sources
        if source.dataset is not None
        for size in _sizes(
            datasets[source.dataset.name] / source.dataset.path, job.spec.data.include
        )
    )


def _sizes(path: Path, include: str) -> Iterator[int]:
    """Of each file that a trainer would read."""
    if path.is_file():
        yield path.stat().st_size
        return
    for folder, _, files in os.walk(path):
        for name in files:
            found = Path(folder, name)
            if fnmatch.fnmatchcase(name, include) and found.is_file():
                yield found.stat().st_size
