"""Objects of a real API server for tests that read from top to bottom: blocking calls and waits."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from spes_operator.errors import ConflictError, NotFoundError
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.connection import Connection

# Far above what any single step takes, for a loaded machine.
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_ATTEMPTS = 20


class LiveObjects:
    """One API server, asked as one user."""

    def __init__(self, kubeconfig: Path) -> None:
        """Connect; `close` ends it."""
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(Connection.open(kubeconfig))
        self._api = ClusterApi(self._connection)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """The object; NotFoundError if it is not there."""
        return self._loop.run_until_complete(self._api.get(kind, namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object, or None."""
        try:
            return self.get(kind, namespace, name)
        except NotFoundError:
            return None

    def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> list[JsonObject]:
        """Every object of a kind."""
        return self._loop.run_until_complete(self._api.list(kind, namespace, labels)).items

    def create(self, obj: JsonObject) -> JsonObject:
        """Make it."""
        return self._loop.run_until_complete(self._api.create("test", obj))

    def apply(self, obj: JsonObject) -> JsonObject:
        """Server-side apply."""
        return self._loop.run_until_complete(self._api.apply("test", obj))

    def replace(self, obj: JsonObject) -> JsonObject:
        """Compare-and-swap."""
        return self._loop.run_until_complete(self._api.replace("test", obj))

    def change(
        self, kind: str, namespace: str, name: str, edit: Callable[[JsonObject], object]
    ) -> JsonObject:
        """Edit an object in place, again if somebody else was faster."""
        for _ in range(_ATTEMPTS):
            obj = self.get(kind, namespace, name)
            edit(obj)
            with contextlib.suppress(ConflictError):
                return self.replace(obj)
        raise AssertionError(f"{kind} {namespace}/{name} changes faster than it can be edited")

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Remove it."""
        self._loop.run_until_complete(self._api.delete(kind, namespace, name))

    def wait(
        self,
        kind: str,
        namespace: str,
        name: str,
        holds: Callable[[JsonObject], Any],
        *,
        seconds: float = WAIT_SECONDS,
    ) -> JsonObject:
        """The object, once it is there and `holds`; the failure shows it as it was last."""
        last: JsonObject | None = None

        def check() -> bool:
            nonlocal last
            last = self.find(kind, namespace, name)
            return last is not None and bool(holds(last))

        until(check, lambda: f"{kind} {namespace}/{name}: {last}", seconds=seconds)
        assert last is not None
        return last

    def wait_gone(
        self, kind: str, namespace: str, name: str, *, seconds: float = WAIT_SECONDS
    ) -> None:
        """Wait until there is no such object."""
        until(
            lambda: self.find(kind, namespace, name) is None,
            lambda: f"still there: {self.find(kind, namespace, name)}",
            seconds=seconds,
        )


def until(
    holds: Callable[[], bool],
    told: Callable[[], str] = lambda: "",
    *,
    seconds: float = WAIT_SECONDS,
) -> None:
    """Poll until `holds()`; the failure says what `told()` says then."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s. {told()}"
        time.sleep(_POLL_SECONDS)


def condition(obj: JsonObject, kind: str) -> JsonObject:
    """A condition of the object's status; empty if it has none of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def is_true(obj: JsonObject, kind: str) -> bool:
    """Whether a condition holds."""
    return condition(obj, kind).get("status") == "True"
