"""A Hugging Face folder as a model of ours, the inverse of `export_model`.

`load_hugging_face` is for continued training, `PublishedModel` for upcycling. A folder comes from
strangers: every size, name and path in it is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spes_api.model import ModelConfig

from spes_sync.codec import Array
from spes_sync.errors import ExportError
from spes_sync.export.layout import Row, check_shapes, tensor_rows
from spes_sync.export.published import from_hugging_face
from spes_sync.export.shards import INDEX, WEIGHTS
from spes_sync.export.weightfile import WeightFile

# An index of a million tensors takes about 100 MB.
MAX_JSON_BYTES = 100_000_000
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A Hugging Face folder in our terms: all but the values is checked; they are read on demand.

    A dense model is one of a single expert in every layer, whose router is zero.
    """

    config: ModelConfig
    settings: Mapping[str, object]
    """All of its `config.json`."""
    _files: Mapping[str, WeightFile]
    _rows: Mapping[str, Row]

    @classmethod
    def open(cls, folder: Path) -> PublishedModel:
        """Check names, shapes and settings.

        Raises:
            ExportError: a folder of another family, a damaged file, or a feature our model lacks.
        """
        settings = read_json(folder / "config.json")
        config, layout, tied = from_hugging_face(settings)
        files = open_weights(folder)
        if tied and _EMBEDDING in files:
            files = {_HEAD: files[_EMBEDDING]} | files
        rows = {row.ours: row for row in tensor_rows(config, layout)}
        check_shapes(
            {name: file.shapes[_name_in(file, name)] for name, file in files.items()},
            {row.theirs: row.their_shape for row in rows.values() if row.theirs is not None},
            str(folder),
        )
        return cls(config=config, settings=settings, _files=files, _rows=rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Our names, in order."""
        return tuple(self._rows)

    def read(self, name: str) -> Array:
        """A tensor by our name, as float32."""
        row = self._rows[name]
        if row.theirs is None:
            return np.zeros(row.shape, np.float32)
        file = self._files[row.theirs]
        value = file.read(_name_in(file, row.theirs))
        return value.T if row.transposed else value


def load_hugging_face(folder: Path) -> tuple[ModelConfig, Iterator[tuple[str, Array]]]:
    """The model's shape, and its tensors one by one as float32 in the order of our names.

    Everything but the values is checked before this returns.

    Raises:
        ExportError: a folder of another family, a damaged file, or a feature our model lacks.
    """
    model = PublishedModel.open(folder)
    return model.config, ((name, model.read(name)) for name in model.names)


def open_weights(folder: Path) -> dict[str, WeightFile]:
    """Which file holds each tensor.

    Raises:
        ExportError: a file is missing, damaged or not where the index says.
    """
    if not (folder / INDEX).exists():
        file = WeightFile.open(folder / WEIGHTS)
        return dict.fromkeys(file.shapes, file)
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, Mapping) or not all(map(_is_file_name, weight_map.values())):
        raise ExportError(f"{folder / INDEX}: weight_map must name files of the same folder")
    opened = {name: WeightFile.open(folder / name) for name in sorted(set(weight_map.values()))}
    for tensor, name in weight_map.items():
        if tensor not in opened[name].shapes:
            raise ExportError(f"{folder / name}: {tensor} is missing although {INDEX} names it")
    return {tensor: opened[name] for tensor, name in weight_map.items()}


def _name_in(file: WeightFile, name: str) -> str:
    """A tied head lies in the file as the embedding."""
    return _EMBEDDING if name == _HEAD and _HEAD not in file.shapes else name


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file of bounded size.

    Raises:
        ExportError: there is none.
    """
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ExportError(f"{path} has {size:,} bytes (at most {MAX_JSON_BYTES:,})")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not a readable JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{path} must hold a JSON object (got {type(content).__name__})")
    return content
