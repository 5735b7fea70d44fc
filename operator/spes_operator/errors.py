"""Errors of the operator.

SpesError                   (of spes_api) base of every error raised on purpose
├── ConfigError             (of spes_api) a person can fix it
├── ConflictError           the object changed since it was read: read again, decide again
│   ├── AlreadyExistsError  create met an object of that name
│   └── RefusedError        the sync server refuses what it is told; says what to do
├── ForbiddenError          the API server refuses who asks: rights or credentials are missing
│   └── UnauthorizedError   it does not know who asks: other credentials are needed, not rights
├── InvalidError            the API server refuses the object; its words name the field
├── NotFoundError           the object is gone
├── GoneError               a watch asked for history that is no longer kept: list again
└── UnavailableError        the other side cannot be reached now; a retry may help
"""

from __future__ import annotations

from spes_api.errors import ConfigError, SpesError

__all__ = [
    "AlreadyExistsError",
    "ConfigError",
    "ConflictError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "NotFoundError",
    "RefusedError",
    "SpesError",
    "UnauthorizedError",
    "UnavailableError",
]


class ConflictError(SpesError):
    """The object changed since it was read, or another owner holds a field."""


class AlreadyExistsError(ConflictError):
    """Create met an object of that name."""


class RefusedError(ConflictError):
    """The sync server refuses what it is told."""


class ForbiddenError(SpesError):
    """Rights or credentials are missing."""


class UnauthorizedError(ForbiddenError):
    """The credentials are not valid, or not any more."""


class InvalidError(SpesError):
    """The object breaks its schema or a rule of the API server."""


class NotFoundError(SpesError):
    """No such object."""


class GoneError(SpesError):
    """The watch's start lies before the kept history."""


class UnavailableError(SpesError):
    """The other side does not answer now."""
