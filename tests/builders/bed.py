"""A hub and its members as real API servers with nodes, side by side.

Each has its own CA and RBAC; definitions and rights are installed on the hub. Programs of SPES are
started by `federation`, per test, in namespaces of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from builders.control_plane import ControlPlane
from builders.control_planes import ControlPlanes
from builders.live_objects import LiveObjects
from builders.rights import install_hub_rights
from builders.stand_in_kubelet import StandInKubelet

_CRDS = Path(__file__).parents[2] / "crds"
_HUB = "hub"
# Labels as GPU feature discovery writes them: every node has one GPU of this kind.
GPU = {
    "nvidia.com/gpu.product": "STAND-IN-80G",
    "nvidia.com/gpu.memory": "81920",
}


@dataclass(frozen=True, kw_only=True)
class Site:
    """One cluster."""

    name: str
    plane: ControlPlane
    kubelet: StandInKubelet
    objects: LiveObjects

    @property
    def node(self) -> str:
        """Its one node."""
        return node_of(self.name)


def node_of(site: str) -> str:
    """The node of a site."""
    return f"{site}-node"


class Bed:
    """A hub and members."""

    def __init__(self, control_planes_of: ControlPlanes, members: Sequence[str]) -> None:
        """Start all of it; `close` ends the nodes, not the control planes."""
        names = (_HUB, *members)
        planes = dict(zip(names, control_planes_of(*names), strict=True))
        kubelets = {name: _nodes(name, plane) for name, plane in planes.items()}
        try:
            _install(planes[_HUB])
            sites = {
                name: Site(
                    name=name,
                    plane=plane,
                    kubelet=kubelets[name].wait(),
                    objects=LiveObjects(plane.kubeconfig),
                )
                for name, plane in planes.items()
            }
        except BaseException:
            for kubelet in kubelets.values():
                kubelet.stop()
            raise
        self.hub = sites.pop(_HUB)
        self.members = sites

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End every connection and every node, and let the control planes forget the nodes."""
        for site in (self.hub, *self.members.values()):
            site.objects.close()
            site.kubelet.stop()
            site.plane.kubectl("delete", "node", site.node, "--ignore-not-found")


def _nodes(name: str, plane: ControlPlane) -> StandInKubelet:
    if name == _HUB:
        return StandInKubelet(plane, {"name": node_of(name)})
    node = {"name": node_of(name), "labels": GPU, "capacity": {"nvidia.com/gpu": "1"}}
    return StandInKubelet(plane, node)


def _install(hub: ControlPlane) -> None:
    hub.kubectl("apply", "--server-side", "-f", str(_CRDS))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    install_hub_rights(hub)
