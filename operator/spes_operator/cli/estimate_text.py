"""What a job costs, as tables for people: `spes explain`. Pure, but for the console it is given."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spes_operator.cli.estimate_json import UPLINKS
from spes_operator.placement.costs import GB, PAPER_GB, PeerCosts
from spes_operator.placement.estimate import Estimate

# Shorter times are not told apart, in seconds.
SHORTEST = 0.1


def print_estimate(estimate: Estimate, console: Console) -> None:
    """The estimate for people."""
    console.print(_headline(estimate))
    console.print(_memory_table(estimate))
    console.print(_traffic_table(estimate))
    console.print(_push_table(estimate))
    console.print(_totals(estimate))
    if estimate.reasons:
        console.print(Text("\nPlacement", style="bold"))
        for reason in estimate.reasons:
            console.print(Text(f"  {reason}"))


def _headline(estimate: Estimate) -> Text:
    spec = estimate.job.spec
    sizes = spec.model.resolve().sizes
    shape = f"preset {spec.model.preset}" if spec.model.preset else "its own shape"
    return Text.assemble(
        (estimate.job.metadata.name, "bold cyan"),
        f": {shape}, {sizes.total:,} parameters\n",
        f"  {sizes.shared:,} shared by all, {sizes.num_experts} experts of {sizes.one_expert:,}\n",
        f"  trained in {spec.training.precision} by {estimate.num_peers} peers "
        f"with {spec.algorithm.name}",
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _memory_table(estimate: Estimate) -> Table:
    offered = any(row.offered_bytes is not None for row in estimate.rows)
    columns = ("peer", "experts", "state", "activations", "device needs", "host", "disk")
    table = _table(
        "Memory and disk of a peer", *columns, *(("device has", "room for") if offered else ())
    )
    for row in estimate.rows:
        costs = row.costs
        sizes = (
            costs.state_bytes,
            costs.activation_bytes,
            costs.device_bytes,
            costs.host_bytes,
            costs.disk_bytes,
        )
        has = (
            ()
            if row.offered_bytes is None
            else (size(row.offered_bytes), f"{row.capacity} experts")
        )
        table.add_row(row.label, str(costs.num_experts), *map(size, sizes), *has)
    return table


def _traffic_table(estimate: Estimate) -> Table:
    codecs = estimate.job.spec.sync.compression
    coded = {codecs.uplink, codecs.downlink} != {"FP32"}
    title = f", {codecs.uplink} up and {codecs.downlink} down" if coded else ""
    table = _table(
        f"Traffic of a peer in a round{title}", "peer", "up", "paper GB", "down", "paper GB"
    )
    for row in estimate.rows:
        up, down = row.costs.up_bytes, row.costs.down_bytes
        table.add_row(row.label, size(up), paper(up), size(down), paper(down))
    full = estimate.round.full_bytes
    label = f"if all trained everything{', FP32' if coded else ''}"
    everything = (label, size(full), paper(full), size(full), paper(full))
    table.add_row(*everything, style="dim")
    table.caption = f"paper GB: the unit of the paper's figures, {PAPER_GB:,} bytes"
    table.caption_justify = "left"
    return table


def _push_table(estimate: Estimate) -> Table:
    grace = estimate.job.spec.trainer.grace_period_seconds
    table = _table(
        f"Push before the grace period of {grace} s ends",
        "peer",
        *(f"{what}, {uplink // 10**6} MB/s" for uplink in UPLINKS for what in ("experts", "all")),
    )
    for row in estimate.rows:
        table.add_row(row.label, *_push_cells(row.costs, grace))
    return table


def _push_cells(costs: PeerCosts, grace: int) -> list[Text]:
    seconds = [
        num_bytes / uplink
        for uplink in UPLINKS
        for num_bytes in (costs.last_own_bytes, costs.last_bytes)
    ]
    return [
        Text(f"{time:,.1f} s" if time >= SHORTEST else f"< {SHORTEST} s", style="green")
        if time <= grace
        else Text(f"{time:,.1f} s, too long", style="yellow")
        for time in seconds
    ]


def _totals(estimate: Estimate) -> str:
    spec, costs = estimate.job.spec, estimate.round
    largest = max(row.costs.up_bytes for row in estimate.rows)
    saving = (
        "Every peer sends and gets the whole model."
        if spec.algorithm.replicated
        else f"A peer sends {1 - largest / costs.full_bytes:.1%} less than the whole model."
    )
    server = (
        f"The sync server takes {size(costs.up_bytes)} and gives {size(costs.down_bytes)} a round"
    )
    if costs.num_rounds is None or costs.total_bytes is None:
        every = f"{server}, one every {spec.sync.every_seconds} s at most."
        return f"{saving}\n{every}" + _server_work(estimate)
    rounds = f"{costs.num_rounds:,} rounds to {spec.training.max_tokens:,} tokens"
    total = f"{saving}\n{server}; {rounds}: {size(costs.total_bytes)} in all."
    return total + _server_work(estimate)


def _server_work(estimate: Estimate) -> str:
    """What merging or an outer step adds."""
    costs, outer = estimate.round, estimate.job.spec.algorithm.outer_step
    if costs.num_merges:
        more = "more" if costs.merge_bytes >= 0 else "less"
        return (
            f"\nExperts are merged in {costs.num_merges:,} rounds; each gives "
            f"{size(abs(costs.merge_bytes))} {more}, for peers then get all experts, merged."
        )
    if outer is not None and outer.momentum:
        return (
            f"\nThe outer step keeps a velocity of {size(costs.full_bytes)} "
            "beside every version on the sync server's volume."
        )
    return ""


def size(num_bytes: int) -> str:
    """Bytes in decimal units with three digits after the point: 10.006 GB."""
    for unit, scale in (("TB", 10**12), ("GB", GB), ("MB", 10**6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.3f} {unit}"
    return f"{num_bytes / 1000:,.3f} kB"


def paper(num_bytes: int) -> str:
    """Bytes in the unit that the paper calls GB."""
    return f"{num_bytes / PAPER_GB:,.3f}"
