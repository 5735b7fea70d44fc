"""BF16 and block INT8: error bounds, exact decoding, refusals, and what error feedback keeps."""

import numpy as np
import pytest
from builders.coded_tensors import decoded, encoded
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from spes_proto.v1 import sync_pb2
from spes_sync.errors import DivergedError, ProtocolError
from spes_sync.quantize import (
    BLOCK_ELEMENTS,
    PIECE_ELEMENTS,
    Codec,
    decode,
    encode_with_residual,
    encoded_bytes,
)

CODECS = pytest.mark.parametrize("codec", [Codec.FP32, Codec.BF16, Codec.INT8], ids=str)
# Rounding of the quotient in float32 may move a tie, by half a unit in the last place of 127.
TIE = 1 + 2.0**-16
# A piece, a block and a short block: every boundary occurs.
LONG = PIECE_ELEMENTS + BLOCK_ELEMENTS + 3

finite = st.floats(width=32, min_value=-(2.0**126), max_value=2.0**126)
tensors = arrays.arrays(np.float32, st.integers(1, 40), elements=finite)


# Float32 bit patterns around the ties of bfloat16, where random floats never fall.
near_ties = st.tuples(
    st.integers(0, 0xFFFF).filter(lambda upper: upper & 0x7FFF < 0x7F00),
    st.sampled_from([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]),
).map(lambda halves: halves[0] << 16 | halves[1])


def normal(size, *, seed=0, scale=1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=size)).astype("f4")


def test_sizes_are_those_on_the_wire():
    assert encoded_bytes(Codec.BF16, 10) == 20
    assert [encoded_bytes(Codec.INT8, n) for n in (0, 1, 4096, 4097)] == [0, 5, 4100, 4105]


@given(bits=st.lists(near_ties, min_size=1, max_size=40))
def test_bf16_takes_the_nearest_and_the_even_of_two(bits):
    values = np.array(bits, np.uint32).view(np.float32)
    got = decoded(Codec.BF16, encoded(Codec.BF16, values), values.size)
    lower = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    upper = (lower.view(np.uint32) + np.uint32(0x10000)).view(np.float32)
    to_lower = np.abs(values.astype(float) - lower)
    to_upper = np.abs(upper.astype(float) - values)
    odd = (lower.view(np.uint32) >> 16) & 1 == 1
    expected = np.where((to_upper < to_lower) | ((to_upper == to_lower) & odd), upper, lower)
    assert got.tobytes() == expected.tobytes()


def test_bf16_error_is_at_most_one_in_256():
    values = normal(LONG)
    got = decoded(Codec.BF16, encoded(Codec.BF16, values), values.size)
    assert (np.abs(got - values) <= np.abs(values) / 256).all()


@given(values=tensors)
def test_int8_error_is_at_most_absmax_over_254(values):
    got = decoded(Codec.INT8, encoded(Codec.INT8, values), values.size)
    bound = np.abs(values).max() / 254 * TIE + np.finfo(np.float32).tiny * 127
    assert (np.abs(got.astype(float) - values) <= bound).all()


def test_an_outlier_hurts_its_own_block_only():
    values = normal(2 * BLOCK_ELEMENTS)
    values[5] = 1e6
    got = decoded(Codec.INT8, encoded(Codec.INT8, values), values.size)
    error = np.abs(got - values)
    assert error[:BLOCK_ELEMENTS].max() > 1
    assert error[BLOCK_ELEMENTS:].max() <= np.abs(values[BLOCK_ELEMENTS:]).max() / 254 * TIE


@CODECS
@given(values=tensors)
def test_encoding_what_was_decoded_gives_the_same_bytes(codec, values):
    data = encoded(codec, values)
    assert encoded(codec, decoded(codec, data, values.size)) == data


@CODECS
def test_every_scale_survives_the_way_there_and_back(codec):
    values = normal(LONG, scale=1e-3) * np.exp2(normal(LONG, seed=1)).astype("f4")
    data = encoded(codec, values)
    assert encoded(codec, decoded(codec, data, values.size)) == data


@given(values=tensors)
def test_int8_products_are_exact(values):
    data = np.frombuffer(encoded(Codec.INT8, values), np.uint8)
    scale, levels = float(data[:4].view("<f4")[0]), data[4:].view(np.int8)
    got = decoded(Codec.INT8, data, values.size)
    assert got.astype(float).tolist() == [scale * level for level in levels.tolist()]


@CODECS
def test_zero_stays_zero(codec):
    assert not decoded(codec, encoded(codec, np.zeros(LONG, np.float32)), LONG).any()


def test_untouched_entries_stay_zero_beside_others():
    values = normal(BLOCK_ELEMENTS)
    values[::2] = 0
    assert not decoded(Codec.INT8, encoded(Codec.INT8, values), values.size)[::2].any()


def test_values_too_small_for_a_scale_wait_in_the_residual():
    values = np.array([127 * 255 * 2.0**-149], np.float32)
    out = bytearray(encoded_bytes(Codec.INT8, 1))
    sent = encode_with_residual(Codec.INT8, values, np.zeros_like(values), out)
    assert (sent.decoded, sent.residual) == (0, values)


def test_equal_values_with_a_short_scale_are_exact():
    values = np.full(LONG, 0.75, np.float32)
    assert (decoded(Codec.BF16, encoded(Codec.BF16, values), LONG) == values).all()
    values = np.full(LONG, 127 * 0.75, np.float32)
    assert (decoded(Codec.INT8, encoded(Codec.INT8, values), LONG) == values).all()


