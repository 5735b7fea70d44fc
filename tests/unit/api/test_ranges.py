"""Expert ids as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_api.ranges import MAX_ID, format_ranges, parse_ranges


@pytest.mark.parametrize(
    ("ids", "text"),
    [((), ""), ((5,), "5"), ((0, 1, 2, 3, 6), "0-3,6"), ((3, 1, 2, 2), "1-3"), ((0, 2), "0,2")],
)
def test_runs_are_joined(ids, text):
    assert format_ranges(ids) == text


@given(ids=st.frozensets(st.integers(0, MAX_ID), max_size=50))
def test_what_is_written_can_be_read(ids):
    assert parse_ranges(format_ranges(ids)) == ids


@pytest.mark.parametrize("text", ["3-1", "0-9999", "-1", "1-", "1,,2", " 1", "a", "1\n", "٣"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="range"):
        parse_ranges(text)


@given(text=st.text(max_size=20))
def test_no_text_raises_anything_but_a_value_error(text):
    try:
        ids = parse_ranges(text)
    except ValueError:
        return
    assert all(0 <= number <= MAX_ID for number in ids)
