"""How a SpesJob is: its status, written by the hub alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from spes_api.schema_base import ApiModel, Conditions, Count, PeerName, Text, Word, list_map


class MemberCounts(ApiModel):
    """Placed peers that are ready, and those wanted."""

    ready: Count = 0
    """Caught up and connected."""
    desired: Count = 0
    """Placed."""


class ExpertCounts(ApiModel):
    """How many experts have an owner."""

    total: Count = 0
    """M."""
    owned: Count = 0
    """Trained by a peer."""
    parked: Count = 0
    """Frozen for want of memory."""


class OwnershipRow(ApiModel):
    """What one peer owns."""

    peer: PeerName
    """<member>.<slot>."""
    experts: Text
    """Ranges, for example "0-3,6"."""
    contribution: Annotated[float, Field(ge=0, le=1)] = 0
    """Its part of all tokens trained so far, whatever its weight in an average."""


class Images(ApiModel):
    """Container images; empty: none is given."""

    trainer: Annotated[str, StringConstraints(max_length=512)] = ""
    """Of peers whose job names no image."""
    sync: Annotated[str, StringConstraints(max_length=512)] = ""
    """Of the sync server."""


class SpesJobStatus(ApiModel):
    """How the job is; written by the hub alone."""

    observed_generation: Count = 0
    """The spec's generation that this status speaks of."""
    ownership_epoch: Count = 0
    """Raised by one with every change of ownership."""
    incarnation: Count = 0
    """How often the model was seeded; more than 1: the sync server lost its volume."""
    round: Count = 0
    """The last committed round."""
    tokens: Count = 0
    """Trained so far, all peers together."""
    loss: float | None = None
    """Held-out, of the last evaluated version; nats per token."""
    members: MemberCounts = MemberCounts()
    """Peers."""
    experts: ExpertCounts = ExpertCounts()
    """Experts with and without an owner."""
    ownership: Annotated[
        list[OwnershipRow], Field(max_length=64, json_schema_extra=list_map("peer"))
    ] = Field(default_factory=list)
    """Who owns what."""
    sync_endpoint: Word = ""
    """host:port of the sync server."""
    images: Images = Images()
    """What the chart gave when the job started; a newer chart changes no running job."""
    active_seconds: Count = 0
    """Trained for, up to the last suspension or the end; activeDeadlineSeconds limits it."""
    active_since: Word = ""
    """Since when more of it is counted, RFC 3339; empty: none is counted now."""
    expires_at: Word = ""
    """When the finished job is deleted, by ttlSecondsAfterFinished; empty: it is kept."""
    conditions: Conditions = Field(default_factory=list)
    """Ready sums the others up."""
