"""`spes accept NAME` and `spes revoke NAME`: who takes part. The hub does the rest."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from spes_operator.cli.cluster import add_cluster_options, change, find, on_cluster
from spes_operator.names import AGENT_ACCOUNT, JOIN_TOKEN_SECRET, member_namespace
from spes_operator.reasons import CLUSTER_TAKEN

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

    from spes_operator.k8s.api import JsonObject, KubeApi


def add_accept(commands: Commands, common: Parser) -> None:
    """Add `spes accept`."""
    parser = commands.add_parser("accept", parents=[common], help="let an invited member take part")
    parser.add_argument("name", metavar="NAME", help="of the member")
    add_cluster_options(parser)
    parser.set_defaults(act=_accept)


def add_revoke(commands: Commands, common: Parser) -> None:
    """Add `spes revoke`."""
    parser = commands.add_parser(
        "revoke", parents=[common], help="shut a member out: its tokens are void, its experts move"
    )
    parser.add_argument("name", metavar="NAME", help="of the member")
    add_cluster_options(parser)
    parser.set_defaults(act=_revoke)


def _accept(options: argparse.Namespace) -> int:
    return on_cluster(options, lambda api: accept(api, options.name))


def _revoke(options: argparse.Namespace) -> int:
    return on_cluster(options, lambda api: revoke(api, options.name))


async def accept(api: KubeApi, member: str) -> int:
    """Accept it, and say which cluster that is: a person should compare."""
    cluster = await _set_accepted(api, member, accepted=True)
    status = cluster.get("status", {})
    lines = [f"member {member} is accepted"]
    if cluster_id := status.get("clusterID"):
        lines.append(
            f"it is the cluster whose kube-system namespace has UID {cluster_id}; "
            f"it lends {status.get('slots', 0)} slots, {status.get('gpus', 0)} GPUs"
        )
    elif taken := _taken(status):
        lines.append(taken)
    else:
        lines.append("it has not reported yet; the first cluster that does is taken for it")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _taken(status: JsonObject) -> str:
    """What the hub says of a member whose cluster is another one already; empty: nothing."""
    conditions = status.get("conditions", ())
    return next((one["message"] for one in conditions if one["reason"] == CLUSTER_TAKEN), "")


async def revoke(api: KubeApi, member: str) -> int:
    """Void its tokens first, so that it can do nothing more; then take what it had."""
    await find(api, "MemberCluster", "", member)
    namespace = member_namespace(member)
    await api.delete("ServiceAccount", namespace, AGENT_ACCOUNT)
    await api.delete("Secret", namespace, JOIN_TOKEN_SECRET)
    await _set_accepted(api, member, accepted=False)
    sys.stdout.write(
        f"member {member} is shut out: its tokens are void within seconds, its experts move\n"
        f"to let it back in: spes invite {member} --renew, then spes accept {member}\n"
    )
    return 0


async def _set_accepted(api: KubeApi, member: str, *, accepted: bool) -> JsonObject:
    found = await find(api, "MemberCluster", "", member)
    return await change(
        api, found, lambda obj: obj | {"spec": obj.get("spec", {}) | {"accepted": accepted}}
    )
