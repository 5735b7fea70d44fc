"""Imports packages that only some jobs need."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from spes_trainer.errors import config_error


def import_extra(module: str, *, extra: str, source: Path, field: str) -> ModuleType:
    """Return a module that an optional extra of the distribution brings.

    Args:
        module: Its full name.
        extra: Of the distribution `spes`.
        source: The file that cannot be used without it.
        field: Path of the field in the SpesJob that asks for the file.

    Raises:
        ConfigError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise config_error(
            source,
            field,
            got=f"no package {package} here",
            expected=f"readable with {package}",
            hint=f"install spes[{extra}]",
        ) from error
