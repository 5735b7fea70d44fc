"""How commands reach a hub: with the kubeconfig of whoever calls them, and with that one's rights.

Imports the Kubernetes client only when a command uses it: `spes run` needs none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from spes_operator.errors import (
    ConfigError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from spes_operator.k8s.api import JsonObject, KubeApi
    from spes_operator.k8s.cluster import ClusterApi

# Field owner of what commands write.
CLI_OWNER = "spes-cli"
# How often a change is tried again because somebody else changed the object meanwhile.
_ATTEMPTS = 5
_NO_HUB = "is this the hub (--kubeconfig, --context), and is SPES installed there?"


def add_cluster_options(parser: argparse.ArgumentParser, *, namespaced: bool = False) -> None:
    """Options that say which API server is meant, and where in it."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="F",
        help="how to reach the hub (default: $KUBECONFIG or ~/.kube/config)",
    )
    parser.add_argument(
        "--context", default="", metavar="C", help="of the kubeconfig (default: its current one)"
    )
    if namespaced:
        parser.add_argument(
            "-n",
            "--namespace",
            type=_namespace,
            metavar="NS",
            help="of the job (default: the context's)",
        )


def _namespace(text: str) -> str:
    """As it was given; an empty one is a variable that is not set, and would mean another one."""
    if not text:
        raise argparse.ArgumentTypeError("must name a namespace (got nothing)")
    return text


def kubeconfig_of(options: argparse.Namespace) -> Path:
    """The kubeconfig that is meant, as kubectl chooses it; $KUBECONFIG may name several."""
    chosen: Path | None = options.kubeconfig
    if chosen is not None:
        return chosen
    return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")


def context_of(options: argparse.Namespace) -> str:
    """The context that is meant; empty: the kubeconfig's current one.

    Of several files the first one that names a current context counts, for kubectl. The client of
    Kubernetes takes the last.
    """
    paths = str(kubeconfig_of(options)).split(os.pathsep)
    if options.context or len(paths) == 1:
        return str(options.context)
    return next(filter(None, map(_current_context, paths)), "")


def _current_context(path: str) -> str:
    try:
        document = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return ""  # whoever loads it says what is wrong
    found = document.get("current-context") if isinstance(document, dict) else None
    return str(found or "")


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace that is meant: the option's, the context's, or "default"."""
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.kube_config import list_kube_config_contexts

    if options.namespace:
        return str(options.namespace)
    try:
        contexts, current = list_kube_config_contexts(  # type: ignore[no-untyped-call]  # the client's own gap
            str(kubeconfig_of(options))
        )
    except (ConfigException, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"{kubeconfig_of(options)} names no context ({error!s:.200})") from error
    wanted = context_of(options)
    chosen = next((one for one in contexts if one["name"] == wanted), current)
    return str(chosen["context"].get("namespace") or "default")


def on_cluster(options: argparse.Namespace, act: Callable[[ClusterApi], Awaitable[int]]) -> int:
    """Do it with the API server that `options` mean; answers the command's exit code.

    Raises:
        ForbiddenError: The caller lacks a right.
        UnavailableError: The hub does not answer.
        NotFoundError: The cluster has not what a hub has.
    """

    async def whole() -> int:
        from spes_operator.k8s.cluster import ClusterApi

        async with ClusterApi.open(kubeconfig_of(options), context_of(options)) as api:
            return await act(api)

    try:
        return asyncio.run(whole())
    except ForbiddenError as error:
        raise ForbiddenError(
            f"{error}\nuse a kubeconfig of the hub's admin (--kubeconfig, --context)"
        ) from error
    except UnavailableError as error:
        where = "is that the hub, and can it be reached from here? (--kubeconfig, --context)"
        raise UnavailableError(f"{error}\n{where}") from error
    except NotFoundError as error:
        raise NotFoundError(f"{error}\n{_NO_HUB}") from error


async def find(api: KubeApi, kind: str, namespace: str, name: str) -> JsonObject:
    """The object that a person named.

    Raises:
        ConfigError: There is none; names those that there are.
    """
    try:
        return await api.get(kind, namespace, name)
    except NotFoundError as error:
        where = f" in namespace {namespace}" if namespace else ""
        try:
            others = (await api.list(kind, namespace)).items
        except NotFoundError:
            raise ConfigError(_NO_HUB) from error
        known = ", ".join(other["metadata"]["name"] for other in others) or "there is none"
        raise ConfigError(f"no {kind} {name}{where} (expected of: {known})") from error


async def change(
    api: KubeApi, obj: JsonObject, edit: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """Change an object as a person would with an editor; answers it as it is then.

    Args:
        api: Where it is.
        obj: As it was found.
        edit: The object -> how it should be; called again if somebody else was faster.
    """
    metadata = obj["metadata"]
    for _ in range(_ATTEMPTS - 1):
        if (wanted := edit(obj)) == obj:
            return obj
        try:
            return await api.replace(CLI_OWNER, wanted)
        except ConflictError:
            obj = await api.get(obj["kind"], metadata.get("namespace", ""), metadata["name"])
    return await api.replace(CLI_OWNER, edit(obj))
