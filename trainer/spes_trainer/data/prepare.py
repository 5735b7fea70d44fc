"""Makes a source ready to train on: tokenized once into files that are mapped, not loaded.

    DIRECTORY/KEY/               KEY depends on what the result depends on
        train.bin held-out.bin   token files; of token files only `ranges.npy`, they stay in place
        counts.npy               occurrences of each id in the held-out part
        prepared.json            fingerprint of the content

Documents pass through in a stream, so neither the text nor its tokens need fit into memory. A
folder appears by a rename when it is complete. Files are recognised by name, size and time of last
change, as build tools do: reading a large dataset to find out that it is the same takes as long as
reading it for good.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from spes_sync.disk import Disk, reports_full

from spes_trainer.data.documents import read_documents
from spes_trainer.data.encode import encode_documents
from spes_trainer.data.scan import scan_token_files
from spes_trainer.data.sources import Kind, SourceFiles
from spes_trainer.data.split import held_out, is_held_out
from spes_trainer.data.token_file import TokenFileWriter, Tokens, narrowest, open_token_file
from spes_trainer.data.token_stream import Ranges, count_tokens
from spes_trainer.data.tokenizer import Tokenizer
from spes_trainer.errors import ConfigError

logger = logging.getLogger(__name__)

_TRAIN, _HELD_OUT, _RANGES = "train.bin", "held-out.bin", "ranges.npy"
_COUNTS, _PREPARED = "counts.npy", "prepared.json"
# Names of prepared folders, and of those that were never finished.
_OURS = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]+\.partial")
# Raised when the same inputs give other files than before.
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What all sources of a job are prepared with."""

    tokenizer: Tokenizer
    held_out_fraction: float
    directory: Path
    disk: Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSource:
    """Where the tokens of both sides are."""

    files: tuple[Tokens, ...]
    train: Ranges
    held_out: Ranges
    held_out_counts: NDArray[np.int64]
    fingerprint: str
    """Hash of both sides."""


def prepare(source: SourceFiles, preparation: Preparation) -> PreparedSource:
    """Return a source's tokens; prepare them unless that was done before.

    Raises:
        ConfigError: a file is unreadable, not what its name says, or of another tokenizer.
        DiskFullError: there is no room for the tokens.
    """
    folder = preparation.directory / key_of(source, preparation)
    if folder.exists():
        try:
            return _load(folder, source)
        except (OSError, ValueError, KeyError, ConfigError) as error:
            logger.warning("prepared data are damaged, preparing again: %s", error)
    partial = folder.with_name(f".{folder.name}.partial")
    for leftover in (partial, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    with reports_full(partial, 0):
        partial.mkdir(parents=True)
    try:
        _build(source, preparation, partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    preparation.disk.sync_directory(folder.parent)
    return _load(folder, source)


def remove_others(sources: tuple[SourceFiles, ...], preparation: Preparation) -> None:
    """Remove what was prepared for other sources or by another tokenizer, and nothing else."""
    kept = {key_of(source, preparation) for source in sources}
    for folder in preparation.directory.iterdir():
        if _OURS.fullmatch(folder.name) and folder.name not in kept:
            shutil.rmtree(folder)


def key_of(source: SourceFiles, preparation: Preparation) -> str:
    """Hash of everything that the prepared files depend on."""
    stats = [(file.name, file.path.stat()) for file in source.files]
    inputs = {
        "format": _FORMAT,
        "kind": source.kind.value,
        "files": [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats],
        "textField": source.text_field,
        "heldOutFraction": preparation.held_out_fraction,
        "tokenizer": preparation.tokenizer.identity,
    }
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:32]


def _load(folder: Path, source: SourceFiles) -> PreparedSource:
    if source.kind is Kind.TOKENS:
        paths = [file.path for file in source.files]
        rows = np.load(folder / _RANGES, allow_pickle=False)
        train, kept_out = rows[rows[:, 3] == 0, :3], rows[rows[:, 3] == 1, :3]
    else:
        paths = [folder / _TRAIN, folder / _HELD_OUT]
    files = tuple(open_token_file(path, field=source.field)[0] for path in paths)
    if source.kind is not Kind.TOKENS:
        train, kept_out = (
            np.array([(index, 0, len(file))], dtype=np.int64) for index, file in enumerate(files)
        )
    return PreparedSource(
        files=files,
        train=train,
        held_out=kept_out,
        held_out_counts=np.load(folder / _COUNTS, allow_pickle=False),
        fingerprint=json.loads((folder / _PREPARED).read_bytes())["fingerprint"],
    )


def _build(source: SourceFiles, preparation: Preparation, folder: Path) -> None:
    tokenizer, disk = preparation.tokenizer, preparation.disk
    if source.kind is Kind.TOKENS:
        files, rows, fingerprint = scan_token_files(
            source, tokenizer, held_out_fraction=preparation.held_out_fraction
        )
        kept_out = rows[rows[:, 3] == 1, :3]
        with reports_full(folder / _RANGES, rows.nbytes):
            np.save(folder / _RANGES, rows)
    else:
        fingerprint = _tokenize(source, preparation, folder)
        files = (open_token_file(folder / _HELD_OUT, field=source.field)[0],)
        kept_out = np.array([(0, 0, len(files[0]))], dtype=np.int64)
    counts = count_tokens(files, kept_out, vocabulary=tokenizer.vocabulary)
    with reports_full(folder / _COUNTS, counts.nbytes):
        np.save(folder / _COUNTS, counts)
    disk.write_json(folder / _PREPARED, {"fingerprint": fingerprint}, "data prepared")


def _tokenize(source: SourceFiles, preparation: Preparation, folder: Path) -> str:
    """Write both sides; return the fingerprint."""
    tokenizer, disk = preparation.tokenizer, preparation.disk
    dtype, end = narrowest(tokenizer.vocabulary), tokenizer.end_of_text
    goes_out = _chooser(source, preparation.held_out_fraction)
    with (
        TokenFileWriter(folder / _TRAIN, dtype=dtype, end_of_document=end, disk=disk) as train,
        TokenFileWriter(folder / _HELD_OUT, dtype=dtype, end_of_document=end, disk=disk) as kept,
    ):
        for name, tokens in encode_documents(read_documents(source), tokenizer, field=source.field):
            (kept if goes_out(name) else train).write(tokens)
        digests = f"{train.close()} {kept.close()}"
    return hashlib.sha256(digests.encode()).hexdigest()


def _chooser(source: SourceFiles, fraction: float) -> Callable[[str], bool]:
    """Says of a document's name whether it is held out. Only text files are known beforehand."""
    if source.kind is Kind.TEXT:
        return held_out([file.name for file in source.files], fraction).__contains__
    return lambda name: is_held_out(name, fraction)
