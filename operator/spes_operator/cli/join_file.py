"""The file with which a member joins: a Secret for its own cluster, with a kubeconfig in it. Pure.

Called by `invite`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import yaml

from spes_operator.k8s.account_token import claims_of
from spes_operator.names import (
    JOIN_KUBECONFIG_KEY,
    JOIN_NAME_KEY,
    JOIN_SECRET,
    member_namespace,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """The hub's API server, as a member reaches it."""

    server: str
    ca: bytes
    """PEM; empty: one that everybody trusts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What lets one member join."""

    member: str
    token: str = field(repr=False)
    good_until: str
    """By the hub's clock, RFC 3339."""


class _Readable(yaml.SafeDumper):
    """Writes a text of several lines as it is."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """The text, as a block if it has lines."""
        style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _Readable.represent_text)


def join_file(hub: HubAddress, invitation: Invitation) -> str:
    """The text of join-NAME.yaml."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": JOIN_SECRET},
        "type": "Opaque",
        "stringData": {
            JOIN_NAME_KEY: invitation.member,
            JOIN_KUBECONFIG_KEY: yaml.safe_dump(_kubeconfig(hub, invitation), sort_keys=False),
        },
    }
    return (
        f"# Lets {invitation.member} join {hub.server} before {invitation.good_until}.\n"
        "# A secret: whoever has it can join in its place.\n"
        f"{yaml.dump(secret, Dumper=_Readable, sort_keys=False)}"
    )


def audiences_of(token: str) -> tuple[str, ...]:
    """Who may take a ServiceAccount's token: its claim "aud"; empty if it cannot be read."""
    try:
        found = claims_of(token)["aud"]
    except (KeyError, ValueError):
        return ()
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def _kubeconfig(hub: HubAddress, invitation: Invitation) -> dict[str, object]:
    cluster = {"server": hub.server}
    if hub.ca:
        cluster["certificate-authority-data"] = base64.b64encode(hub.ca).decode()
    name = "hub"
    context = {
        "cluster": name,
        "user": invitation.member,
        "namespace": member_namespace(invitation.member),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": invitation.member, "user": {"token": invitation.token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
