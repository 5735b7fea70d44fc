"""The tokenizer of an export: the job's own file unchanged, or the byte tokenizer spelt out. Pure.

The byte tokenizer, where a token's id is its byte's value, is byte-level BPE without a single
merge: `tokenizers` first turns every byte into one printable character (GPT-2's table), and the
vocabulary maps that character back to the byte. There are no special tokens and no normalisation,
so every text comes back as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from spes_sync.errors import ExportError

NUM_BYTES = 256
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

# Bytes that stand for themselves in GPT-2's table: printable Latin-1 without space and soft hyphen.
_PRINTABLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTokenizer:
    """What an export says of its tokenizer."""

    files: Mapping[str, bytes]
    end_id: int | None
    """The token that ends a text, if there is one."""


def byte_characters() -> tuple[str, ...]:
    """The character that stands for each byte, by byte value; the rest follow from U+0100 on."""
    replacement = count(0x100)
    return tuple(
        chr(byte) if byte in _PRINTABLE else chr(next(replacement)) for byte in range(NUM_BYTES)
    )


def byte_tokenizer(*, vocabulary: int) -> ExportedTokenizer:
    """The tokenizer `bytes` as AutoTokenizer reads it.

    Raises:
        ExportError: the model has fewer embeddings than the tokenizer has tokens.
    """
    _require_room(NUM_BYTES, vocabulary)
    files = {TOKENIZER: _dumped(_byte_level_bpe()), TOKENIZER_CONFIG: _dumped(_settings())}
    return ExportedTokenizer(files=files, end_id=None)


def given_tokenizer(content: bytes, *, end_token: str, vocabulary: int) -> ExportedTokenizer:
    """A tokenizer.json as it is.

    Args:
        content: Of the file.
        end_token: The special token behind every document.
        vocabulary: Embeddings of the model.

    Raises:
        ExportError: it is no tokenizer, has no such token, or more tokens than the model.
    """
    try:
        ids, added = _ids_of(json.loads(content))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ExportError(f"the tokenizer is not a readable {TOKENIZER}: {error}") from error
    if end_token not in added:
        raise ExportError(
            f"the tokenizer has no special token {end_token!r} (got "
            f"{', '.join(sorted(added)[:8]) or 'none'}); it is not the one of the job"
        )
    _require_room(1 + max(ids), vocabulary)
    files = {TOKENIZER: content, TOKENIZER_CONFIG: _dumped(_settings() | {"eos_token": end_token})}
    return ExportedTokenizer(files=files, end_id=added[end_token])


def _ids_of(tokenizer: Mapping[str, Any]) -> tuple[list[int], dict[str, int]]:
    """All ids, and those of the added tokens by their text."""
    added = {str(token["content"]): int(token["id"]) for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]  # of Unigram models a list, else a mapping
    listed = range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
    return [*map(int, listed), *added.values()], added


def _require_room(num_tokens: int, vocabulary: int) -> None:
    if vocabulary < num_tokens:
        raise ExportError(
            f"vocabulary must be at least {num_tokens} for the tokenizer (got {vocabulary})"
        )


def _dumped(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _byte_level_bpe() -> dict[str, object]:
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(byte_characters())},
            "merges": [],
        },
    }


def _settings() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # True would drop spaces before punctuation when decoding.
        "clean_up_tokenization_spaces": False,
        # Releases before 5 otherwise add token_type_ids, which neither model takes.
        "model_input_names": ["input_ids", "attention_mask"],
    }
