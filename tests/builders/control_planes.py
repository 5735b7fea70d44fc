"""Control planes by name, started when first asked for and stopped together."""

from pathlib import Path
from types import TracebackType
from typing import Self

from builders.control_plane import ControlPlane


class ControlPlanes:
    """All of one session."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        """None yet; each gets a folder of its own in `folder`."""
        self._binaries = binaries
        self._folder = folder
        self._running: dict[str, ControlPlane] = {}

    def __call__(self, *names: str) -> list[ControlPlane]:
        """Those of these names; the ones that are missing are started side by side."""
        new = {}
        for name in names:
            if name not in self._running:
                folder = self._folder / name
                folder.mkdir()
                new[name] = self._running[name] = ControlPlane(self._binaries, folder)
        for plane in new.values():
            plane.wait()
        return [self._running[name] for name in names]

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        """Stop every one."""
        for plane in self._running.values():
            plane.stop()
