"""`python -m spes_api.generate crds`: writes each kind's CustomResourceDefinition to a folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import yaml

from spes_api.definitions import DEFINITIONS, Definition

_HEADER = (
    "# Generated from spes_api by `python -m spes_api.generate crds`; edit the models instead.\n"
)


def render(definition: Definition) -> str:
    """The YAML of one definition, the same on every machine."""
    body = yaml.safe_dump(definition.manifest(), sort_keys=False, width=100, allow_unicode=True)
    return _HEADER + body


def generate(folder: Path) -> None:
    """Write one file a kind, named like its definition."""
    for definition in DEFINITIONS:
        (folder / f"{definition.name}.yaml").write_text(render(definition), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(prog="python -m spes_api.generate", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the YAML files go")
    generate(parser.parse_args(arguments).folder)


if __name__ == "__main__":
    main()
