"""What a member of the members file lends, in the form in which members report it."""

from __future__ import annotations

from spes_api.kinds import SlotOffer
from spes_api.members import MemberEntry


def slot_offers(member: MemberEntry) -> tuple[SlotOffer, ...]:
    """Every slot of `member`, named by its number."""
    return tuple(
        SlotOffer(
            name=str(index),
            memory_bytes=slot.memory_bytes,
            activation_bytes=slot.activation_bytes,
        )
        for index, slot in enumerate(member.slots)
    )
