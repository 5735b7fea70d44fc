"""Kubernetes quantities ("48Mi", "1.5G", "2e9") as whole bytes. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Annotated

from pydantic import BeforeValidator, Field

# Suffixes of Kubernetes' resource.Quantity that make sense for bytes.
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
# Digits and exponent are short on purpose: a number of a million digits is an attack.
QUANTITY_PATTERN = r"^([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:[eE]([0-9]{1,2})|([kMGTP]|[KMGTP]i))?$"
_QUANTITY = re.compile(QUANTITY_PATTERN)


def parse_quantity(value: object) -> int:
    """Bytes of a quantity; fractions of a byte are rounded up, as Kubernetes does.

    Raises:
        ValueError: not a quantity.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be bytes such as 48Mi, 1.5Gi or 2e9 (got {value!r:.60})")
    number, exponent, unit = match.groups()
    power = Fraction(f"1e{exponent or 0}")
    return ceil(Fraction(number) * power * _UNITS[unit or ""])


# A pydantic field that takes a quantity and holds bytes.
QuantityBytes = Annotated[int, BeforeValidator(parse_quantity), Field(ge=0)]
