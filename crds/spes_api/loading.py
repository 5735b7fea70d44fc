"""Loads what a person wrote: a SpesJob, a members file. The only I/O of this package.

Every error is a `ConfigError` with one line per problem: file, line, field, what must hold, what
was got.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from spes_api.documents import Document, read_document
from spes_api.errors import Problem
from spes_api.job import SpesJob
from spes_api.members import MembersFile
from spes_api.problems import explain_errors

_Model = TypeVar("_Model", bound=BaseModel)


def load_job(path: Path | str) -> SpesJob:
    """The SpesJob in a YAML or JSON file.

    Raises:
        ConfigError: the file cannot be read, is something else, or breaks a rule.
    """
    document = read_document(Path(path))
    if isinstance(document.value, dict) and document.value.get("kind") != "SpesJob":
        if "members" in document.value and "kind" not in document.value:
            raise document.error(
                Problem(text="is a members file (expected a SpesJob); give it with --members")
            )
        text = f"must be SpesJob (got {document.value.get('kind', 'none')!s:.60})"
        raise document.error(Problem(field="kind", text=text, line=document.line_of(("kind",))))
    return _validated(document, SpesJob)


def load_members(path: Path | str) -> MembersFile:
    """The members file of a local run.

    Raises:
        ConfigError: the file cannot be read, is something else, or breaks a rule.
    """
    document = read_document(Path(path))
    if isinstance(document.value, dict) and "kind" in document.value:
        raise document.error(
            Problem(text=f"is a {document.value['kind']!s:.60} (expected a members file)")
        )
    return _validated(document, MembersFile)


def load_file(path: Path | str, model: type[_Model]) -> _Model:
    """A file of another model, such as a program's settings.

    Raises:
        ConfigError: the file cannot be read, is something else, or breaks a rule.
    """
    return _validated(read_document(Path(path)), model)


def _validated(document: Document, model: type[_Model]) -> _Model:
    if not isinstance(document.value, dict):
        got = "a list" if isinstance(document.value, list) else "a single value"
        raise document.error(Problem(text=f"must be a mapping of {model.__name__} (got {got})"))
    try:
        return model.model_validate(document.value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = explain_errors(error.errors(), model=model, document=document)
        raise document.error(*problems) from error
