from __future__ import annotations

from builders.sync_rounds import A, B, C
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from spes_sync.leases import LeaseBook, Range

PEERS = [A, B, C]


def test_blocks_are_granted_in_peer_id_order():
    book = LeaseBook().grant({B: 20, A: 20})
    assert book.leased == {A: (Range(0, 20),), B: (Range(20, 20),)}


def test_returned_positions_are_leased_again_before_fresh_ones():
    book = LeaseBook().grant({A: 20, B: 20}).give_back(A).grant({C: 30})
    assert book.leased[C] == (Range(0, 20), Range(40, 10))


def test_lowest_returned_positions_go_first():
    book = LeaseBook().grant({A: 10, B: 10}).give_back(B).give_back(A).grant({C: 5})
    assert book.leased[C] == (Range(0, 5),)


def test_push_consumes_in_the_order_of_granting():
    book = LeaseBook().grant({A: 10, B: 10}).consume(A, 4).grant({A: 10})
    assert book.leased[A] == (Range(4, 6), Range(20, 4))
    assert book.consumed[A] == (Range(0, 4),)


def test_carrying_peer_keeps_its_block_and_gets_no_second():
    book = LeaseBook().grant({A: 10})
    assert book.grant({A: 10}) == book


def test_book_on_disk_forgets_what_uncommitted_pushes_consumed():
    book = LeaseBook().grant({A: 10, B: 10}).consume(A, 4)
    read = LeaseBook.from_json(book.to_json())
    assert read.leased == {A: (Range(0, 10),), B: (Range(10, 10),)}


def test_restart_after_the_commit_takes_its_leases_out():
    on_disk = LeaseBook().grant({A: 10, B: 10})
    committed = on_disk.consume(A, 4).consumed
    assert on_disk.without(committed).leased == {A: (Range(4, 6),), B: (Range(10, 10),)}


class Leases(RuleBasedStateMachine):
    """Every position is in exactly one place, and is committed once."""

    def __init__(self) -> None:
        super().__init__()
        self.book = LeaseBook()
        self.committed: list[int] = []

    @rule(wanted=st.dictionaries(st.sampled_from(PEERS), st.integers(0, 12)))
    def grant(self, wanted):
        self.book = self.book.grant(wanted)
        assert all(self.book.held(peer) >= size for peer, size in wanted.items())

    @rule(peer=st.sampled_from(PEERS), count=st.integers(0, 15))
    def consume(self, peer, count):
        self.book = self.book.consume(peer, count)

    @rule(peer=st.sampled_from(PEERS))
    def give_back(self, peer):
        self.book = self.book.give_back(peer)

    @rule()
    def commit(self):
        for used in self.book.consumed.values():
            self.committed += positions(used)
        self.book = self.book.commit()

    @rule()
    def restart_before_the_commit(self):
        self.book = LeaseBook.from_json(self.book.to_json())

    @rule()
    def restart_between_commit_and_save(self):
        on_disk, used = LeaseBook.from_json(self.book.to_json()), self.book.consumed
        for each in used.values():
            self.committed += positions(each)
        self.book = on_disk.without(used)

    @invariant()
    def every_position_is_in_one_place(self):
        book = self.book
        places = [
            *self.committed,
            *positions(book.free),
            *(p for held in book.leased.values() for p in positions(held)),
            *(p for used in book.consumed.values() for p in positions(used)),
        ]
        assert sorted(places) == list(range(book.cursor))


def positions(ranges) -> list[int]:
    return [n for r in ranges for n in range(r.first, r.first + r.size)]


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_leased_samples_are_the_whole_order_without_a_gap(blocks):
    book = LeaseBook()
    for size in blocks:
        book = book.grant({A: size}).consume(A, size).commit()
    assert book.cursor == sum(blocks)
    assert not book.free
