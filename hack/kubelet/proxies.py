"""NodePort Services as relays on this machine: what kube-proxy does, as far as tests need it.

127.0.0.1:NODE_PORT leads to a ready pod that the Service selects. A cluster IP leads nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kubelet.errors import OrderError
from kubelet.pod_spec import Json
from kubelet.pod_status import HOST_IP
from kubelet.relay import Address, Relay

logger = logging.getLogger(__name__)


class _Door(NamedTuple):
    namespace: str
    service: str
    port: str
    """Its number, as text, or its name."""
    node_port: int


class Proxies:
    """Every NodePort of a cluster."""

    def __init__(self, pods: Callable[[], Iterable[Json]]) -> None:
        """`pods`: all of the cluster, now."""
        self._pods = pods
        self._relays: dict[_Door, Relay] = {}
        self._services: dict[tuple[str, str], Json] = {}

    async def follow(self, services: Iterable[Json]) -> None:
        """Open a relay for each new NodePort, close those that are gone."""
        self._services = {
            (service["metadata"]["namespace"], service["metadata"]["name"]): service
            for service in services
        }
        wanted = {door for service in self._services.values() for door in _doors(service)}
        for door in self._relays.keys() - wanted:
            self._relays.pop(door).retire()  # as kube-proxy leaves what conntrack knows
        for door in sorted(wanted - self._relays.keys()):
            relay = Relay(lambda door=door: self._target(door))  # type: ignore[misc]  # a default binds now
            try:
                await relay.listen((HOST_IP, door.node_port))
            except OSError as error:  # tried again at the next change
                logger.warning("node port taken port=%d error=%s", door.node_port, error)
                continue
            self._relays[door] = relay

    def of(self, namespace: str, service: str) -> list[Relay]:
        """The relays of a Service.

        Raises:
            OrderError: It has none.
        """
        found = [
            relay
            for door, relay in self._relays.items()
            if (door.namespace, door.service) == (namespace, service)
        ]
        if not found:
            raise OrderError(f"service {namespace}/{service} has no node port")
        return found

    def close(self) -> None:
        """Close every relay."""
        for relay in self._relays.values():
            relay.close()

    def _target(self, door: _Door) -> Address | None:
        """Where a new connection goes now."""
        service = self._services.get((door.namespace, door.service))
        if service is None:
            return None
        port = next(port for port in service["spec"]["ports"] if _port_name(port) == door.port)
        for pod in self._pods():
            if pod["metadata"]["namespace"] == door.namespace and _serves(pod, service):
                number = _number(port.get("targetPort", port["port"]), pod)
                return (pod["status"]["podIP"], number)
        return None


def _doors(service: Json) -> Iterator[_Door]:
    metadata = service["metadata"]
    for port in service["spec"].get("ports", ()):
        if port.get("nodePort"):
            yield _Door(metadata["namespace"], metadata["name"], _port_name(port), port["nodePort"])


def _port_name(port: Json) -> str:
    return str(port.get("name") or port["port"])


def _serves(pod: Json, service: Json) -> bool:
    selector = service["spec"].get("selector") or {}
    labels = pod["metadata"].get("labels") or {}
    ready = service["spec"].get("publishNotReadyAddresses") or any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod.get("status", {}).get("conditions", ())
    )
    is_selected = bool(selector) and selector.items() <= labels.items()
    return is_selected and ready and bool(pod.get("status", {}).get("podIP"))


def _number(target: int | str, pod: Json) -> int:
    if isinstance(target, int):
        return target
    ports = pod["spec"]["containers"][0].get("ports", ())
    return int(next(port["containerPort"] for port in ports if port.get("name") == target))
