"""Tensors through a codec, as new bytes and arrays."""

import numpy as np
from spes_sync.quantize import decode, encode, encoded_bytes


def encoded(codec, values) -> bytes:
    out = bytearray(encoded_bytes(codec, values.size))
    encode(codec, values, out)
    return bytes(out)


def decoded(codec, data, num_elements) -> np.ndarray:
    out = np.full(num_elements, np.nan, np.float32)
    decode(codec, data, out)
    return out
