"""Brings one-time tokens from the hub into the member's own cluster, as mounted files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence

from spes_api.kinds import TrainerAssignment

from spes_operator.errors import SpesError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.workloads import SecretBackend
from spes_operator.member.limits import key_of
from spes_operator.names import (
    ANNOTATION_TOKEN_ID,
    CA_FILE,
    TOKEN_FILE,
    ObjectKey,
    join_secret_name,
)

logger = logging.getLogger(__name__)

# Of a local Secret: the CA inside, so that a new one is noticed.
_ANNOTATION_CA = "spes.dev/ca-sha256"


class SecretMirror:
    """The join Secrets of one member; a token's text passes through and is kept nowhere else."""

    def __init__(self, hub: KubeApi, namespace: str, backend: SecretBackend) -> None:
        """From `namespace` on the hub into `backend`."""
        self._hub = hub
        self._namespace = namespace
        self._backend = backend

    async def mirror(
        self, assignments: Sequence[TrainerAssignment], unreadable: Collection[str] = ()
    ) -> frozenset[ObjectKey]:
        """Copy each token with the CA, drop those of gone assignments; answers whose is here.

        Args:
            assignments: Of the member.
            unreadable: Names of more that are there; what is held for them stays.
        """
        held = await self._backend.secrets()
        offered = await self._offered() if assignments else {}
        found: set[ObjectKey] = set()
        for assignment in assignments:
            name = assignment.spec.join_secret
            annotations = held.get(name)
            if name in offered:
                annotations = await self._mirror(assignment, offered[name], annotations)
            if annotations is not None:
                found.add(key_of(assignment))
        kept = {assignment.spec.join_secret for assignment in assignments}
        for name in held.keys() - kept - set(map(join_secret_name, unreadable)):
            await self._backend.delete_secret(name)
        return frozenset(found)

    async def _offered(self) -> Mapping[str, JsonObject]:
        """The hub's Secrets by name; none if it does not give them, which changes nothing here."""
        try:
            listing = await self._hub.list("Secret", self._namespace)
        except SpesError:
            return {}
        return {item["metadata"]["name"]: item for item in listing.items}

    async def _mirror(
        self,
        assignment: TrainerAssignment,
        secret: JsonObject,
        held: Mapping[str, str] | None,
    ) -> Mapping[str, str] | None:
        """Answers the annotations of the local copy; an unusable Secret changes nothing."""
        name = assignment.spec.join_secret
        ca = assignment.spec.sync.ca_bundle.encode()
        try:
            wanted = {
                ANNOTATION_TOKEN_ID: str(secret["metadata"]["annotations"][ANNOTATION_TOKEN_ID]),
                _ANNOTATION_CA: hashlib.sha256(ca).hexdigest(),
            }
            token = base64.b64decode(secret["data"][TOKEN_FILE], validate=True)
        except (KeyError, binascii.Error):
            logger.warning("no join secret name=%s/%s", self._namespace, name)
            return held
        if held != wanted:
            data = {TOKEN_FILE: token, CA_FILE: ca}
            await self._backend.put_secret(name, data, wanted)
        return wanted
