"""From the options of `spes run` to a locked RUN_DIR that holds everything a run needs.

Checks all of it first: as long as something is wrong, nothing is written and nothing is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spes_api.job import DatasetSource, Source, SpesJob
from spes_api.loading import load_job, load_members
from spes_api.members import MembersFile

from spes_operator.errors import ConfigError
from spes_operator.local.events import Event, absent_at_start, parse_event
from spes_operator.local.preflight import data_problems, membership_problems, room_problems
from spes_operator.local.rundir import RunDir, RunLock, damaged_files, write_model
from spes_operator.local.saved import Progress, draft_of

# The institutions of a run that names none; the same as examples/members.yaml.
DEFAULT_MEMBERS = Path(__file__).with_name("members.yaml")
# The dataset that --data PATH stands for.
_DATA_OPTION = "data"

# Says what is wrong with what a job's datasets hold.
Look = Callable[[SpesJob, Mapping[str, Path]], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for. Exactly one of `job` and `resume`."""

    job: Path | None = None
    members: Path | None = None
    events: tuple[str, ...] = ()
    data: Path | None = None
    """Train on all files below it instead of the job's sources."""
    datasets: Mapping[str, Path] = field(default_factory=dict)
    output: Path | None = None
    """None: runs/NAME of the job."""
    resume: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that can start."""

    job: SpesJob
    members: MembersFile
    progress: Progress
    folder: RunDir
    lock: RunLock
    resumed: bool = False
    notices: tuple[str, ...] = ()
    """What the user should be told, in sentences."""


def prepare(options: Options, look: Look) -> Prepared:
    """Check everything, at last with a look into the data, then make or re-open the folder.

    Raises:
        ConfigError: Something is wrong; one line per problem.
    """
    if (options.job is None) == (options.resume is None):
        raise ConfigError("give either FILE, to start a run, or --resume DIR, to go on with one")
    try:
        return _resume(options, options.resume, look) if options.resume else _start(options, look)
    except OSError as error:  # of a path that the user gave
        raise ConfigError(
            f"{error.filename} cannot be used ({error.strerror}); check the path and your rights"
        ) from error


def _start(options: Options, look: Look) -> Prepared:
    assert options.job is not None  # see prepare
    job = load_job(options.job)
    members = load_members(options.members or DEFAULT_MEMBERS)
    events, problems = _events(options.events)
    datasets = {name: path.absolute() for name, path in options.datasets.items()}
    if options.data is not None:
        job = _train_on(job)
        datasets[_DATA_OPTION] = options.data.absolute()
    problems += membership_problems(job, members, events)
    problems += room_problems(job, members, events)
    problems += _missing(options) or data_problems(job, datasets)
    if problems := problems or look(job, datasets):
        raise ConfigError("\n".join(problems))
    folder = RunDir((options.output or Path("runs") / job.metadata.name).absolute())
    notices = _make_room(folder)
    lock = _open(folder)
    progress = Progress(pending=events, absent=absent_at_start(events), datasets=datasets)
    write_model(folder.job, job)
    write_model(folder.members, members)
    progress.save(folder.progress)
    return Prepared(
        job=job, members=members, progress=progress, folder=folder, lock=lock, notices=notices
    )


def _resume(options: Options, root: Path, look: Look) -> Prepared:
    given = {
        "--members": options.members,
        "--data": options.data,
        "--dataset": options.datasets,
        "--output": options.output,
    }
    if named := [name for name, value in given.items() if value]:
        raise ConfigError(f"{', '.join(named)}: {root} has its own; leave it out with --resume")
    folder = RunDir(root.absolute())
    progress = Progress.load(folder.progress)
    if progress.finished:
        raise ConfigError(f"{root} is finished; see {folder.report}, or start a new run")
    if folder.cluster.exists() and not folder.tls.exists():
        raise ConfigError(
            f"{folder.tls} is missing, and with it the keys that {folder.cluster} was made with; "
            "restore it, or start a new run"
        )
    if any(root.glob("members/*/checkpoints")) and not folder.head.exists():
        raise ConfigError(
            f"{folder.head} is missing, though peers have trained: without it the model would "
            "begin anew; restore it, or start a new run"
        )
    job, members = load_job(folder.job), load_members(folder.members)
    events, problems = _events(options.events)
    problems += membership_problems(job, members, events)
    problems += damaged_files(folder)
    problems += data_problems(job, progress.datasets)
    if problems := problems or look(job, progress.datasets):
        raise ConfigError("\n".join(problems))
    return Prepared(
        job=job,
        members=members,
        progress=replace(progress, pending=(*progress.pending, *events)),
        folder=folder,
        lock=_open(folder),
        resumed=True,
    )


def _events(texts: tuple[str, ...]) -> tuple[tuple[Event, ...], list[str]]:
    events, problems = [], []
    for text in texts:
        try:
            events.append(parse_event(text))
        except ConfigError as error:
            problems.append(str(error))
    return tuple(events), problems


def _missing(options: Options) -> list[str]:
    """Data that are not where the command line says."""
    given = {f"--dataset {name}": path for name, path in options.datasets.items()}
    if options.data is not None:
        given["--data"] = options.data
    return [
        f"{option}: {path} does not exist; give a file, or a folder with files to train on"
        for option, path in given.items()
        if not path.exists()
    ]


def _train_on(job: SpesJob) -> SpesJob:
    """The job, reading every file of the dataset that --data stands for."""
    source = Source(dataset=DatasetSource(name=_DATA_OPTION))
    data = job.spec.data.model_copy(update={"sources": [source], "include": "*"})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"data": data})})


def _make_room(folder: RunDir) -> tuple[str, ...]:
    """Keep a finished run under another name; refuse to touch anything else that is in the way."""
    root = folder.root
    if not root.exists() or (root.is_dir() and _holds_nothing(folder)):
        return ()
    if not folder.progress.exists():
        raise ConfigError(f"{root} exists and holds no run; give another --output")
    lock = RunLock.take(folder)
    try:
        if not Progress.load(folder.progress).finished:
            raise ConfigError(
                f"{root} holds a run that is not finished; go on with `spes run --resume {root}`, "
                "remove it, or give another --output"
            )
        number = 1
        while (kept := root.with_name(f"{root.name}.{number}")).exists():
            number += 1
        root.rename(kept)
    finally:
        lock.release()
    return (f"{root} held a finished run; it is now {kept}",)


def _holds_nothing(folder: RunDir) -> bool:
    """Whether it is empty, but for what a start leaves that ended before it had begun."""
    drafts = {"lock", folder.job.name, folder.members.name, draft_of(folder.progress).name}
    return {path.name for path in folder.root.iterdir()} <= drafts


def _open(folder: RunDir) -> RunLock:
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        return RunLock.take(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder.root} cannot be written ({error.strerror}); give another --output"
        ) from error
