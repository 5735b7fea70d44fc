"""What a peer holds of the served model, version after version."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from spes_sync.bases import Bases, Fate
from spes_sync.codec import tensor_sha256
from spes_sync.errors import DivergedError
from spes_sync.manifest import SHARED, TensorSpec

EXPERTS = {"own": 0, "psi": SHARED, "theirs": 1}


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def bases() -> Bases:
    held = Bases()
    held.hold([("own", f32(1)), ("psi", f32(2))])
    return held


def tensors(values: dict) -> Iterator[tuple[TensorSpec, np.ndarray]]:
    for name, value in sorted(values.items()):
        yield TensorSpec(name=name, shape=(1,), expert=EXPERTS[name]), value


def rebase(held: Bases, incoming: dict, fate: Fate, sent: dict | None = None) -> dict:
    sent = SENT if sent is None else sent
    return dict(held.rebase(tensors(WEIGHTS), tensors(incoming), tensors(sent), fate))


WEIGHTS = {"own": f32(1.5), "psi": f32(2.25), "theirs": f32(7)}
SENT = {"own": f32(0.5), "psi": f32(0.25)}
INCOMING = {"psi": f32(0.5), "theirs": f32(1)}


def test_progress_is_the_distance_from_the_base():
    assert bases().progress("own", f32(1.5)) == f32(0.5)


def test_a_push_that_counted_leaves_no_progress():
    held = bases()
    live = rebase(held, INCOMING, Fate(included=True))
    assert live == {"own": f32(1.5), "psi": f32(2.5), "theirs": f32(8)}
    assert held["own"] == f32(1.5)  # computed here as the server does, not sent back
    assert held["psi"] == f32(2.5)


def test_the_owner_serves_what_the_server_got_not_what_it_meant():
    held = bases()
    live = rebase(held, INCOMING, Fate(included=True), {"own": f32(0.4375), "psi": f32(0.25)})
    assert live["own"] == held["own"] == f32(1.4375)


def test_a_push_that_did_not_count_is_carried_onto_the_new_base():
    held = bases()
    live = rebase(held, INCOMING, Fate(included=False, carried={0, SHARED}))
    assert live == {"own": f32(1.5), "psi": f32(2.75), "theirs": f32(8)}
    assert held["own"] == f32(1)
    assert held.progress("psi", live["psi"]) == f32(0.25)


def test_progress_that_is_not_carried_is_gone():
    live = rebase(bases(), INCOMING, Fate(included=False, carried={0}))
    assert live["psi"] == f32(2.5)
    assert live["own"] == f32(1.5)


def test_full_values_replace_what_was_held():
    held = bases()
    incoming = {"own": f32(9), "psi": f32(8), "theirs": f32(7)}
    live = rebase(held, incoming, Fate(included=False, absolute=True))
    assert live == incoming
    assert held["own"] == f32(9)


def test_an_expert_dropped_from_a_counted_push_returns_to_its_served_value():
    hashes = {"own": f32(1), "psi": f32(2.5), "theirs": f32(8)}
    fate = Fate(included=True, sha256={n: tensor_sha256(v) for n, v in hashes.items()})
    assert rebase(bases(), INCOMING, fate)["own"] == f32(1)


def test_bytes_that_differ_from_the_servers_are_noticed():
    fate = Fate(included=True, sha256=dict.fromkeys(EXPERTS, "0" * 64))
    with pytest.raises(DivergedError, match="own differs"):
        rebase(bases(), INCOMING, fate)


def test_a_base_is_a_copy_of_the_weights():
    weights = f32(1)
    held = Bases()
    held.hold([("own", weights)])
    weights += 1
    assert held["own"] == f32(1)
