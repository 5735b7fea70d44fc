"""ClusterApi: KubeApi over a real API server.

Makes requests of calls and keeps a watch going; what they mean is in `api`, how they travel in
`connection`, where a kind lives in `resources`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

from spes_operator.errors import (
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from spes_operator.k8s.api import JsonObject, Listing, WatchEvent
from spes_operator.k8s.connection import Connection, Request
from spes_operator.k8s.refusals import refusal_of
from spes_operator.k8s.resources import RESOURCES, path_of

# Objects a page of a listing: what a server answers fast, also for large objects.
_PAGE = 500
# A server ends a watch after this long; drawn anew each time, so that watches spread out.
_WATCH_SECONDS = (240, 300)
# A watch that brings nothing, not even a bookmark (about one a minute), is taken for dead.
SILENCE = timedelta(seconds=90)
# Longest pause before a watch that ended is begun again.
PAUSE_SECONDS = 1.0
# A typing error in a field is refused instead of dropped.
_STRICT = {"fieldValidation": "Strict"}
# An API server has no code of its own for a patch whose condition does not hold, only these words;
# an object that breaks its schema gets others.
_FAILED_TEST = "due to an error in our request"


class ClusterApi:
    """The API server behind a connection."""

    def __init__(self, connection: Connection, *, silence: timedelta = SILENCE) -> None:
        """`silence`: how long a watch may bring nothing before it is begun again."""
        self._connection = connection
        self._silence = silence

    @property
    def answers(self) -> Mapping[str, int]:
        """HTTP status, or "none" where no answer came -> how many requests had it."""
        return self._connection.answers

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, kubeconfig: Path | None, context: str = "") -> AsyncIterator[ClusterApi]:
        """The API server that `kubeconfig` names (None: this pod's own), until the block ends."""
        connection = await Connection.open(kubeconfig, context)
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """The object."""
        return await self._send(
            Request(method="GET", path=path_of(kind, namespace, name), query={})
        )

    async def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str | None] | None = None
    ) -> Listing:
        """Every object of a kind, page by page, as of one moment."""
        query = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = ",".join(
                key if value is None else f"{key}={value}" for key, value in labels.items()
            )
        identity = {"apiVersion": RESOURCES[kind].api_version, "kind": kind}
        items: list[JsonObject] = []
        while True:
            request = Request(method="GET", path=path_of(kind, namespace), query=query)
            try:
                page = await self._connection.send(request)
            except GoneError as error:
                raise UnavailableError(f"{request}: took too long; list again") from error
            items += (identity | without_bookkeeping(item) for item in page.get("items") or ())
            if not (rest := page["metadata"].get("continue")):
                return Listing(sorted(items, key=_place), page["metadata"]["resourceVersion"])
            query = query | {"continue": rest}

    async def watch(
        self, kind: str, namespace: str = "", *, from_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `from_version`; a watch that ends or falls silent is continued."""
        version = from_version
        while True:
            query = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - no secret
            }
            request = Request(method="GET", path=path_of(kind, namespace), query=query)
            events = self._connection.stream(request, silence=self._silence)
            async with contextlib.aclosing(events):
                async for event in events:
                    change, obj = event["type"], event["object"]
                    if change == "ERROR":
                        raise refusal_of(obj, str(request))
                    version = obj["metadata"]["resourceVersion"]
                    if change != "BOOKMARK":
                        yield WatchEvent(type=change, object=without_bookkeeping(obj))
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))  # noqa: S311 - no secret

    async def create(self, owner: str, obj: JsonObject) -> JsonObject:
        """Make a new object."""
        metadata = obj["metadata"]
        return await self._send(
            Request(
                method="POST",
                path=path_of(obj["kind"], metadata.get("namespace", "")),
                query={"fieldManager": owner} | _STRICT,
                body=obj,
            )
        )

    async def apply(self, owner: str, obj: JsonObject) -> JsonObject:
        """Server-side apply, never by force."""
        return await self._send(
            Request(
                method="PATCH",
                path=_path(obj),
                query={"fieldManager": owner, "force": "false"} | _STRICT,
                body={key: value for key, value in obj.items() if key != "status"},
                content_type="application/apply-patch+yaml",
            )
        )

    async def replace(self, owner: str, obj: JsonObject) -> JsonObject:
        """Compare-and-swap of the whole object."""
        request = Request(
            method="PUT", path=_path(obj), query={"fieldManager": owner} | _STRICT, body=obj
        )
        try:
            return await self._send(request)
        except NotFoundError as error:
            raise ConflictError(f"{request}: the object is gone") from error

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: JsonObject, *, uid: str = ""
    ) -> JsonObject:
        """Replace the object's status, whatever it was."""
        same = [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []
        request = Request(
            method="PATCH",
            path=path_of(kind, namespace, name, "status"),
            query=_STRICT,
            body=[*same, {"op": "add", "path": "/status", "value": status}],
            content_type="application/json-patch+json",
        )
        try:
            return await self._send(request)
        except InvalidError as error:
            if not uid or _FAILED_TEST not in str(error):
                raise
            raise ConflictError(f"{request}: another object than that of uid {uid}") from error

    async def request_token(self, namespace: str, account: str, spec: JsonObject) -> JsonObject:
        """A new token of a ServiceAccount: {token, expirationTimestamp}, a secret.

        Args:
            namespace: Of the account.
            account: Its name.
            spec: Of a TokenRequest: expirationSeconds, audiences, boundObjectRef.
        """
        answer = await self._connection.send(
            Request(
                method="POST",
                path=path_of("ServiceAccount", namespace, account, "token"),
                query=_STRICT,
                body={
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": spec,
                },
            )
        )
        status: JsonObject = answer["status"]
        return status

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Remove the object, and what it owns after it."""
        condition = {"preconditions": {"uid": uid}} if uid else {}
        with contextlib.suppress(NotFoundError):
            await self._connection.send(
                Request(
                    method="DELETE",
                    path=path_of(kind, namespace, name),
                    query={},
                    body={"propagationPolicy": "Background", **condition},
                )
            )

    async def server_version(self) -> str:
        """The API server's release, for example v1.34.4."""
        answer = await self._connection.send(Request(method="GET", path="/version", query={}))
        return str(answer.get("gitVersion", ""))

    async def renew_credentials(self) -> None:
        """Read the token again that others renewed in its file; the next request uses it."""
        await self._connection.renew_credentials()

    async def _send(self, request: Request) -> JsonObject:
        return without_bookkeeping(await self._connection.send(request))


def _path(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    return path_of(obj["kind"], metadata.get("namespace", ""), metadata["name"])


def _place(obj: JsonObject) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def without_bookkeeping(obj: JsonObject) -> JsonObject:
    """The object less its record of who wrote which field, which is often longer than the rest."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}
