"""UINT8 and INT16: worked examples, error bounds, zeros, refusals, and what feedback keeps."""

import struct

import numpy as np
import pytest
from builders.coded_tensors import decoded, encoded
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from spes_proto.v1 import sync_pb2
from spes_sync.entropy import Huffman
from spes_sync.errors import DivergedError, ProtocolError
from spes_sync.manifest import TensorSpec
from spes_sync.minmax import SPAN_BYTES, Span
from spes_sync.payloads import FiniteCheck
from spes_sync.quantize import (
    PIECE_ELEMENTS,
    Codec,
    encode_with_residual,
    encoded_bytes,
)

ALL = [codec for codec in Codec if codec.has_span]
KEEPING = [Codec.UINT8, Codec.INT16]
PAPER = [Codec.UINT8_PAPER, Codec.INT16_PAPER]
LEVELS = {Codec.UINT8: 255, Codec.UINT8_PAPER: 255, Codec.INT16: 65535, Codec.INT16_PAPER: 65535}
CODECS = pytest.mark.parametrize("codec", ALL, ids=str)
EXAMPLE = np.array([-1, -0.5, 0, 0.25, 1], np.float32)
# Half a step, and what rounding to float32 adds to it.
HALF = 0.5 + 2.0**-7

finite = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)
tensors = arrays.arrays(np.float32, st.integers(1, 40), elements=finite)


def step_of(codec, values) -> float:
    return (float(values.max()) - float(values.min())) / LEVELS[codec]


def levels_in(data: bytes) -> list[int]:
    """Of INT16: from its two planes."""
    high, low = np.frombuffer(data[SPAN_BYTES:], np.uint8).reshape(2, -1)
    return (high.view(np.int8).astype(int) * 256 + low).tolist()


def test_uint8_in_the_papers_form():
    data = encoded(Codec.UINT8_PAPER, EXAMPLE)
    assert list(data[SPAN_BYTES:]) == [0, 64, 128, 159, 255]
    got = decoded(Codec.UINT8_PAPER, data, 5)
    assert got == pytest.approx([-1, -0.498039, 0.003922, 0.247059, 1], abs=1e-6)
    assert np.abs(got - EXAMPLE).max() == pytest.approx(2 / 510, abs=1e-8)


def test_uint8_that_keeps_zero():
    data = encoded(Codec.UINT8, EXAMPLE)
    assert list(data[SPAN_BYTES:]) == [0, 64, 128, 160, 255]
    got = decoded(Codec.UINT8, data, 5)
    assert got == pytest.approx([-1.003922, -0.501961, 0, 0.250980, 0.996078], abs=1e-6)
    assert got[2] == 0


def test_int16_in_the_papers_form():
    assert levels_in(encoded(Codec.INT16_PAPER, EXAMPLE)) == [-32768, -16384, 0, 8191, 32767]


def test_sizes_are_those_on_the_wire():
    sizes = [encoded_bytes(Codec.UINT8, n) for n in (0, 1, PIECE_ELEMENTS, PIECE_ELEMENTS + 1)]
    assert sizes == [0, 9, PIECE_ELEMENTS + 8, PIECE_ELEMENTS + 17]
    assert encoded_bytes(Codec.INT16, 3) == 14


@CODECS
@given(values=tensors)
def test_the_error_is_at_most_half_a_step(codec, values):
    got = decoded(codec, encoded(codec, values), values.size)
    ulp = np.spacing(np.abs(values).max())
    assert (np.abs(got.astype(float) - values) <= HALF * step_of(codec, values) + ulp).all()


@pytest.mark.parametrize("codec", KEEPING, ids=str)
@given(values=tensors)
def test_zeros_stay_zero(codec, values):
    values[::2] = 0
    assert not decoded(codec, encoded(codec, values), values.size)[::2].any()


def test_zeros_drift_in_the_papers_form():
    values = np.array([-1, 0, 1], np.float32)
    assert decoded(Codec.UINT8_PAPER, encoded(Codec.UINT8_PAPER, values), 3)[1] != 0


@pytest.mark.parametrize("codec", PAPER, ids=str)
@given(values=tensors)
def test_encoding_what_was_decoded_gives_the_same_bytes(codec, values):
    data = encoded(codec, values)
    assert encoded(codec, decoded(codec, data, values.size)) == data


@CODECS
@given(values=tensors)
def test_and_so_it_does_in_the_span_of_before(codec, values):
    data, span = encoded(codec, values), Span.over([values])
    again = bytearray(len(data))
    back = decoded(codec, data, values.size)
    encode_with_residual(codec, back, np.zeros_like(back), again, span)
    assert bytes(again) == data


@CODECS
@given(value=finite, size=st.integers(1, 9))
def test_equal_values_are_exact(codec, value, size):
    values = np.full(size, value, np.float32)
    assert (decoded(codec, encoded(codec, values), size) == values).all()


@CODECS
def test_a_span_of_a_larger_whole_is_that_of_every_piece(codec):
    values = np.random.default_rng(0).normal(size=PIECE_ELEMENTS + 5).astype("f4")
    span = Span.over([values, np.array([-50, 70], np.float32)])
    out = bytearray(encoded_bytes(codec, values.size))
    sent = encode_with_residual(codec, values, np.zeros_like(values), out, span)
    second = encoded_bytes(codec, PIECE_ELEMENTS)
    for start in (0, second):
        assert struct.unpack_from("<ff", out, start) == (-50, 70)
    assert decoded(codec, out, values.size).tobytes() == sent.decoded.tobytes()
    assert np.abs(sent.residual).max() <= HALF * 120 / LEVELS[codec]


