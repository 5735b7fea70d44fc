"""How text becomes token ids: bytes, or a Hugging Face tokenizer.json."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from spes_api.job import TokenizerSpec

from spes_trainer.data.token_file import Tokens
from spes_trainer.errors import ConfigError, config_error
from spes_trainer.extras import import_extra

# Copy of the tokenizer in the directory of a trainer or sync server.
TOKENIZER_FILE = "tokenizer.json"
# Larger than any published tokenizer.
MAX_TOKENIZER_BYTES = 256 << 20
_FIELD = "data.tokenizer.path"


class NotTextError(Exception):
    """One of the texts to encode is not UTF-8."""

    def __init__(self, index: int, reason: str) -> None:
        """Say which one and why."""
        super().__init__(reason)
        self.index = index


class Tokenizer(Protocol):
    """What the data path needs from a tokenizer."""

    @property
    def vocabulary(self) -> int:
        """Every id is below this."""

    @property
    def end_of_text(self) -> int:
        """Stands behind every document. Text never becomes it, whatever it spells."""

    @property
    def identity(self) -> str:
        """Equal for tokenizers that give the same ids."""

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """The ids of each text.

        Raises:
            NotTextError: one of them cannot be read as text.
        """

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some ids; what is no text becomes the replacement character."""


class ByteTokenizer:
    """A token id is the byte's value; byte 0 stands behind documents."""

    vocabulary = 256
    end_of_text = 0
    identity = "bytes"

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Views; nothing is copied."""
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """Ids that are no bytes are dropped: a model may have more than it needs."""
        text = bytes(token for token in tokens if token < self.vocabulary)
        return text.decode("utf-8", errors="replace")


class JsonTokenizer:
    """The `tokenizers` package, its truncation, padding and special tokens switched off."""

    def __init__(self, content: bytes, spec: TokenizerSpec, *, source: Path) -> None:
        """Read the content of a tokenizer.json.

        Raises:
            ConfigError: `tokenizers` is missing, cannot read it, or there is no end-of-text token.
        """
        package = import_extra("tokenizers", extra="trainer", source=source, field=_FIELD)
        try:
            self._tokenizer: Any = package.Tokenizer.from_buffer(content)
        except ValueError as error:
            raise _unusable(source, str(error), "a tokenizer.json") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Text that spells <|endoftext|> must not end a document.
        self._tokenizer.encode_special_tokens = True
        special = {t.content: i for i, t in self._tokenizer.get_added_tokens_decoder().items()}
        if spec.end_token not in special:
            got = ", ".join(sorted(special)[:8]) or "no special token"
            expected = f"a tokenizer with the special token {spec.end_token!r}"
            raise _unusable(source, got, expected, hint="set data.tokenizer.endOfText to one of it")
        self.end_of_text: int = special[spec.end_token]
        self.vocabulary: int = 1 + max(self._tokenizer.get_vocab().values())
        self.identity = hashlib.sha256(spec.end_token.encode() + b"\0" + content).hexdigest()

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Encode all of them at once, on as many threads as the package likes."""
        decoded = []
        for index, text in enumerate(texts):
            try:
                decoded.append(text.decode())
            except UnicodeDecodeError as error:
                raise NotTextError(index, f"{error.reason} at byte {error.start}") from error
        found = self._tokenizer.encode_batch_fast(decoded, add_special_tokens=False)
        return [np.array(one.ids, dtype=np.uint32) for one in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """Special tokens are left out."""
        known = [token for token in tokens if token < self.vocabulary]
        text: str = self._tokenizer.decode(known, skip_special_tokens=True)
        return text


def open_tokenizer(spec: TokenizerSpec, path: Path | None) -> Tokenizer:
    """The tokenizer of a job.

    Args:
        spec: As the job gives it.
        path: Where its file is; None for one that needs no file.

    Raises:
        ConfigError: the file is missing or cannot be used.
    """
    if path is None:
        return ByteTokenizer()
    return JsonTokenizer(read_tokenizer(path), spec, source=path)


def read_tokenizer(path: Path) -> bytes:
    """The content of a tokenizer.json.

    Raises:
        ConfigError: it is missing or implausibly large.
    """
    try:
        if (size := path.stat().st_size) > MAX_TOKENIZER_BYTES:
            raise _unusable(path, f"{size:,} bytes", f"at most {MAX_TOKENIZER_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error), "a readable file") from error


def _unusable(
    path: Path, got: str, expected: str, hint: str = "check the path inside the dataset"
) -> ConfigError:
    return config_error(path, _FIELD, got=got, expected=expected, hint=hint)
