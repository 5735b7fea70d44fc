"""From a job's spec to its corpus. Imports no torch, so that a look at the data is quick."""

from __future__ import annotations

import tempfile
from pathlib import Path

from spes_api.job import SpesJobSpec
from spes_sync.disk import Disk

from spes_trainer.data.corpus import Corpus, build_corpus
from spes_trainer.data.prepare import Preparation
from spes_trainer.data.sources import find_sources, tokenizer_path
from spes_trainer.data.tokenizer import TOKENIZER_FILE, Tokenizer, open_tokenizer, read_tokenizer
from spes_trainer.errors import config_error

# Of a trainer's directory: the tokenized sources.
DATA_FOLDER = "data"


def read_corpus(spec: SpesJobSpec, *, data_root: Path, directory: Path, disk: Disk) -> Corpus:
    """Read and cut the data.

    Args:
        spec: Of the job.
        data_root: The folder in which a member mounts its datasets, each by its name.
        directory: The trainer's own, for the tokens and a copy of the tokenizer.
        disk: How files are written.

    Raises:
        ConfigError: it is missing, unreadable, too small, or has more token ids than the model.
        DiskFullError: there is no room for the tokens.
    """
    found = tokenizer_path(spec.data, data_root=data_root)
    tokenizer = open_tokenizer(spec.data.tokenizer, found)
    _require_room(tokenizer, spec)
    sources = find_sources(spec.data, data_root=data_root)
    directory.mkdir(parents=True, exist_ok=True)
    if found is not None:
        disk.write(directory / TOKENIZER_FILE, read_tokenizer(found), "tokenizer copied")
    preparation = Preparation(
        tokenizer=tokenizer,
        held_out_fraction=spec.data.held_out_fraction,
        directory=directory / DATA_FOLDER,
        disk=disk,
    )
    return build_corpus(sources, spec.data, preparation)


def look_at(spec: SpesJobSpec, *, data_root: Path) -> dict[str, object]:
    """Read and cut the data as a trainer would, keep nothing, and say what they are.

    Raises:
        ConfigError: as `read_corpus`.
        DiskFullError: no room for the tokens among temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="spes-data-") as folder:
        corpus = read_corpus(spec, data_root=data_root, directory=Path(folder), disk=Disk())
        return corpus.describe()


def _require_room(tokenizer: Tokenizer, spec: SpesJobSpec) -> None:
    vocabulary = spec.model.resolve().vocabulary
    if vocabulary < tokenizer.vocabulary:
        raise config_error(
            "spec",
            "model.config.vocabulary",
            got=f"{vocabulary:,}",
            expected=f"at least {tokenizer.vocabulary:,}",
            hint=f"the tokenizer {spec.data.tokenizer.path or 'bytes'!r} uses that many token ids",
        )
