"""A container's environment, from its spec and the objects that it refers to. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from kubelet.errors import MissingInputError, UnsupportedPodError
from kubelet.pod_spec import Json, Pod

# Kind, namespace and name -> the object, or None if there is none.
Lookup: TypeAlias = Callable[[str, str, str], Json | None]

_WAITS = "CreateContainerConfigError"
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def environment(pod: Pod, lookup: Lookup, ip: str) -> dict[str, str]:
    """What `env` and `envFrom` add up to.

    Raises:
        MissingInputError: A Secret or ConfigMap is not there yet.
        UnsupportedPodError: A reference of a kind that is not played.
    """
    values: dict[str, str] = {}
    for source in pod.container.env_from:
        values |= _all_of(source, pod.namespace, lookup)
    for entry in pod.container.env:
        if "valueFrom" in entry:
            value = _referred(entry["valueFrom"], pod, lookup, ip)
        else:
            value = expand(str(entry.get("value", "")), values)
        if value is not None:
            values[entry["name"]] = value
    return values


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with each $(NAME) replaced where NAME has a value; $$ is a dollar sign."""

    def replaced(match: re.Match[str]) -> str:
        whole, name = str(match[0]), str(match[1])
        return "$" if whole == "$$" else values.get(name, whole)

    return _REFERENCE.sub(replaced, text)


def content(kind: str, obj: Json) -> dict[str, bytes]:
    """What a Secret or ConfigMap holds."""
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in (obj.get("data") or {}).items()} | binary


def field(pod: Pod, path: str, ip: str) -> str:
    """A field of the downward API."""
    metadata = pod.raw["metadata"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    known: dict[str, str] = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.raw["spec"].get("serviceAccountName", "default"),
        "status.podIP": ip,
        "status.podIPs": ip,
        "status.hostIP": "127.0.0.1",
    }
    if path not in known:
        raise UnsupportedPodError(f"fieldPath {path!r} (expected one of {', '.join(known)})")
    return known[path]


def _all_of(source: Json, namespace: str, lookup: Lookup) -> dict[str, str]:
    kind, reference = (
        ("Secret", source["secretRef"])
        if "secretRef" in source
        else ("ConfigMap", source["configMapRef"])
    )
    obj = lookup(kind, namespace, reference["name"])
    if obj is None:
        if reference.get("optional"):
            return {}
        raise MissingInputError(_WAITS, f'{kind.lower()} "{reference["name"]}" not found')
    prefix = source.get("prefix", "")
    return {prefix + key: value.decode() for key, value in content(kind, obj).items()}


def _referred(source: Json, pod: Pod, lookup: Lookup, ip: str) -> str | None:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], ip)
    for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if key in source:
            return _key_of(kind, source[key], pod.namespace, lookup)
    raise UnsupportedPodError(f"an environment variable from {', '.join(source)}")


def _key_of(kind: str, reference: Json, namespace: str, lookup: Lookup) -> str | None:
    obj = lookup(kind, namespace, reference["name"])
    value = None if obj is None else content(kind, obj).get(reference["key"])
    if value is not None:
        return value.decode()
    if reference.get("optional"):
        return None
    missing = "" if obj is None else f"key {reference['key']} in "
    raise MissingInputError(_WAITS, f'{missing}{kind.lower()} "{reference["name"]}" not found')
