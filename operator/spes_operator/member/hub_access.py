"""The files with which an agent reaches its hub: its invitation, and its own beside it.

The agent's kubeconfig is the invitation's with another way to the token: a file that the agent
renews. So address and CA of the hub always are the invitation's, also of another one that takes its
place.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from spes_api.private_files import write_private

from spes_operator.errors import ConfigError

_KUBECONFIG = "hub.kubeconfig"
_TOKEN = "token"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """Where they lie."""

    invitation: Path
    """A kubeconfig that holds a token; others replace it."""
    state: Path
    """A folder of the agent's own."""

    @property
    def kubeconfig(self) -> Path:
        """What the agent's clients read."""
        return self.state / _KUBECONFIG

    def invited_token(self) -> str:
        """The token in the invitation, read anew.

        Raises:
            ConfigError: There is no such file, or no token in it.
        """
        user = _user_of(self._read())
        if token_file := user.get("tokenFile"):
            return _token_in(self.invitation.parent / str(token_file))
        if token := user.get("token"):
            return str(token)
        raise ConfigError(
            f"{self.invitation} holds no token (expected users[].user.token, as in the file that "
            "`spes invite` writes); ask the hub's admin for a new one"
        )

    def digest(self) -> bytes:
        """Tells one invitation from another; empty: there is none that can be read."""
        try:
            return hashlib.sha256(self.invitation.read_bytes()).digest()
        except OSError:
            return b""

    def write_kubeconfig(self) -> None:
        """Write the agent's kubeconfig beside its token.

        Raises:
            ConfigError: There is no invitation, or it is no kubeconfig.
        """
        self._write(self.kubeconfig, self._kubeconfig())

    def lead_elsewhere(self) -> bool:
        """Whether the invitation has another address or CA of the hub than the agent uses."""
        try:
            return self.kubeconfig.read_text() != self._kubeconfig()
        except (OSError, ConfigError):
            return False  # what cannot be read now leads nowhere

    def _kubeconfig(self) -> str:
        """The invitation's, with the agent's own token."""
        document = self._read()
        user = _user_of(document)
        user.clear()
        user["tokenFile"] = str((self.state / _TOKEN).absolute())
        return yaml.safe_dump(document)

    def write_token(self, token: str) -> None:
        """Make `token` the one that the agent's clients use."""
        self._write(self.state / _TOKEN, token)

    def _write(self, path: Path, text: str) -> None:
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text.encode())

    def _read(self) -> dict[str, Any]:
        try:
            document = yaml.safe_load(self.invitation.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(
                f"{self.invitation} cannot be read as a kubeconfig ({type(error).__name__}); mount "
                "the Secret of the file that `spes invite` wrote"
            ) from error
        if not isinstance(document, dict):
            raise ConfigError(f"{self.invitation} is no kubeconfig (expected a mapping)")
        return document


def _token_in(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}, which the invitation names, holds no token ({type(error).__name__})"
        ) from error


def _user_of(document: dict[str, Any]) -> dict[str, Any]:
    """The credentials of the current context, as a part of the document."""
    try:
        current = document["current-context"]
        context = next(one for one in document["contexts"] if one["name"] == current)
        name = context["context"]["user"]
        user = next(one for one in document["users"] if one["name"] == name)["user"]
    except (KeyError, StopIteration, TypeError):
        user = None
    if not isinstance(user, dict):
        raise ConfigError(
            "the hub's kubeconfig has no current context with a user; use the file that "
            "`spes invite` writes"
        )
    return user
