"""Kubernetes quantities as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_api.quantity import QUANTITY_PATTERN, parse_quantity


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("48Mi", 48 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("2G", 2 * 10**9),
        ("2e9", 2 * 10**9),
        ("100k", 100_000),
        ("7", 7),
        (7, 7),
        ("0.1Ki", 103),  # rounded up
        ("0", 0),
    ],
)
def test_a_quantity_is_bytes(text, num_bytes):
    assert parse_quantity(text) == num_bytes


@pytest.mark.parametrize(
    "value",
    [
        "",
        "4x",
        "Mi",
        "-1Mi",
        "1 Mi",
        "1e999",
        "9" * 19,
        "1.Mi",
        "0x10",
        "1Kib",
        -1,
        True,
        1.5,
        None,
    ],
)
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="must be bytes such as 48Mi"):
        parse_quantity(value)


@given(text=st.from_regex(QUANTITY_PATTERN, fullmatch=True))
def test_whatever_the_schema_lets_through_can_be_read(text):
    assert parse_quantity(text.removesuffix("\n")) >= 0
