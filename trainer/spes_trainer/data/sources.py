"""Finds the files of a job's sources and says of which kind they are. Reads no content.

A file's name is its path relative to its source, with the source's own name in front, so that two
members with the same data name their files alike wherever they are mounted.
"""

from __future__ import annotations

import fnmatch
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spes_api.job import DatasetPath, DataSpec, Source

from spes_trainer.data import token_file
from spes_trainer.errors import ConfigError, config_error

# Folders of the standard library that are tests, third-party, tables, or no readable Python.
_STDLIB_EXCLUDED = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "distutils",
        "encodings",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
    }
)


class Kind(Enum):
    """What a file holds, by the end of its name."""

    TEXT = "text"
    JSON_LINES = "JSON lines"
    PARQUET = "parquet"
    TOKENS = "token"


_KINDS = {
    ".jsonl": Kind.JSON_LINES,
    ".jsonl.gz": Kind.JSON_LINES,
    ".parquet": Kind.PARQUET,
    token_file.SUFFIX: Kind.TOKENS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file under a name that is the same on every member."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """What one source has to read."""

    field: str
    """Path of its field in the SpesJob, for errors."""
    kind: Kind
    files: tuple[DataFile, ...]
    """Sorted by name, at least one."""
    text_field: str
    weight: float


def find_sources(spec: DataSpec, *, data_root: Path) -> tuple[SourceFiles, ...]:
    """Return the files of every source.

    Args:
        spec: Sources and the glob on file names.
        data_root: The folder in which a member mounts its datasets, each by its name.

    Raises:
        ConfigError: a source is missing, unreadable, of several kinds, or has no file that matches.
    """
    tokenizer = tokenizer_path(spec, data_root=data_root)
    return tuple(
        _find(source, f"data.sources[{index}]", _Search(data_root, spec.include, tokenizer))
        for index, source in enumerate(spec.sources)
    )


def tokenizer_path(spec: DataSpec, *, data_root: Path) -> Path | None:
    """Where a tokenizer's file lies; None for one that needs no file."""
    place = spec.tokenizer_place
    return None if place is None else locate(place, field="data.tokenizer", data_root=data_root)


def locate(place: DatasetPath, *, field: str, data_root: Path) -> Path:
    """Where a place in a dataset lies.

    Raises:
        ConfigError: it is not there, or a link leads out of the dataset.
    """
    root = data_root / place.name
    path = root / place.path
    if not path.exists():
        offered = sorted(p.name for p in data_root.iterdir()) if data_root.is_dir() else []
        raise config_error(
            path,
            field,
            got=f"no such path; {data_root} holds {', '.join(offered) or 'nothing'}",
            expected="an existing file or folder",
            hint=f"mount the dataset at {root} or choose another --data-root",
        )
    if not path.resolve().is_relative_to(root.resolve()):
        raise config_error(
            path,
            f"{field}.path",
            got=place.path,
            expected=f"a path inside {root}",
            hint="links must not lead outside",
        )
    return path


@dataclass(frozen=True, slots=True)
class _Search:
    """What all sources of a job have in common."""

    data_root: Path
    include: str
    tokenizer: Path | None


def _find(source: Source, field: str, search: _Search) -> SourceFiles:
    if source.dataset is None:
        text_field, name = "", "python-stdlib"
        path = Path(sysconfig.get_path("stdlib"))
    else:
        field = f"{field}.dataset"
        text_field, dataset = source.dataset.text_field, source.dataset
        name = dataset.name if dataset.path == "." else f"{dataset.name}/{dataset.path}"
        path = locate(dataset, field=field, data_root=search.data_root)
    excluded = _STDLIB_EXCLUDED if source.dataset is None else frozenset()
    files = [
        DataFile(name=f"{name}/{_readable(found.relative_to(path))}", path=found)
        for found in _walk(path, excluded, field)
        if fnmatch.fnmatchcase(found.name, search.include) and found != search.tokenizer
    ]
    if path.is_file():
        files = [DataFile(name=name, path=path)]
    files = sorted(_without_descriptions(files), key=lambda file: file.name)
    return SourceFiles(
        field=field,
        kind=_kind_of(path, files, field, search.include),
        files=tuple(files),
        text_field=text_field,
        weight=source.weight,
    )


def _readable(path: Path) -> str:
    """The path as text, whatever bytes it is made of."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def _without_descriptions(files: list[DataFile]) -> Iterator[DataFile]:
    """Leave out what describes another of the files."""
    names = (file.path for file in files if file.path.name.endswith(token_file.SUFFIX))
    described = {token_file.description_path(path) for path in names}
    return (file for file in files if file.path not in described)


def _kind_of(path: Path, files: list[DataFile], field: str, include: str) -> Kind:
    kinds = Counter(kind_of(file.path.name) for file in files)
    if not kinds:
        raise config_error(
            path,
            field,
            got="none",
            expected=f"a folder with files that match {include!r}",
            hint="check data.include and the path",
        )
    if len(kinds) > 1:
        raise config_error(
            path,
            field,
            got=" and ".join(f"{num} {kind.value}" for kind, num in kinds.most_common()),
            expected="files of one kind",
            hint="narrow data.include or make it several sources",
        )
    return next(iter(kinds))


def kind_of(name: str) -> Kind:
    """The kind of a file of that name; text if nothing else."""
    return next((kind for end, kind in _KINDS.items() if name.endswith(end)), Kind.TEXT)


def _walk(root: Path, excluded: frozenset[str], field: str) -> Iterator[Path]:
    """Regular files below a folder; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise unreadable(Path(error.filename), field, error) from error

    for folder, subfolders, files in os.walk(root, onerror=refuse if root.is_dir() else None):
        subfolders[:] = [name for name in subfolders if name not in excluded]
        for name in files:
            path = Path(folder, name)
            if path.is_file():
                yield path


def unreadable(path: Path, field: str, error: OSError) -> ConfigError:
    """The file cannot be read for a reason that the operating system gives."""
    return config_error(
        path,
        field,
        got=error.strerror or str(error),
        expected="readable",
        hint="change its permissions or narrow data.include",
    )
