"""What generators of committed files have in common: write what differs, or only name it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(
    program: str,
    description: str | None,
    wanted: Callable[[], Mapping[Path, str]],
    arguments: Sequence[str] | None,
) -> int:
    """Write what differs; with --check name it and answer 1.

    Args:
        program: The generator's path in the repository.
        description: For its --help.
        wanted: Each file and the text that it should have.
        arguments: Of the command line; None: this process's.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    is_check = parser.parse_args(arguments).check
    texts = wanted()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.relative_to(ROOT)} is stale; run {program}")
        else:
            path.write_text(texts[path])
    return 1 if is_check and stale else 0
