"""The precision of a link: the worked example, no flipping at a limit, one step at a time."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.client.precision import Link, Precision, Upload
from spes_sync.quantize import Codec

# Of GPT-2 Medium, synchronised every ten minutes: an upload may take 30 s.
NUM_VALUES, INTERVAL = 354_823_168, 600
RUNGS = [Codec.FP32, Codec.BF16, Codec.UINT8]

links = st.builds(
    Link,
    codec=st.sampled_from(RUNGS),
    bytes_per_second=st.floats(1e3, 1e10),
    ratio=st.floats(0.05, 1),
)
sizes = st.integers(1, 10**11)


def link(megabytes: float, codec: Codec = Codec.BF16, ratio: float = 1.0) -> Link:
    return Link(codec=codec, bytes_per_second=megabytes * 1e6, ratio=ratio)


@pytest.mark.parametrize(
    ("megabytes", "codec", "seconds"),
    [(100, Codec.FP32, 14.2), (40, Codec.BF16, 17.7), (10, Codec.UINT8, 35.5)],
    ids=["fast", "in between", "slow, and over the budget"],
)
def test_the_worked_example(megabytes, codec, seconds):
    assert link(megabytes).fitting(NUM_VALUES, INTERVAL) is codec
    assert link(megabytes).seconds(codec, NUM_VALUES) == pytest.approx(seconds, abs=0.05)


def test_fp32_would_be_over_the_budget_in_between():
    assert link(40).seconds(Codec.FP32, NUM_VALUES) == pytest.approx(35.5, abs=0.05)


def test_a_better_precision_needs_a_fifth_of_the_budget_to_spare():
    just_fits, spare = link(4 * NUM_VALUES / 29 / 1e6), link(4 * NUM_VALUES / 23 / 1e6)
    assert just_fits.fitting(NUM_VALUES, INTERVAL) is Codec.FP32
    assert just_fits.next_codec(NUM_VALUES, INTERVAL) is Codec.BF16
    assert spare.next_codec(NUM_VALUES, INTERVAL) is Codec.FP32


def test_a_rate_that_swings_about_a_limit_flips_nothing():
    now, seen = link(4 * NUM_VALUES / 30 / 1e6, Codec.FP32), []
    for swing in (0.9, 1.05) * 20:
        megabytes = swing * 4 * NUM_VALUES / 30
        now = now.after(Upload(num_bytes=int(megabytes), seconds=1, ratio=1.0))
        codec = now.next_codec(NUM_VALUES, INTERVAL)
        now = Link(codec=codec, bytes_per_second=now.bytes_per_second)
        seen.append(codec)
    assert set(seen[1:]) == {Codec.BF16}


@given(link=links, num_values=sizes, interval=st.floats(0.1, 1e5))
def test_it_moves_by_one_at_most_and_towards_what_fits(link, num_values, interval):
    now = RUNGS.index(link.codec)
    then = RUNGS.index(link.next_codec(num_values, interval))
    wanted = RUNGS.index(link.fitting(num_values, interval))
    assert abs(then - now) <= 1
    assert min(now, wanted) <= then <= max(now, wanted)
    if then < now:
        assert link.seconds(RUNGS[then], num_values) < 0.8 * 0.05 * interval


@given(link=links, num_values=sizes, interval=st.floats(0.1, 1e5))
def test_at_one_rate_it_comes_to_rest(link, num_values, interval):
    for _ in RUNGS:
        codec = link.next_codec(num_values, interval)
        link = Link(codec=codec, bytes_per_second=link.bytes_per_second, ratio=link.ratio)
    assert link.next_codec(num_values, interval) is link.codec


def test_the_rate_is_smoothed_and_the_ratio_is_that_of_the_last_uint8():
    now = Link(codec=Codec.UINT8).after(Upload(num_bytes=100, seconds=1, ratio=0.8))
    assert (now.bytes_per_second, now.ratio) == (100, 0.8)
    now = now.after(Upload(num_bytes=200, seconds=1, ratio=0.7))
    assert (now.bytes_per_second, now.ratio) == (pytest.approx(130), 0.7)
    other = Link(codec=Codec.BF16, bytes_per_second=1.0, ratio=0.7)
    assert other.after(Upload(num_bytes=1, seconds=1, ratio=0.99)).ratio == 0.7


def test_before_the_first_measurement_it_is_the_one_in_the_middle():
    precision = Precision("Auto")
    precision.choose(NUM_VALUES, INTERVAL)
    assert precision.codec is Codec.BF16


def test_what_was_chosen_and_how_long_it_took_is_logged(caplog):
    caplog.set_level(logging.INFO)
    precision = Precision("Auto")
    precision.sent(Upload(num_bytes=10_000_000, seconds=1, ratio=1.0))
    precision.choose(NUM_VALUES, INTERVAL)
    precision.sent(Upload(num_bytes=400_000_000, seconds=40, ratio=1.0))
    assert precision.codec is Codec.UINT8
    assert "codec=UINT8 rate_mb_s=10.0 predicted_s=35.48 took_s=40.00" in caplog.text


def test_a_fixed_precision_looks_at_no_link(caplog):
    precision = Precision("INT8")
    precision.sent(Upload(num_bytes=1, seconds=100, ratio=1.0))
    precision.choose(NUM_VALUES, INTERVAL)
    assert precision.codec is Codec.INT8
    assert not caplog.text
