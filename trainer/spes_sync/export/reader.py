"""A Hugging Face folder as a model of ours: `load_hugging_face`, the inverse of `export_model`.

For upcycling and continued training. A folder comes from strangers: every size, name and path in
it is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spes_api.model import ModelConfig

from spes_sync.codec import Array
from spes_sync.errors import ExportError
from spes_sync.export.layout import check_shapes, tensor_rows
from spes_sync.export.settings import from_hugging_face
from spes_sync.export.shards import INDEX, WEIGHTS
from spes_sync.export.weightfile import WeightFile

# An index of a million tensors takes about 100 MB.
MAX_JSON_BYTES = 100_000_000


def load_hugging_face(folder: Path) -> tuple[ModelConfig, Iterator[tuple[str, Array]]]:
    """The model's shape, and its tensors one by one as float32 in the order of our names.

    Everything but the values is checked before this returns.

    Raises:
        ExportError: no OLMoE or Qwen3-MoE folder, a damaged file, or a feature our model lacks.
    """
    config = from_hugging_face(read_json(folder / "config.json"))
    files = open_weights(folder)
    rows = tensor_rows(config)
    check_shapes(
        {name: file.shapes[name] for name, file in files.items()},
        {row.theirs: row.their_shape for row in rows},
        str(folder),
    )

    def tensors() -> Iterator[tuple[str, Array]]:
        for row in rows:
            value = files[row.theirs].read(row.theirs)
            yield row.ours, value.T if row.transposed else value

    return config, tensors()


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
