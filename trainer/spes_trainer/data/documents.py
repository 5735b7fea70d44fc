"""Reads the documents of a job's sources. The only part of the data path that touches the disk.

A document's name is its path relative to its source, with the source's own name in front, so that
two members with the same data name their documents alike wherever it is mounted.
"""

from __future__ import annotations

import fnmatch
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spes_api.job import DataSpec, Source

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file's content under a name that is the same on every member."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where one source lies."""

    field: str
    name: str
    path: Path
    excluded: frozenset[str]


def read_documents(spec: DataSpec, *, data_root: Path) -> list[Document]:
    """Return all documents of all sources, sorted by name.

    Args:
        spec: Sources and the glob on file names.
        data_root: The folder in which a member mounts its datasets, each by its name.

    Raises:
        ConfigError: a source is missing, unreadable, or holds nothing that matches.
    """
    documents: dict[str, Document] = {}
    for index, source in enumerate(spec.sources):
        place = _locate(source, f"data.sources[{index}]", data_root)
        found = list(_read_place(place, spec.include))
        if not found:
            raise config_error(
                place.path,
                place.field,
                got="none",
                expected=f"a folder with files that match {spec.include!r}",
                hint="check data.include and the path",
            )
        documents.update((document.name, document) for document in found)
    return [documents[name] for name in sorted(documents)]


def _locate(source: Source, field: str, data_root: Path) -> _Place:
    if source.dataset is None:
        stdlib = Path(sysconfig.get_path("stdlib"))
        return _Place(field=field, name="python-stdlib", path=stdlib, excluded=_STDLIB_EXCLUDED)
    dataset = source.dataset
    root = data_root / dataset.name
    path = root / dataset.path
    if not path.exists():
        offered = sorted(p.name for p in data_root.iterdir()) if data_root.is_dir() else []
        raise config_error(
            path,
            f"{field}.dataset",
            got=f"no such path; {data_root} holds {', '.join(offered) or 'nothing'}",
            expected="an existing file or folder",
            hint=f"mount the dataset at {root} or choose another --data-root",
        )
    if not path.resolve().is_relative_to(root.resolve()):
        raise config_error(
            path,
            f"{field}.dataset.path",
            got=dataset.path,
            expected=f"a path inside {root}",
            hint="links must not lead outside",
        )
    name = dataset.name if dataset.path == "." else f"{dataset.name}/{dataset.path}"
    return _Place(field=f"{field}.dataset", name=name, path=path, excluded=frozenset())


def _read_place(place: _Place, include: str) -> Iterator[Document]:
    if place.path.is_file():
        yield Document(name=place.name, content=_read(place.path, place.field))
        return
    for path in _walk(place):
        if fnmatch.fnmatchcase(path.name, include):
            relative = path.relative_to(place.path).as_posix()
            yield Document(name=f"{place.name}/{relative}", content=_read(path, place.field))


def _walk(place: _Place) -> Iterator[Path]:
    """Regular files below a folder; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise _unreadable(Path(error.filename), place.field, error) from error

    for folder, subfolders, files in os.walk(place.path, onerror=refuse):
        subfolders[:] = [name for name in subfolders if name not in place.excluded]
        for name in files:
            path = Path(folder, name)
            if path.is_file():
                yield path


def _read(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, field, error) from error


def _unreadable(path: Path, field: str, error: OSError) -> ConfigError:
    return config_error(
        path,
        field,
        got=error.strerror or str(error),
        expected="readable",
        hint="change its permissions or narrow data.include",
    )
