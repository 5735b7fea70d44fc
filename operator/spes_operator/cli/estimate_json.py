"""What a job costs, for programs: `spes explain -o json`. Pure."""

from __future__ import annotations

from spes_operator.placement.costs import PAPER_GB
from spes_operator.placement.estimate import Estimate, Row

# Uplinks for which the time of a hurried push is given; bytes per second.
UPLINKS = (10_000_000, 100_000_000)


def as_json(estimate: Estimate) -> dict[str, object]:
    """The estimate for programs; bytes and seconds."""
    sizes = estimate.job.spec.model.resolve().sizes
    return {
        "job": estimate.job.metadata.name,
        "parameters": {
            "shared": sizes.shared,
            "oneExpert": sizes.one_expert,
            "numExperts": sizes.num_experts,
            "total": sizes.total,
        },
        "peers": [_peer_json(row, estimate) for row in estimate.rows],
        "round": {
            "fullBytes": estimate.round.full_bytes,
            "fullPaperGB": round(estimate.round.full_bytes / PAPER_GB, 3),
            "upBytes": estimate.round.up_bytes,
            "downBytes": estimate.round.down_bytes,
            "mergeBytes": estimate.round.merge_bytes,
        },
        "merges": estimate.round.num_merges,
        "rounds": estimate.round.num_rounds,
        "totalBytes": estimate.round.total_bytes,
        "reasons": list(estimate.reasons),
    }


def _peer_json(row: Row, estimate: Estimate) -> dict[str, object]:
    costs = row.costs
    return {
        "peer": row.label,
        "peers": row.num_peers,
        "experts": costs.num_experts,
        "capacity": row.capacity,
        "deviceBytes": costs.device_bytes,
        "offeredBytes": row.offered_bytes,
        "activationBytes": costs.activation_bytes,
        "hostBytes": costs.host_bytes,
        "diskBytes": costs.disk_bytes,
        "upBytes": costs.up_bytes,
        "upPaperGB": round(costs.up_bytes / PAPER_GB, 3),
        "downBytes": costs.down_bytes,
        "uplinkSaving": round(1 - costs.up_bytes / estimate.round.full_bytes, 4),
        "pushSeconds": {str(uplink): costs.last_bytes / uplink for uplink in UPLINKS},
    }
