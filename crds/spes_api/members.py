"""The members file of a local run: which institutions exist on this machine, and what each lends.

Read by `spes run` and `spes explain`; never sent to a cluster, so it has no Kubernetes envelope.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from spes_api.quantity import QuantityBytes
from spes_api.schema_base import ApiModel, Labels, Name


class SlotEntry(ApiModel):
    """One place for a trainer; becomes the peer "<member>.<index>"."""

    memory_bytes: Annotated[QuantityBytes, Field(alias="memory", ge=1)]
    """Device memory that placement may count on, as a Kubernetes quantity."""
    activation_bytes: Annotated[QuantityBytes | None, Field(alias="activation")] = None
    """Peak of activations and workspace, as a quantity. Absent: estimated."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPU threads of the trainer."""
    slowdown: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Step time is multiplied by this, by sleeping: a slower machine."""


class MemberEntry(ApiModel):
    """One institution."""

    name: Name
    """Its peers are <name>.0, <name>.1 and so on."""
    labels: Labels = Field(default_factory=dict)
    """Matched by a job's members.selector."""
    slots: Annotated[list[SlotEntry], Field(min_length=1, max_length=64)]
    """One trainer each."""

    @property
    def peers(self) -> tuple[tuple[str, SlotEntry], ...]:
        """Each slot with the name of its peer."""
        return tuple((f"{self.name}.{index}", slot) for index, slot in enumerate(self.slots))


class MembersFile(ApiModel):
    """All members of a local run."""

    members: Annotated[list[MemberEntry], Field(min_length=1, max_length=512)]
    """In this order on the screen; a name may stand here before its `joins` event."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [member.name for member in self.members]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"must not name a member twice (got {', '.join(twice)})")
        return self
