"""The settings all API models share, and the Kubernetes envelope around them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

GROUP = "spes.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# RFC 1123 label; 40 leaves room for the suffixes of derived objects within Kubernetes' 63.
Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=40)
]
# "<member>.<slot>", for example "uni-a.0".
PeerName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Text = Annotated[str, StringConstraints(max_length=1024)]
Seconds = Annotated[int, Field(ge=0, le=31_536_000)]


class ApiModel(BaseModel):
    """A frozen model with camelCase keys that refuses keys it does not know."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Metadata(BaseModel):
    """The part of Kubernetes' ObjectMeta that SPES reads; other keys are kept."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="allow", frozen=True, populate_by_name=True
    )

    name: Name
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class Condition(ApiModel):
    """A Kubernetes condition: the one form in which SPES says how things are."""

    type: Annotated[str, StringConstraints(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, StringConstraints(max_length=64)]
    """CamelCase, for machines."""
    message: Text = ""
    """One sentence, for people."""
    observed_generation: int = 0
    last_transition_time: str = ""
