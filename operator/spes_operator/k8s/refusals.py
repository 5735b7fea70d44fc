"""What an API server's refusal means, as an error of the operator. Pure; called by `connection`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from spes_operator.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    SpesError,
    UnauthorizedError,
    UnavailableError,
)

# Kept of either end of an API server's explanation: between them it may repeat the whole object.
_MAX_END = 500

_ERRORS: Mapping[int, type[SpesError]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.REQUEST_TIMEOUT: UnavailableError,
    HTTPStatus.TOO_MANY_REQUESTS: UnavailableError,
}


def refusal(code: int, body: bytes, request: str) -> SpesError:
    """The error for an answer of `code` to `request`, in the server's own words if it has any."""
    try:
        status = json.loads(body)
    except ValueError:
        status = {}
    return refusal_of(status if isinstance(status, dict) else {}, request, code=code)


def refusal_of(status: Mapping[str, Any], request: str, *, code: int = 0) -> SpesError:
    """The error for a Kubernetes Status object, which carries its own code."""
    code = code or int(status.get("code") or HTTPStatus.INTERNAL_SERVER_ERROR)
    message = _ends(str(status.get("message") or "no explanation"))
    kind = _ERRORS.get(
        code, UnavailableError if code >= HTTPStatus.INTERNAL_SERVER_ERROR else InvalidError
    )
    if kind is ConflictError and status.get("reason") == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(f"{request}: {message} (HTTP {code})")


def _ends(text: str) -> str:
    if len(text) <= 2 * _MAX_END:
        return text
    return f"{text[:_MAX_END]} ... {text[-_MAX_END:]}"
