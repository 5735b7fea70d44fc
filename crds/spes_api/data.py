"""What a SpesJob learns from: sources, tokenizer, how text is cut. Part of `SpesJobSpec`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from spes_api.schema_base import ApiModel, Cel, Name, cel_rules


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise ValueError(f"must stay inside the dataset (got {path!r:.60})")
    return path


InnerPath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_inside)]
_PATH_STAYS_INSIDE = Cel(
    "!has(self.path) || !(self.path.startsWith('/')"
    " || self.path.split('/').exists(part, part == '..'))",
    "path must stay inside the dataset",
)


class DatasetPath(ApiModel):
    """A place in a dataset that members declare and mount read-only."""

    model_config = cel_rules(_PATH_STAYS_INSIDE)

    name: Name
    """As the members declare it."""
    path: InnerPath = "."
    """Folder or file inside the dataset; relative, without `..`."""


class DatasetSource(DatasetPath):
    """Documents of a dataset: text files, JSON lines, parquet or token files, one kind a source."""

    text_field: Annotated[str, StringConstraints(min_length=1, max_length=128)] = "text"
    """Where a JSON line or a parquet row has its text."""


class Source(ApiModel):
    """Where documents come from: exactly one of builtin and dataset, and how much of it."""

    model_config = cel_rules(
        Cel(
            "[has(self.builtin), has(self.dataset)].filter(x, x).size() == 1",
            "must set exactly one of builtin, dataset",
        )
    )

    builtin: Literal["python-stdlib"] | None = None
    """Text that every machine has: the sources of Python's standard library."""
    dataset: DatasetSource | None = None
    """A dataset that members have."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Share of the training sequences that are drawn from here, relative to the other sources'
    weights. A small source is passed over more often than a large one of the same weight."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.builtin is None) == (self.dataset is None):
            got = "none" if self.builtin is None else "both"
            raise ValueError(f"must set exactly one of builtin, dataset (got {got})")
        return self


class TokenizerSpec(ApiModel):
    """How text becomes token ids; exactly one of name and path."""

    model_config = cel_rules(
        Cel(
            "[has(self.name), has(self.path)].filter(x, x).size() == 1",
            "must set exactly one of name, path",
        ),
        Cel("!has(self.endOfText) || has(self.path)", "endOfText needs path"),
        _PATH_STAYS_INSIDE,
    )

    name: Literal["bytes"] | None = None
    """`bytes`: the token id is the byte's value; any file is accepted."""
    path: InnerPath | None = None
    """A Hugging Face tokenizer.json, in the first dataset of the sources."""
    end_of_text: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """The token that stands behind every document. Absent: `<|endoftext|>`."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.name is None) == (self.path is None):
            got = "none" if self.name is None else "both"
            raise ValueError(f"must set exactly one of name, path (got {got})")
        if self.end_of_text is not None and self.path is None:
            raise ValueError("endOfText needs path: the tokenizer bytes separates with byte 0")
        return self

    @property
    def end_token(self) -> str:
        """Text of the token behind every document, the default resolved."""
        return self.end_of_text or "<|endoftext|>"


class DataSpec(ApiModel):
    """What is read, how it is cut, who reads which part."""

    model_config = cel_rules(
        Cel(
            "!has(self.tokenizer) || !has(self.tokenizer.path)"
            " || self.sources.exists(source, has(source.dataset))",
            "tokenizer.path needs a dataset among the sources",
        )
    )

    sources: Annotated[list[Source], Field(min_length=1, max_length=64)]
    """Read in this order."""
    include: Annotated[str, StringConstraints(min_length=1, max_length=128)] = "*"
    """Glob on file names."""
    tokenizer: TokenizerSpec = TokenizerSpec(name="bytes")
    """Immutable."""
    sequence_tokens: Annotated[int, Field(ge=8, le=1_048_576)] = 2048
    """Length of a training sequence. Documents are packed into it one behind another. Immutable."""
    document_mask: bool = False
    """Whether attention ends at the borders of the documents in a sequence."""
    split: Literal["Disjoint", "Overlap", "Local"] = "Disjoint"
    """Disjoint: no sequence is trained twice in a pass. Overlap: each peer reads all, in an order
    of its own. Local: each member reads its own data."""
    held_out_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of documents kept for evaluation, by hash of the relative path (and row)."""

    @model_validator(mode="after")
    def _tokenizer_has_a_place(self) -> Self:
        if self.tokenizer.path is not None and self.tokenizer_place is None:
            raise ValueError("tokenizer.path needs a dataset among the sources (got none)")
        return self

    @property
    def tokenizer_place(self) -> DatasetPath | None:
        """Where the tokenizer's file is: in the first dataset; None if it needs no file."""
        first = next((source.dataset for source in self.sources if source.dataset), None)
        if self.tokenizer.path is None or first is None:
            return None
        return DatasetPath(name=first.name, path=self.tokenizer.path)
