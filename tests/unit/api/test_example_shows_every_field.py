"""`examples/moe-tiny.yaml` promises to show every field of a SpesJob."""

from __future__ import annotations

import re
from pathlib import Path

from spes_api.job import SpesJobSpec

TINY = (Path(__file__).parents[3] / "examples/moe-tiny.yaml").read_text()


def test_every_field_is_shown_or_named_in_a_comment():
    """But those of `model.config`, in whose place it has a preset."""
    schema = SpesJobSpec.model_json_schema(by_alias=True)
    shapes = schema["$defs"] | {"SpesJobSpec": schema}
    names = {
        name
        for shape, described in shapes.items()
        if shape != "ModelConfig"
        for name in described.get("properties", ())
    }
    assert not [name for name in sorted(names) if not re.search(rf"\b{name}\b", TINY)]
