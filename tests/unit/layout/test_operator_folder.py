"""The top-level folder `operator/` must never shadow the standard library."""

import operator
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_operator_is_the_standard_library():
    assert Path(operator.__file__).is_relative_to(sysconfig.get_path("stdlib"))


def test_source_folders_hold_no_init_file():
    folders = [ROOT / name for name in ("crds", "operator", "proto", "trainer")]
    assert [folder for folder in folders if (folder / "__init__.py").exists()] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []
