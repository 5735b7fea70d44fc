"""KubeApi: the few calls of the Kubernetes API that SPES makes.

Objects are JSON documents here and nowhere else. Implemented in memory (`memory`) for one machine
and for tests, and over an API server (`cluster`); one suite of tests holds both to it. Every
implementation answers with copies: a caller may change what it got.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

# A Kubernetes object as the API server speaks it.
JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change of one object, as it is after it (DELETED: as it was last)."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: JsonObject


class Listing(NamedTuple):
    """Objects, and the version from which a watch continues."""

    items: list[JsonObject]
    resource_version: str


class KubeApi(Protocol):
    """An API server. Namespace "" means cluster-scoped, or all namespaces when listing."""

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """The object.

        Raises:
            NotFoundError: It does not exist.
        """

    async def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str | None] | None = None
    ) -> Listing:
        """Every object of a kind that carries `labels`, in order of namespace and name.

        None as a label's value: any.
        """

    def watch(
        self, kind: str, namespace: str = "", *, from_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Every change after `from_version`; ends only with an error, or when it is closed.

        Raises:
            GoneError: The history since then is no longer kept: list again.
        """

    async def create(self, owner: str, obj: JsonObject) -> JsonObject:
        """Make a new object; answers it with uid, resourceVersion and generation.

        Raises:
            AlreadyExistsError: An object of that name exists.
        """

    async def apply(self, owner: str, obj: JsonObject) -> JsonObject:
        """Make fields what `owner` says, leaving those of others; create the object if need be.

        Fields that the owner applied before and leaves out now are removed. Lists are one field.
        Never touches status.

        Raises:
            ConflictError: Another owner holds a field with another value.
        """

    async def replace(self, owner: str, obj: JsonObject) -> JsonObject:
        """Make the object's body and metadata what `obj` says: a compare-and-swap.

        For objects with one writer, made by `create`: fields that they set cannot be changed by
        `apply`, not even under the same owner. Never touches status.

        Raises:
            ConflictError: The resourceVersion in `obj` is stale, or the object is gone.
        """

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: JsonObject, *, uid: str = ""
    ) -> JsonObject:
        """Replace the object's status.

        Raises:
            ConflictError: Another object than that of `uid` has the name.
            NotFoundError: It does not exist.
        """

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Remove the object; one that is gone is no error.

        Raises:
            ConflictError: Another object than that of `uid` has the name.
        """
