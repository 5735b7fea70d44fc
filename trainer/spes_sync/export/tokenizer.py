"""The byte tokenizer as a Hugging Face `tokenizer.json`: a token's id is its byte's value. Pure.

It is byte-level BPE without a single merge: `tokenizers` first turns every byte into one printable
character (GPT-2's table), and the vocabulary maps that character back to the byte. There are no
special tokens and no normalisation, so every text comes back as it was.
"""

from __future__ import annotations

from itertools import count

from spes_api.job import TokenizerSpec

from spes_sync.errors import ExportError

NUM_BYTES = 256

# Bytes that stand for themselves in GPT-2's table: printable Latin-1 without space and soft hyphen.
_PRINTABLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))


def byte_characters() -> tuple[str, ...]:
    """The character that stands for each byte, by byte value; the rest follow from U+0100 on."""
    replacement = count(0x100)
    return tuple(
        chr(byte) if byte in _PRINTABLE else chr(next(replacement)) for byte in range(NUM_BYTES)
    )


def tokenizer_files(tokenizer: TokenizerSpec, *, vocabulary: int) -> dict[str, dict[str, object]]:
    """File names and JSON contents that make AutoTokenizer read text as the job's trainers did.

    Raises:
        ExportError: the model has fewer embeddings than the tokenizer has tokens.
    """
    if vocabulary < NUM_BYTES:
        raise ExportError(
            f"vocabulary must be at least {NUM_BYTES} for the tokenizer {tokenizer.name!r} "
            f"(got {vocabulary})"
        )
    return {"tokenizer.json": _byte_tokenizer(), "tokenizer_config.json": _settings()}


def _byte_tokenizer() -> dict[str, object]:
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
