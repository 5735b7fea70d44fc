"""What API servers hold of hubs of former releases: tests/golden/stored, a file a release."""

from pathlib import Path
from typing import Any

import pytest
import yaml

_FOLDER = Path(__file__).parents[1] / "golden/stored"


def stored_objects(*kinds: str) -> list[Any]:
    """Parameters of a test: every object of the kinds, of every release."""
    return [
        pytest.param(obj, id=f"{path.stem}-{obj['kind']}-{obj['metadata']['name']}")
        for path in sorted(_FOLDER.glob("*.yaml"))
        for obj in yaml.safe_load_all(path.read_text())
        if obj["kind"] in kinds
    ]
