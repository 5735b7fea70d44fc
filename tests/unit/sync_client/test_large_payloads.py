"""A payload may be larger than one message, and than 32 bits can count."""

import hashlib

from spes_proto.v1 import sync_pb2
from spes_sync.frames import MAX_CHUNK_BYTES, PayloadWriter, iter_file_chunks

TOTAL = 2**31 + 2**28  # 2.25 GiB
GRPC_LIMIT = 4 * 2**20


def test_a_payload_beyond_2_gib_is_resumed_near_its_end(tmp_path):
    """Its file has a hole where nothing is read."""
    source, offset = tmp_path / "payload", TOTAL - MAX_CHUNK_BYTES * 3 // 2
    with source.open("wb") as file:
        file.truncate(TOTAL)
        file.seek(TOTAL - 4)
        file.write(b"last")
    with (tmp_path / "received").open("wb") as file:
        writer = PayloadWriter(file, TOTAL, hashlib.sha256())
        writer.received = offset
        for part in iter_file_chunks(sync_pb2.PushPart, source, offset=offset):
            message = part.SerializeToString()
            assert len(message) < GRPC_LIMIT
            writer.write(sync_pb2.PushPart.FromString(message).chunk)
    assert writer.received == TOTAL
    assert (tmp_path / "received").read_bytes()[-4:] == b"last"


def test_its_size_is_announced():
    header = sync_pb2.PushHeader(total_bytes=TOTAL)
    assert sync_pb2.PushHeader.FromString(header.SerializeToString()).total_bytes == TOTAL
