"""The settings all API models share, the Kubernetes envelope around them, and rules in CEL.

A rule over several fields is written twice, side by side in its model: as a pydantic validator,
which judges files, and as a CEL expression, which an API server judges. Their messages begin alike.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

GROUP = "spes.dev"
VERSION = "v1alpha1"
API_VERSION: Final = "spes.dev/v1alpha1"

# Larger than any count of tokens, and exact as a double, which JSON numbers are.
MAX_COUNT = 10**15

# RFC 1123 label; 40 leaves room for the suffixes of derived objects within Kubernetes' 63.
Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=40)
]
# "<member>.<slot>", for example "uni-a.0".
PeerName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
# Of a Kubernetes namespace; empty: none.
Namespace = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)
]
Text = Annotated[str, StringConstraints(max_length=1024)]
# A word of at most a line: an address, a version, a time, a hash.
Word = Annotated[str, StringConstraints(max_length=253)]
# PEM certificates.
Pem = Annotated[str, StringConstraints(max_length=65_536)]
Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
PositiveSeconds = Annotated[int, Field(ge=1, le=31_536_000)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Fraction = Annotated[float, Field(ge=0, le=1)]
# How often a trainer may fail in its slot, and the default, which is that of a Kubernetes Job.
BackoffLimit = Annotated[int, Field(ge=0, le=1000)]
BACKOFF_LIMIT: Final = 6
# Value of a label or of a Kubernetes resource limit.
ShortText = Annotated[str, StringConstraints(max_length=63)]
_LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_KEYS = "must have keys such as region or example.org/region"


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if wrong := [key for key in labels if not re.match(_LABEL_KEY, key)]:
        raise ValueError(
            f"{_LABEL_KEYS} (got {wrong[0]!r:.60}); use letters, digits and inner - _ ."
        )
    return labels


# As Kubernetes takes them, or a selector over them.
Labels = Annotated[
    dict[str, ShortText],
    Field(
        max_length=16,
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": f"self.all(key, key.matches('{_LABEL_KEY}'))", "message": _LABEL_KEYS}
            ]
        },
    ),
    AfterValidator(_labels),
]
# Kubernetes resource limits, for example {nvidia.com/gpu: "8"}.
Resources = Annotated[dict[str, ShortText], Field(max_length=16)]


class ApiModel(BaseModel):
    """A frozen model with camelCase keys that refuses keys it does not know."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        strict=True,  # as an API server: "10" is no integer
        use_attribute_docstrings=True,
    )


class Cel(NamedTuple):
    """One rule that an API server checks."""

    rule: str
    message: str


def cel_rules(*rules: Cel) -> ConfigDict:
    """The `model_config` of a model with rules over several of its fields."""
    return ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [rule._asdict() for rule in rules]}
    )


def list_map(key: str) -> JsonDict:
    """The `json_schema_extra` of a list that an API server merges by a field of its entries."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Metadata(BaseModel):
    """The part of Kubernetes' ObjectMeta that SPES reads; other keys are kept."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="allow", frozen=True, populate_by_name=True
    )

    name: Name
    namespace: Namespace = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class Condition(ApiModel):
    """A Kubernetes condition: the one form in which SPES says how things are."""

    type: Annotated[str, StringConstraints(max_length=64)]
    """What is judged, for example Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, StringConstraints(max_length=64)]
    """CamelCase, for machines."""
    message: Text = ""
    """One sentence, for people."""
    observed_generation: Count = 0
    """The spec's generation that was judged."""
    last_transition_time: Word = ""
    """When the status last changed, RFC 3339."""


Conditions = Annotated[list[Condition], Field(max_length=16, json_schema_extra=list_map("type"))]
