"""Whole rounds through a real server: seed, push, commit, pull."""

from __future__ import annotations

import numpy as np
from builders.raw_peer import delta, raw_peers
from spes_proto.v1 import sync_pb2

EXPERT_0, EXPERT_3 = "layers.0.experts.0.w1", "layers.0.experts.3.w1"


def test_shared_is_averaged_and_experts_are_their_owners(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        sync_server.hub.apply({0: "a.0", 1: "a.0", 2: "b.0", 3: "b.0"})
        for peer, experts, value in ((b, (2, 3), 3.0), (a, (0, 1), 1.0)):
            peer.hear("round_open")
            assert peer.push(delta(experts, value)).verdict == sync_pb2.VERIFIED
        a.hear("committed")
        header, model = a.pull(-1)
        assert (header.version, header.base_version) == (1, -1)
        assert np.all(model["embedding.weight"] == 2.0)
        assert np.all(model[EXPERT_0] == 1.0)
        assert np.all(model[EXPERT_3] == 3.0)
