"""Stand-ins for programs: small Python scripts on a PATH of their own."""

import sys
from pathlib import Path


def make_program(directory: Path, name: str, source: str) -> dict[str, str]:
    """Put a program `name` that runs `source` on a PATH; the environment that finds it."""
    folder = directory / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable} -I\n{source}")
    program.chmod(0o755)
    return {"PATH": str(folder)}