@CODECS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38], ids=str)
@pytest.mark.parametrize("index", [0, PIECE_ELEMENTS])
def test_what_cannot_be_sent_is_not(codec, value, index):
    values = np.zeros(PIECE_ELEMENTS + 1, np.float32)
    values[index] = value
    with pytest.raises(DivergedError, match=rf"cannot be sent in {codec}"):
        encoded(codec, values)


SPANS = [(np.nan, 1), (0, np.nan), (-np.inf, 0), (0, np.inf), (1, 0), (-3e38, 0)]


@CODECS
@pytest.mark.parametrize("span", SPANS, ids=str)
def test_hostile_spans_are_refused_on_arrival_and_when_decoded(codec, span):
    size = encoded_bytes(codec, 7)
    data = struct.pack("<ff", *span).ljust(size, b"\x7f")
    with pytest.raises(ProtocolError) as caught:
        decoded(codec, data, 7)
    assert caught.value.reason == sync_pb2.NOT_FINITE
    check = FiniteCheck([TensorSpec(name="layers.0.w", shape=(7,))], {"layers.0.w": codec})
    with pytest.raises(ProtocolError, match=r"layers\.0\.w is not finite"):
        check.take(data)


@CODECS
@given(data=st.binary(min_size=22, max_size=22))
def test_any_bytes_decode_to_finite_values_or_are_refused(codec, data):
    try:
        values = decoded(codec, data[: encoded_bytes(codec, 7)], 7)
    except ProtocolError:
        return
    assert np.isfinite(values).all()


@CODECS
@pytest.mark.parametrize("change", [-1, 1], ids=["short", "long"])
def test_a_wrong_length_is_refused(codec, change):
    data = encoded(codec, EXAMPLE)
    with pytest.raises(ProtocolError) as caught:
        decoded(codec, data[:change] if change < 0 else data + b"\0", 5)
    assert caught.value.reason == sync_pb2.WRONG_SHAPE


@pytest.mark.parametrize("codec", KEEPING, ids=str)
@given(delta=tensors, seed=st.integers(0, 99))
def test_nothing_is_lost_between_delta_and_residual(codec, delta, seed):
    delta[0] = 0  # so that the span holds zero
    residual = np.random.default_rng(seed).normal(scale=0.01, size=delta.shape).astype("f4")
    out = bytearray(encoded_bytes(codec, delta.size))
    sent = encode_with_residual(codec, delta, residual, out)
    owed = delta + residual
    if owed.min() <= 0 <= owed.max():
        assert (sent.decoded.astype(float) + sent.residual == owed.astype(float)).all()


@CODECS
def test_what_arrived_is_the_sum_of_the_deltas_less_the_last_residual(codec):
    rounds, size = 50, 4101
    out = bytearray(encoded_bytes(codec, size))
    residual, arrived, given_ = np.zeros(size, np.float32), np.zeros(size), np.zeros(size)
    for number in range(rounds):
        delta = np.random.default_rng(number).normal(size=size).astype("f4")
        owed = delta + residual
        sent = encode_with_residual(codec, delta, residual, out)
        arrived, given_, residual = arrived + sent.decoded, given_ + delta, sent.residual
        assert np.abs(residual).max() <= HALF * step_of(codec, owed)
    assert np.abs(arrived + residual - given_).max() <= rounds * 5 * 2.0**-24


def test_without_feedback_a_third_stands_for_what_is_less():
    """Four levels from -1 to 1 send 0.3 as 1/3 for ever: the bias that feedback removes."""
    levels = np.rint((np.array([-1, 0.3, 1]) + 1) / (2 / 3)) * (2 / 3) - 1
    assert levels[1] == pytest.approx(1 / 3)
    delta, span = np.array([0.3], np.float32), Span(-1, 1)
    residual, arrived = np.zeros(1, np.float32), 0.0
    out = bytearray(encoded_bytes(Codec.UINT8_PAPER, 1))
    bias = encode_with_residual(Codec.UINT8_PAPER, delta, residual, out, span).residual[0]
    assert abs(bias) > 0.0005
    for _ in range(100):
        sent = encode_with_residual(Codec.UINT8_PAPER, delta, residual, out, span)
        residual, arrived = sent.residual, arrived + float(sent.decoded[0])
    assert abs(arrived - 30) < 0.005 < abs(100 * bias)


@pytest.mark.parametrize(
    ("draw", "bits", "error", "tolerance"),
    [
        (lambda random: random.normal(size=10**6), 6.69, 0.0117, 0.1),
        (lambda random: random.laplace(size=10**6), 5.79, 0.022, 0.1),
        (lambda random: random.standard_t(3, size=10**6), 2.8, 0.15, 0.3),
    ],
    ids=["normal", "laplace", "student"],
)
def test_what_huffman_codes_save_of_a_whole_vector(draw, bits, error, tolerance):
    """Both hang on the largest of a million draws, which varies from one to the next."""
    values = draw(np.random.default_rng(0)).astype(np.float32)
    out = bytearray(encoded_bytes(Codec.UINT8, values.size))
    sent = encode_with_residual(
        Codec.UINT8, values, np.zeros_like(values), out, Span.over([values])
    )
    coded = Huffman().coded(bytes(out))
    assert coded is not None
    assert 8 * len(coded) / values.size == pytest.approx(bits, rel=tolerance / 2)
    relative = np.linalg.norm(sent.residual) / np.linalg.norm(values)
    assert relative == pytest.approx(error, rel=tolerance)