@CODECS
@pytest.mark.parametrize("cut", [BLOCK_ELEMENTS, PIECE_ELEMENTS], ids=["block", "piece"])
def test_piece_by_piece_gives_the_same_bytes(codec, cut):
    values = normal(LONG)
    assert encoded(codec, values[:cut]) + encoded(codec, values[cut:]) == encoded(codec, values)


@CODECS
def test_tensors_of_any_shape_are_taken(codec):
    values = normal((3, 5, 7))
    out = np.empty((3, 5, 7), np.float32)
    decode(codec, encoded(codec, values), out)
    np.testing.assert_allclose(out, values, atol=np.abs(values).max() / 254 * TIE)


@CODECS
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("index", [0, BLOCK_ELEMENTS, PIECE_ELEMENTS, LONG - 1])
def test_what_is_not_finite_is_not_sent(codec, value, index):
    values = np.zeros(LONG, np.float32)
    values[index] = value
    with pytest.raises(DivergedError, match=rf"{codec.value} \(got -?(nan|inf)\)"):
        encoded(codec, values)


def test_values_beyond_bfloat16_are_not_sent():
    largest = np.array([0x7F7F7FFF], np.uint32).view(np.float32)
    assert np.isfinite(decoded(Codec.BF16, encoded(Codec.BF16, largest), 1)).all()
    with pytest.raises(DivergedError, match=r"BF16 \(got 3\.39"):
        encoded(Codec.BF16, np.array([0x7F7F8000], np.uint32).view(np.float32))


@CODECS
@pytest.mark.parametrize("change", [-1, 1], ids=["short", "long"])
def test_a_wrong_length_is_refused_untouched(codec, change):
    data = encoded(codec, normal(100))
    data = data[:change] if change < 0 else data + b"\0" * change
    out = np.full(100, 7, np.float32)
    with pytest.raises(ProtocolError, match=r"\(expected ") as caught:
        decode(codec, data, out)
    assert caught.value.reason == sync_pb2.WRONG_SHAPE
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.BF16, b"\x80\x7f"),
        (Codec.BF16, b"\xc1\xff"),
        (Codec.INT8, b"\x00\x00\xc0\x7f\x01"),
        (Codec.INT8, b"\x00\x00\x80\x7f\x01"),
        (Codec.INT8, b"\x00\x00\x80\xbf\x01"),
        (Codec.INT8, b"\xff\xff\x7f\x7f\x7f"),
    ],
    ids=["BF16 inf", "BF16 nan", "INT8 nan", "INT8 inf", "INT8 negative scale", "INT8 overflow"],
)
def test_hostile_bytes_are_refused(codec, data):
    with pytest.raises(ProtocolError) as caught:
        decoded(codec, data, 1)
    assert caught.value.reason == sync_pb2.NOT_FINITE


@CODECS
@given(data=st.binary(min_size=15, max_size=15))
def test_any_bytes_decode_to_finite_values_or_are_refused(codec, data):
    size = encoded_bytes(codec, 7)
    try:
        values = decoded(codec, (data * 2)[:size], 7)
    except ProtocolError:
        return
    assert np.isfinite(values).all()


@CODECS
@given(delta=tensors, seed=st.integers(0, 99))
def test_nothing_is_lost_between_delta_and_residual(codec, delta, seed):
    residual = normal(delta.shape, seed=seed, scale=0.01)
    out = bytearray(encoded_bytes(codec, delta.size))
    sent = encode_with_residual(codec, delta, residual, out)
    owed = (delta + residual).astype(float)
    assert (sent.decoded.astype(float) + sent.residual == owed).all()
    assert sent.decoded.tobytes() == decoded(codec, bytes(out), delta.size).tobytes()


@CODECS
def test_what_arrived_is_the_sum_of_the_deltas_less_the_last_residual(codec):
    rounds, size = 50, BLOCK_ELEMENTS + 5
    out = bytearray(encoded_bytes(codec, size))
    residual, arrived, given_ = np.zeros(size, np.float32), np.zeros(size), np.zeros(size)
    largest = 0.0
    for number in range(rounds):
        delta = normal(size, seed=number)
        largest = max(largest, float(np.abs(delta + residual).max()))
        sent = encode_with_residual(codec, delta, residual, out)
        arrived, given_, residual = arrived + sent.decoded, given_ + delta, sent.residual
        assert np.abs(residual).max() <= largest / (254 if codec is Codec.INT8 else 256) * TIE
    # Only fl(delta + residual) rounds: half a unit in the last place a round.
    assert np.abs(arrived + residual - given_).max() <= rounds * largest * 2.0**-24


def test_feedback_sends_what_rounding_alone_would_drop_for_ever():
    delta = np.array([127.0, 0.3], np.float32)
    out = bytearray(encoded_bytes(Codec.INT8, 2))
    assert decoded(Codec.INT8, encoded(Codec.INT8, delta), 2)[1] == 0
    residual, arrived = np.zeros(2, np.float32), 0.0
    for _ in range(100):
        sent = encode_with_residual(Codec.INT8, delta, residual, out)
        residual, arrived = sent.residual, arrived + float(sent.decoded[1])
    assert arrived == pytest.approx(30, abs=0.6)


@CODECS
def test_a_sum_that_overflows_is_not_sent(codec):
    huge = np.full(3, 3e38, np.float32)
    with pytest.raises(DivergedError, match=r"got inf"):
        encode_with_residual(codec, huge, huge, bytearray(encoded_bytes(codec, 3)))


@CODECS
def test_inputs_are_not_written_to(codec):
    delta, residual = normal(LONG), normal(LONG, seed=1, scale=0.01)
    delta.flags.writeable = residual.flags.writeable = False
    encode_with_residual(codec, delta, residual, bytearray(encoded_bytes(codec, LONG)))
