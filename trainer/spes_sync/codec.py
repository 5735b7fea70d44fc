"""The FP32 codec: tensors to little-endian float32 bytes and back, one tensor at a time.

Lossless, so encoding needs no residual: decode(encode(x)) is x, bit for bit. Nothing here copies
a tensor that already lies contiguous in memory.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError
from spes_sync.manifest import TensorSpec

Array = NDArray[np.float32]

_FLOAT32 = np.dtype("<f4")


def encode(values: Array) -> memoryview:
    """The bytes of one tensor; a view where it is contiguous."""
    return np.ascontiguousarray(values, dtype=_FLOAT32).reshape(-1).data.cast("B")


def decode(data: bytes | bytearray | memoryview, tensor: TensorSpec) -> Array:
    """One tensor from its bytes; a view of `data`, read-only if `data` is.

    Raises:
        ProtocolError: WRONG_SHAPE, the number of bytes is not the tensor's.
    """
    if len(data) != tensor.num_bytes:
        raise ProtocolError(
            sync_pb2.WRONG_SHAPE,
            f"{tensor.name} has {len(data):,} bytes (expected {tensor.num_bytes:,})",
        )
    return np.frombuffer(data, dtype=_FLOAT32).reshape(tensor.shape)


def tensor_sha256(values: Array) -> str:
    """Hash of one tensor's bytes: what both sides compare after a commit."""
    return hashlib.sha256(encode(values)).hexdigest()
