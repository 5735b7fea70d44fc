"""One-time join tokens: minted here, carried to the member in a Secret, elsewhere known by hash."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from datetime import datetime

from spes_operator.clock import from_text, to_text
from spes_operator.hub.assignments import TOKEN_LIFE
from spes_operator.hub.sync_state import TokenHash
from spes_operator.k8s.api import JsonObject
from spes_operator.names import (
    ANNOTATION_TOKEN_EXPIRES,
    ANNOTATION_TOKEN_ID,
    ANNOTATION_TOKEN_PEER,
    ANNOTATION_TOKEN_SHA256,
    LABEL_JOB_UID,
    TOKEN_FILE,
    ObjectKey,
    PeerId,
)

logger = logging.getLogger(__name__)

# Bytes of a token's id (shown as hex) and of its secret part.
_ID_BYTES = 8
_SECRET_BYTES = 32


def mint(key: ObjectKey, *, peer: PeerId, job_uid: str, now: datetime) -> JsonObject:
    """A Secret with a new token "<id>.<secret>"; its annotations say what others may know."""
    token_id = secrets.token_hex(_ID_BYTES)
    token = f"{token_id}.{secrets.token_urlsafe(_SECRET_BYTES)}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": key.namespace,
            "name": key.name,
            "labels": {LABEL_JOB_UID: job_uid},
            "annotations": {
                ANNOTATION_TOKEN_ID: token_id,
                ANNOTATION_TOKEN_SHA256: hashlib.sha256(token.encode()).hexdigest(),
                ANNOTATION_TOKEN_EXPIRES: to_text(now + TOKEN_LIFE),
                ANNOTATION_TOKEN_PEER: peer,
            },
        },
        "data": {TOKEN_FILE: base64.b64encode(token.encode()).decode()},
    }


def token_hash(secret: JsonObject) -> TokenHash | None:
    """What the annotations of a join Secret say, or None if it is not one."""
    try:
        annotations = secret["metadata"]["annotations"]
        return TokenHash(
            id=annotations[ANNOTATION_TOKEN_ID],
            peer=PeerId(annotations[ANNOTATION_TOKEN_PEER]),
            sha256=annotations[ANNOTATION_TOKEN_SHA256],
            expires_at=from_text(annotations[ANNOTATION_TOKEN_EXPIRES]),
        )
    except (KeyError, ValueError):
        logger.warning("no join secret name=%s", secret.get("metadata", {}).get("name"))
        return None
