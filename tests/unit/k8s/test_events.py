"""An Event fits into what Kubernetes takes, stays text, and is found by its object."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from spes_operator.k8s.events import MAX_MESSAGE_BYTES, Event, cut


@given(text=st.text(max_size=60), max_bytes=st.integers(3, 60))
def test_a_text_is_cut_between_characters_and_only_if_it_must(text, max_bytes):
    short = cut(text, max_bytes)
    assert len(short.encode()) <= max_bytes
    if len(text.encode()) <= max_bytes:
        assert short == text
    else:
        assert short.endswith("...")
        assert text.startswith(short.removesuffix("..."))


def test_the_longest_event_is_taken():
    event = Event(
        reason="ExpertsMoved",
        message="é" * 1000,
        kind="SpesJob",
        namespace="research",
        name="moe",
        time=datetime(2026, 1, 1, tzinfo=UTC),
    )
    message = event.to_json()["message"]
    assert MAX_MESSAGE_BYTES - 2 < len(message.encode()) <= MAX_MESSAGE_BYTES


def test_kubectl_finds_an_event_by_its_object():
    """`kubectl events --for` asks for kind, apiVersion and name."""
    event = Event(
        reason="ExpertsMoved",
        message="epoch 2",
        kind="SpesJob",
        namespace="research",
        name="moe",
        time=datetime(2026, 1, 1, tzinfo=UTC),
    )
    about = event.to_json()["involvedObject"]
    named = (about["kind"], about["apiVersion"], about["name"])
    assert named == ("SpesJob", "spes.dev/v1alpha1", "moe")
