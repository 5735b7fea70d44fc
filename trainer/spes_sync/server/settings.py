"""What the server takes from a job's settings; everything else is the peers' business. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import ValidationError
from spes_api.job import SpesJobSpec
from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError
from spes_sync.merge import MergeStep, alpha_at
from spes_sync.outer import OuterStep
from spes_sync.quantize import Codec
from spes_sync.rounds import Buffer, Rules
from spes_sync.versions import Retention
from spes_sync.weighing import Weighing

# A block of sequences under everySeconds alone: this many steps before the peer's rate is known,
# then what it would use in this share of the interval.
FIRST_STEPS = 16
BLOCK_SHARE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A job's settings as the server uses them."""

    spec: SpesJobSpec
    rules: Rules
    retention: Retention

    @classmethod
    def parse(cls, settings_json: str) -> Settings:
        """Read the canonical JSON of a SpesJobSpec.

        Raises:
            ProtocolError: it is none; names the first field that is wrong.
        """
        try:
            spec = SpesJobSpec.model_validate_json(settings_json)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(map(str, first["loc"]))
            raise ProtocolError(
                sync_pb2.PROTOCOL, f"settings_json: {path}: {first['msg']}"
            ) from error
        return cls(
            spec=spec,
            rules=Rules(
                max_tokens=spec.training.max_tokens,
                min_members=spec.members.min,
                quorum=spec.sync.quorum,
                timeout=spec.sync.timeout_seconds,
                unreachable_after=spec.reassignment.unreachable_after_seconds,
                buffer=_buffer(spec),
            ),
            retention=Retention(
                every_rounds=spec.checkpoint.every_rounds, keep_last=spec.checkpoint.keep_last
            ),
        )

    @property
    def weighing(self) -> Weighing:
        """How shared deltas are weighted."""
        spec, buffer = self.spec, self.spec.sync.buffered
        return Weighing(
            weights=spec.weights,
            by_step=spec.algorithm.name == "FedNova",
            rate=buffer.rate if buffer else 1.0,
            discount=buffer.discount if buffer else "Constant",
        )

    @property
    def downlink(self) -> Codec:
        """How versions are coded for the peers."""
        return Codec(self.spec.sync.compression.downlink)

    @property
    def codes_entropy(self) -> bool:
        """Whether chunks are Huffman-coded where that saves something."""
        return self.spec.sync.compression.entropy == "Huffman"

    def merge_in(self, round_number: int) -> MergeStep | None:
        """The merge of the experts at the end of this round; None: none is due."""
        merge = self.spec.algorithm.merge
        if merge is None or round_number % merge.every_rounds:
            return None
        alpha = alpha_at(round_number, alpha=merge.alpha, warmup=merge.warmup_rounds)
        return MergeStep(alpha=alpha, num_donors=merge.donors) if alpha > 0 else None

    @property
    def outer(self) -> OuterStep | None:
        """The server's own step along the average; None: it makes none."""
        outer = self.spec.algorithm.outer_step
        if outer is None:
            return None
        return OuterStep(learning_rate=outer.learning_rate, momentum=outer.momentum)

    @property
    def one_data(self) -> bool:
        """Whether all peers must have the same data."""
        return self.spec.data.split == "Disjoint"

    def block(self, tokens_per_second: float) -> int:
        """Sequences that a peer is leased for a round."""
        sequence, batch = self.spec.data.sequence_tokens, self.spec.training.batch_tokens
        sync = self.spec.sync
        if sync.every_steps is not None:
            steps = sync.every_steps
        elif tokens_per_second > 0 and sync.every_seconds is not None:
            steps = max(1, math.ceil(BLOCK_SHARE * tokens_per_second * sync.every_seconds / batch))
        else:
            steps = FIRST_STEPS
        return steps * (batch // sequence)

    def sequences(self, tokens: int) -> int:
        """Sequences that this many tokens use up."""
        return -(-tokens // self.spec.data.sequence_tokens)

    def evaluates(self, version: int) -> bool:
        """Whether the held-out loss of this version is wanted."""
        data, evaluation = self.spec.data, self.spec.training.evaluation
        return data.held_out_fraction > 0 and version % evaluation.every_rounds == 0


def _buffer(spec: SpesJobSpec) -> Buffer | None:
    buffer = spec.sync.buffered
    if buffer is None:
        return None
    return Buffer(size=buffer.size, max_staleness=buffer.max_staleness)
