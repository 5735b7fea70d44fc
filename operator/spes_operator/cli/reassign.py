"""`spes reassign JOB --now` and `spes drain MEMBER`: a person's word about where experts are."""

from __future__ import annotations

import argparse
import sys
import uuid
from typing import TYPE_CHECKING

from spes_operator.cli.cluster import (
    add_cluster_options,
    change,
    find,
    namespace_of,
    on_cluster,
)
from spes_operator.names import ANNOTATION_DRAIN, ANNOTATION_REASSIGN, ObjectKey

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

    from spes_operator.k8s.api import JsonObject, KubeApi


def add_reassign(commands: Commands, common: Parser) -> None:
    """Add `spes reassign`."""
    parser = commands.add_parser(
        "reassign", parents=[common], help="move experts of lost members that are held back"
    )
    parser.add_argument("job", metavar="JOB", help="the SpesJob")
    parser.add_argument("--now", action="store_true", required=True, help="do not wait any longer")
    add_cluster_options(parser, namespaced=True)
    parser.set_defaults(act=_reassign)


def add_drain(commands: Commands, common: Parser) -> None:
    """Add `spes drain`."""
    parser = commands.add_parser(
        "drain", parents=[common], help="move a member's experts away and stop its trainers"
    )
    parser.add_argument("member", metavar="MEMBER", help="the member")
    parser.add_argument("--job", metavar="J", help="only this SpesJob (default: all, and new ones)")
    add_cluster_options(parser, namespaced=True)
    parser.set_defaults(act=_drain)


def _reassign(options: argparse.Namespace) -> int:
    job = ObjectKey(namespace_of(options), options.job)
    return on_cluster(options, lambda api: reassign(api, job))


def _drain(options: argparse.Namespace) -> int:
    if options.job is None:
        return on_cluster(options, lambda api: drain_member(api, options.member))
    job = ObjectKey(namespace_of(options), options.job)
    return on_cluster(options, lambda api: drain_from_job(api, options.member, job))


async def reassign(api: KubeApi, job: ObjectKey) -> int:
    """Let what is held happen once."""
    found = await find(api, "SpesJob", *job)
    await change(api, found, lambda obj: _annotated(obj, ANNOTATION_REASSIGN, uuid.uuid4().hex))
    sys.stdout.write(f"job {job.name}: experts of lost members move now\n")
    return 0


async def drain_member(api: KubeApi, member: str) -> int:
    """Cordon the member: the hub moves its experts, then its trainers stop."""
    found = await find(api, "MemberCluster", "", member)
    await change(
        api, found, lambda obj: obj | {"spec": obj.get("spec", {}) | {"unschedulable": True}}
    )
    sys.stdout.write(
        f"member {member} is drained: its experts move, then its trainers stop\n"
        f"to wait for it: kubectl wait --for=condition=Drained membercluster/{member}\n"
        "to use it again: "
        f"kubectl patch membercluster {member} --type merge -p "
        """'{"spec":{"unschedulable":false}}'\n"""
    )
    return 0


async def drain_from_job(api: KubeApi, member: str, job: ObjectKey) -> int:
    """Let the member leave one job; it stays in the others."""
    await find(api, "MemberCluster", "", member)
    found = await find(api, "SpesJob", *job)

    def edit(obj: JsonObject) -> JsonObject:
        before = obj["metadata"].get("annotations", {}).get(ANNOTATION_DRAIN, "")
        members = sorted({*filter(None, before.split(",")), member})
        return _annotated(obj, ANNOTATION_DRAIN, ",".join(members))

    await change(api, found, edit)
    sys.stdout.write(
        f"job {job.name} leaves member {member}: its experts move, then its trainers stop\n"
        f"to let it back in: take it out of annotation {ANNOTATION_DRAIN} of the job\n"
    )
    return 0


def _annotated(obj: JsonObject, name: str, value: str) -> JsonObject:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations", {}) | {name: value}
    return obj | {"metadata": metadata | {"annotations": annotations}}
