"""`spes invite NAME`: make a member's place on the hub, and a file with which it can join.

Done with the caller's own rights, since the hub may mint no token. Before the member is accepted,
its account may say what it is and nothing else.
"""

from __future__ import annotations

import argparse
import re
import sys
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spes_api.private_files import private_draft
from spes_api.schema_base import API_VERSION

from spes_operator.cli.cluster import (
    CLI_OWNER,
    add_cluster_options,
    change,
    context_of,
    find,
    kubeconfig_of,
    on_cluster,
)
from spes_operator.cli.join_file import HubAddress, Invitation, audiences_of, join_file
from spes_operator.cli.member_place import join_token_secret, member_objects
from spes_operator.errors import AlreadyExistsError, ConfigError, NotFoundError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.names import (
    AGENT_ACCOUNT,
    ANNOTATION_INVITATION,
    ANNOTATION_REPLACES,
    AUDIENCES_CONFIG_MAP,
    HUB_NAMESPACE,
    JOIN_TOKEN_SECRET,
    MEMBER_REPORT,
    member_namespace,
)

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

    from spes_operator.k8s.cluster import ClusterApi

# Kubernetes issues no shorter tokens; a longer one than an agent's own would outlive its purpose.
_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=7)
_AUDIENCES = (
    "spes invite: agents cannot renew their tokens yet: the audience of this API server is "
    f"unknown; add it to ConfigMap {HUB_NAMESPACE}/{AUDIENCES_CONFIG_MAP}: {{unknown}}\n"
)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Inviter(KubeApi, Protocol):
    """An API server that also issues tokens."""

    async def request_token(self, namespace: str, account: str, spec: JsonObject) -> JsonObject:
        """A new token of a ServiceAccount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller wants."""

    member: str
    ttl: timedelta
    auto_accept: bool = False
    renew: bool = False


def add_invite(commands: Commands, common: Parser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "invite", parents=[common], help="let a cluster join: writes join-NAME.yaml, a secret"
    )
    option = parser.add_argument
    option("name", type=_name, metavar="NAME", help="of the member")
    option("--ttl", type=_ttl, default="24h", metavar="T", help="how long it may join (24h)")
    option("--auto-accept", action="store_true", help="accept it at once")
    option("--renew", action="store_true", help="a new invitation for a member that exists")
    option("--server", metavar="URL", help="the hub's API as members reach it (default: as you do)")
    add_cluster_options(parser)
    parser.set_defaults(act=_invite)


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"must be lower-case letters, digits and dashes, at most 40 (got {text!r})"
        )
    return text


def _ttl(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    ttl = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not _SHORTEST <= ttl <= _LONGEST:
        raise argparse.ArgumentTypeError(f"must be 10m to 7d, like 90m, 24h or 2d (got {text!r})")
    return ttl


def _invite(options: argparse.Namespace) -> int:
    wish = Wish(
        member=options.name,
        ttl=options.ttl,
        auto_accept=options.auto_accept,
        renew=options.renew,
    )
    path = Path(f"join-{wish.member}.yaml")

    async def act(api: ClusterApi) -> int:
        from spes_operator.k8s.connection import read_access

        access = await read_access(kubeconfig_of(options), context_of(options))
        hub = HubAddress(
            server=options.server or access.server,
            ca=Path(access.ca_file).read_bytes() if access.ca_file else b"",
        )
        with private_draft(path) as draft:
            invitation = await invite(api, wish)
            draft.write_text(join_file(hub, invitation), encoding="utf-8")
        sys.stdout.write(_words(wish, path, hub, invitation))
        if unknown := await _unknown_audiences(api, invitation):
            sys.stderr.write(_AUDIENCES.format(unknown=unknown))
        return 0

    return on_cluster(options, act)


async def invite(api: Inviter, wish: Wish) -> Invitation:
    """Write the member's place on the hub; answers what the member needs to join.

    Safe to stop anywhere and to run again with `renew`.

    Raises:
        ConfigError: The member exists, or does not, other than the wish says.
    """
    cluster = await _cluster(api, wish)
    for obj in member_objects(cluster):
        await api.apply(CLI_OWNER, obj)
    await _name_invitation(api, wish, cluster)
    namespace = member_namespace(wish.member)
    await api.delete("Secret", namespace, JOIN_TOKEN_SECRET)  # with it goes the token before
    secret = await api.create(CLI_OWNER, join_token_secret(wish.member))
    bound = {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": JOIN_TOKEN_SECRET,
        "uid": secret["metadata"]["uid"],
    }
    token = await api.request_token(
        namespace,
        AGENT_ACCOUNT,
        {"expirationSeconds": int(wish.ttl.total_seconds()), "boundObjectRef": bound},
    )
    return Invitation(
        member=wish.member, token=token["token"], good_until=token["expirationTimestamp"]
    )


async def _cluster(api: KubeApi, wish: Wish) -> JsonObject:
    """The MemberCluster: the one to be renewed, or a new one."""
    if wish.renew:
        return await find(api, "MemberCluster", "", wish.member)
    metadata = {"name": wish.member}
    cluster = {"apiVersion": API_VERSION, "kind": "MemberCluster", "metadata": metadata, "spec": {}}
    try:
        return await api.create(CLI_OWNER, cluster)
    except AlreadyExistsError as error:
        raise ConfigError(
            f"member {wish.member} exists already; for a new invitation run: "
            f"spes invite {wish.member} --renew"
        ) from error


async def _name_invitation(api: KubeApi, wish: Wish, cluster: JsonObject) -> None:
    """Say on the MemberCluster which invitation is the last one, before its token can be used."""
    annotations = {
        ANNOTATION_INVITATION: uuid.uuid4().hex,
        ANNOTATION_REPLACES: await _reported_expiry(api, wish.member),
    }

    def edit(obj: JsonObject) -> JsonObject:
        metadata, spec = obj["metadata"], obj.get("spec", {})
        merged = metadata | {"annotations": metadata.get("annotations", {}) | annotations}
        accepted = wish.auto_accept or spec.get("accepted", False)
        return obj | {"metadata": merged, "spec": spec | {"accepted": accepted}}

    await change(api, cluster, edit)


async def _unknown_audiences(api: KubeApi, invitation: Invitation) -> str:
    """Audiences of this API server by which the admission policy does not know it."""
    try:
        known = await api.get("ConfigMap", HUB_NAMESPACE, AUDIENCES_CONFIG_MAP)
    except NotFoundError:
        return ""  # the policy is not installed
    own = audiences_of(invitation.token)
    return " ".join(one for one in own if one not in known["data"]["audiences"].split())


async def _reported_expiry(api: KubeApi, member: str) -> str:
    """Until when the credential is good that the member reported last; empty: it reported none."""
    reports = (await api.list("MemberReport", member_namespace(member))).items
    report = next((one for one in reports if one["metadata"]["name"] == MEMBER_REPORT), {})
    return str(report.get("status", {}).get("credential", {}).get("expiresAt", ""))


def _words(wish: Wish, path: Path, hub: HubAddress, invitation: Invitation) -> str:
    lines = [
        f"member {wish.member} is {'accepted' if wish.auto_accept else 'invited'}",
        f"{path}  a secret; it must join {hub.server} before {invitation.good_until}",
        "in the member's cluster, in the namespace of its agent:",
        f"  kubectl create -f {path.name}",
        "  and install the chart with mode=member, join.existingSecret=spes-join",
    ]
    if not wish.auto_accept:
        lines.append(f"here, before the invitation ends: spes accept {wish.member}")
    return "\n".join(lines) + "\n"
