"""The CustomResourceDefinitions of the four kinds: names, scope, columns, schema. Pure.

Written to crds/*.yaml by `generate`; installed by the chart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment
from spes_api.schema_base import GROUP, VERSION, Name
from spes_api.structural import Schema, structural_schema

CATEGORY = "spes"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    path: str
    wide: bool = False
    """Only with `-o wide`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One kind."""

    model: type[BaseModel]
    plural: str
    short_name: str
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """Of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"

    def manifest(self) -> dict[str, Any]:
        """The CustomResourceDefinition object."""
        kind = self.model.__name__
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": self.plural,
                    "singular": kind.lower(),
                    "shortNames": [self.short_name],
                    "categories": [CATEGORY],
                },
                "versions": [
                    {
                        "name": VERSION,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [_printed(column) for column in self.columns],
                        "schema": {"openAPIV3Schema": _object_schema(self.model)},
                    }
                ],
            },
        }


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE = Column("Age", "date", ".metadata.creationTimestamp")

DEFINITIONS = (
    Definition(
        model=SpesJob,
        plural="spesjobs",
        short_name="sj",
        scope="Namespaced",
        columns=(
            Column("Ready", "string", _condition("Ready")),
            Column("Reason", "string", _condition("Ready", "reason")),
            Column("Members", "integer", ".status.members.ready"),
            Column("Experts", "integer", ".status.experts.owned"),
            Column("Round", "integer", ".status.round"),
            Column("Epoch", "integer", ".status.ownershipEpoch"),
            Column("Loss", "number", ".status.loss"),
            Column("Sync", "string", ".status.syncEndpoint", wide=True),
            Column("Mode", "string", ".spec.reassignment.mode", wide=True),
            _AGE,
        ),
    ),
    Definition(
        model=MemberCluster,
        plural="memberclusters",
        short_name="mc",
        scope="Cluster",
        columns=(
            Column("Accepted", "string", _condition("Accepted")),
            Column("Ready", "string", _condition("Ready")),
            Column("GPUs", "integer", ".status.gpus"),
            Column("Jobs", "integer", ".status.jobs"),
            Column("Version", "string", ".status.version"),
            Column("Last-Seen", "date", ".status.lastHeartbeatObserved"),
            Column("Reason", "string", _condition("Ready", "reason"), wide=True),
            Column("Slots", "integer", ".status.slots", wide=True),
            _AGE,
        ),
    ),
    Definition(
        model=MemberReport,
        plural="memberreports",
        short_name="mr",
        scope="Namespaced",
        columns=(Column("Version", "string", ".status.version"), _AGE),
    ),
    Definition(
        model=TrainerAssignment,
        plural="trainerassignments",
        short_name="ta",
        scope="Namespaced",
        columns=(
            Column("Job", "string", r".metadata.labels.spes\.dev/job"),
            Column("Experts", "string", ".spec.experts"),
            Column("Desired", "string", ".spec.desired"),
            Column("Ready", "string", _condition("PodReady")),
            _AGE,
        ),
    ),
)


def _printed(column: Column) -> dict[str, Any]:
    printed = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**printed, "priority": 1} if column.wide else printed


def _object_schema(model: type[BaseModel]) -> Schema:
    """The envelope: of metadata an API server lets a kind narrow the name alone."""
    name = TypeAdapter(Name).json_schema()
    properties: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": name}},
    }
    required = []
    for key in ("spec", "status"):
        if (field := model.model_fields.get(key)) is None:
            continue
        assert isinstance(field.annotation, type)  # a model of ours
        properties[key] = structural_schema(field.annotation, defaults=key == "spec")
        if field.is_required():
            required.append(key)
    schema: Schema = {
        "type": "object",
        "description": " ".join((model.__doc__ or "").split()),
        "properties": properties,
    }
    return {**schema, "required": required} if required else schema
