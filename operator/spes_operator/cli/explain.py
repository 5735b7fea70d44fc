"""`spes explain`: what is wrong with a job, what it costs, and who owns what. Changes nothing.

Of a file: each peer's device and host memory and its disk, the bytes of a round and the time of a
hurried push, in true gigabytes and beside them in the paper's unit; with a members file also which
peer gets how many experts, and why. Of a job of a hub: the same with its members' real slots, which
members are not used and why, and what the job waits for.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text
from spes_api.errors import ConfigError, Problem
from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment
from spes_api.loading import load_job, load_members

from spes_operator.cli.cluster import add_cluster_options, find, namespace_of, on_cluster
from spes_operator.cli.console import stdout_console
from spes_operator.cli.estimate_json import as_json
from spes_operator.cli.estimate_text import print_estimate
from spes_operator.cli.explain_live import Explanation, LiveJob, explain_live
from spes_operator.hub.observe import read_ownership
from spes_operator.k8s.typed import first_problem, list_models
from spes_operator.names import LABEL_JOB_UID, ObjectKey
from spes_operator.placement.estimate import estimate_equal_peers, estimate_members

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

    from spes_operator.k8s.api import KubeApi

Output = Literal["text", "json"]

# Before the name of a job of a hub, as kubectl has it.
_PREFIXES = ("sj/", "spesjob/", "spesjobs/")


def add_explain(commands: Commands, common: Parser) -> None:
    """Add `spes explain`."""
    parser = commands.add_parser(
        "explain", parents=[common], help="say what a SpesJob costs, or why it is as it is"
    )
    parser.add_argument(
        "job",
        metavar="FILE|sj/NAME",
        help="the SpesJob: a file, or one of a hub (with -n NS: NAME)",
    )
    parser.add_argument("--members", type=Path, metavar="F", help="members file (with FILE)")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    add_cluster_options(parser, namespaced=True)
    parser.set_defaults(act=_explain)


def _explain(options: argparse.Namespace) -> int:
    name = _name_on_hub(options)
    if name is None:
        if not Path(options.job).exists():
            here = f"spes explain sj/{Path(options.job).name}"
            raise ConfigError(f"{options.job}: no such file; of a job on a hub: {here}")
        return explain(Path(options.job), options.members, options.output)
    if options.members is not None:
        raise ConfigError("a job of a hub has its own members; leave --members out")
    key, output = ObjectKey(namespace_of(options), name), options.output
    return on_cluster(options, lambda api: explain_on_hub(api, key, output))


def _name_on_hub(options: argparse.Namespace) -> str | None:
    """The job's name if it is one of a hub; None: it is a file."""
    for prefix in _PREFIXES:
        if options.job.startswith(prefix):
            return str(options.job).removeprefix(prefix)
    is_file = options.namespace is None or Path(options.job).exists()
    return None if is_file else str(options.job)


def explain(path: Path, members_path: Path | None, output: Output) -> int:
    """Print what a job costs; returns the exit code.

    Args:
        path: The SpesJob.
        members_path: The members file to place its experts on; None: members.max equal peers.
        output: How to print.

    Raises:
        ConfigError: the job or the members file is wrong, or these members cannot train the job.
    """
    job = load_job(path)
    if members_path is None:
        estimate = estimate_equal_peers(job)
    else:
        estimate = estimate_members(job, load_members(members_path))
    if estimate.problem:
        raise ConfigError.of(str(members_path), [Problem(text=estimate.problem)])
    if output == "json":
        print(json.dumps(as_json(estimate), indent=2))
    else:
        print_estimate(estimate, stdout_console())
    return 0


async def explain_on_hub(api: KubeApi, key: ObjectKey, output: Output) -> int:
    """Print why a job of a hub is as it is; returns the exit code.

    Raises:
        ConfigError: There is no such job, or its spec is wrong.
    """
    explanation = explain_live(await _read(api, key), now=datetime.now(UTC))
    if output == "json":
        told = {"waitsFor": explanation.waits_for, "unused": list(explanation.unused)}
        print(json.dumps(as_json(explanation.estimate) | told, indent=2))
    else:
        print_explanation(explanation, stdout_console())
    return 0


async def _read(api: KubeApi, key: ObjectKey) -> LiveJob:
    obj = await find(api, "SpesJob", *key)
    try:
        job = SpesJob.model_validate(obj)
    except ValidationError as error:
        raise ConfigError.of(f"job {key.name}", [Problem(text=first_problem(error))]) from error
    labels = {LABEL_JOB_UID: job.metadata.uid}
    return LiveJob(
        job=job,
        members=tuple(await list_models(api, MemberCluster)),
        reports=tuple(await list_models(api, MemberReport)),
        assignments=tuple(await list_models(api, TrainerAssignment, "", labels)),
        ownership=await read_ownership(api, job),
    )


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The explanation for people: first what it waits for, then what its estimate says."""
    if explanation.waits_for:
        console.print(Text(f"! not ready: {explanation.waits_for}\n", style="yellow"))
    print_estimate(explanation.estimate, console)
    if explanation.unused:
        console.print(Text("\nNot used", style="bold"))
        for reason in explanation.unused:
            console.print(Text(f"  {reason}"))
