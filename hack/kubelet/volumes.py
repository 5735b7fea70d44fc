"""A pod's volumes as folders and links: what a kubelet mounts.

A volume of Secrets, ConfigMaps or the downward API is written into the pod's own folder, and again
when they change. A claim is a folder that outlives the pod. Nothing is read-only here: pods and
this program are one user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spes_operator.local.mounts import write_secret

from kubelet.environment import Lookup, content, field
from kubelet.errors import MissingInputError, UnsupportedPodError
from kubelet.paths import inside
from kubelet.pod_spec import Json, Pod

# A pod that waits for a volume shows no other reason than this one.
_WAITS = "ContainerCreating"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFolder:
    """Where everything of one pod lies."""

    path: Path
    claims: Path
    """Of all pods: a folder for each claim, by its uid."""

    @property
    def root(self) -> Path:
        """The container's root folder."""
        return self.path / "root"

    @property
    def log(self) -> Path:
        """Output of its processes."""
        return self.path / "log"


def mount(pod: Pod, folder: PodFolder, lookup: Lookup, ip: str) -> None:
    """Lay out every volume where the container sees it.

    Raises:
        MissingInputError: Something is not there yet; what is, is laid out.
        UnsupportedPodError: A volume of a kind that is not played.
    """
    folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(pod, folder, lookup, ip)
    for place in pod.container.mounts:
        source = _source(pod, folder, lookup, place.volume) / place.sub_path
        source.mkdir(parents=True, exist_ok=True)
        link = inside(folder.root, place.path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(source, target_is_directory=True)


def write(pod: Pod, folder: PodFolder, lookup: Lookup, ip: str) -> None:
    """Bring the files of Secrets, ConfigMaps and the downward API up to date.

    Raises:
        MissingInputError: One of them is not there.
    """
    for name, volume in pod.volumes.items():
        if (files := _files(volume, pod, lookup, ip)) is not None:
            target = folder.path / "volumes" / name
            write_secret(target, files)
            for stale in {path.name for path in target.iterdir()} - files.keys():
                (target / stale).unlink()


def _source(pod: Pod, folder: PodFolder, lookup: Lookup, name: str) -> Path:
    """The folder behind a volume."""
    volume = pod.volumes[name]
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    if "persistentVolumeClaim" not in volume:
        return folder.path / "volumes" / name
    claim_name = volume["persistentVolumeClaim"]["claimName"]
    claim = lookup("PersistentVolumeClaim", pod.namespace, claim_name)
    if claim is None:
        raise MissingInputError(_WAITS, f'persistentvolumeclaim "{claim_name}" not found')
    return claim_folder(folder.claims, claim)


def claim_folder(claims: Path, claim: Json) -> Path:
    """The folder of a claim."""
    return claims / str(claim["metadata"]["uid"])


def _files(volume: Json, pod: Pod, lookup: Lookup, ip: str) -> Mapping[str, bytes] | None:
    """Files of a volume that is made from objects; None for one that has its own."""
    if volume.keys() & {"emptyDir", "persistentVolumeClaim", "hostPath"}:
        return None
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    files: dict[str, bytes] = {}
    for source in sources:
        files |= _files_of(source, pod, lookup, ip)
    return files


def _files_of(source: Json, pod: Pod, lookup: Lookup, ip: str) -> Mapping[str, bytes]:
    if "downwardAPI" in source:
        items = source["downwardAPI"]["items"]
        return {
            item["path"]: field(pod, item["fieldRef"]["fieldPath"], ip).encode() for item in items
        }
    for key, kind in (("secret", "Secret"), ("configMap", "ConfigMap")):
        if key in source:
            return _chosen(kind, source[key], pod, lookup)
    raise UnsupportedPodError(f"a volume of {', '.join(sorted(source.keys() - {'name'}))}")


def _chosen(kind: str, source: Json, pod: Pod, lookup: Lookup) -> Mapping[str, bytes]:
    """The keys that the volume asks for, by the file names that it gives them."""
    name = source.get("secretName") or source["name"]
    obj = lookup(kind, pod.namespace, name)
    if obj is None:
        if source.get("optional"):
            return {}
        raise MissingInputError(_WAITS, f'{kind.lower()} "{name}" not found')
    data = content(kind, obj)
    if "items" not in source:
        return data
    missing = [item["key"] for item in source["items"] if item["key"] not in data]
    if missing and not source.get("optional"):
        raise MissingInputError(_WAITS, f'{kind.lower()} "{name}" has no key {missing[0]}')
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}
