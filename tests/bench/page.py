"""docs/benchmarks.md: the figures, and what lies behind them."""

from __future__ import annotations

from statistics import median

from bench.raw_results import load
from bench.targets import Figure

MIB = 1 << 20
PAGE = """# Benchmarks

Written by `make bench` from the raw results in [tests/bench/results](../tests/bench/results); do
not edit. Both sides of every ratio were measured in one run on one machine ({cores} cores, Python
{python}), which had other work too: ratios compare well, seconds do not. Less is better.

{table}

## The server
Four peers, {shared} MiB of shared parameters and {expert} MiB of experts each, a model of {model}
MiB: a round moves 640 MiB up and 1,408 MiB down. It lasts from the first push's start to the last
pull's end, over TLS, checksums and hashes included, with four peers and the server on the same
cores. The floor is bare gRPC in messages of 1 MiB with SHA-256 on both sides, and one write and
fsync of the model; it neither checks nor averages anything. The server has no mode without TLS, so
its distance from a floor without TLS is told, but has no target.

{server}

Bytes are counted by a relay that also holds each peer to 20 MB/s. The server may take what it took
at its start, 1.5 models and 64 MiB for each stream. Three times the sizes: a peak of {triple:.0f}
MiB of {triple_allowed:.0f} that it may take. Resident memory in small rounds: {rss_5:.0f} MiB after
round 5, {rss_30:.0f} MiB after round 30.

## The merge
The direct formula compares all pairs of experts at once, at {share} of the weights or its memory
would not fit most machines. Memory beyond the weights, in stacks of one matrix of all experts:
{ours:.2f}, direct {direct:.0f}.

## The peer
{owned}

The formula is `4|psi| + |Phi| + 3|Phi_i|` float32 values: weight, gradient and two moments of what
is trained, the weight alone of what is not.

Times are CPU seconds in FP32 on one thread, the sides taking turns. Backward: what frozen experts
save is their weights' gradients, so the share of experts in all computing decides. "moe-9b / 4" is
that preset at a quarter of its widths, where experts do most of it; "d=256" has small ones
under layers whose attention and norms cost as much.

A step is forward, loss, backward, clipping and AdamW, against
`OlmoeForCausalLM` of transformers {transformers} (torch {torch}) with its load-balancing loss, in
the same shape and on the same tokens: experts by `grouped_mm`, its default, and `eager`.
"""


def page(found: list[Figure]) -> str:
    """The whole page."""
    sync, merge, peer = load("sync_round"), load("merge"), load("peer")
    return PAGE.format(
        **sync["machine"],
        **sync["mib"],
        table=_table(("Figure", "Value", "Target", ""), [figure.cells for figure in found]),
        server=_server(sync),
        triple=sync["three_times"]["peak_bytes"] / MIB,
        triple_allowed=sync["three_times"]["allowed_bytes"] / MIB,
        rss_5=sync["growth"]["rss_5"] / MIB,
        rss_30=sync["growth"]["rss_30"] / MIB,
        share=merge["direct_share"],
        ours=merge["peak_over_one_matrix"],
        direct=merge["direct_peak_over_one_matrix"],
        owned=_owned(peer),
        transformers=peer["transformers"],
        torch=peer["torch"],
    )


def _server(sync: dict) -> str:
    rows = []
    for codec, of in sync["codecs"].items():
        link = of["slow_link"]
        rows.append(
            (
                codec,
                f"{median(of['seconds']):.1f} s, worst {max(of['seconds']):.1f}",
                f"{of['floor_beside']:.1f} s",
                f"{median(of['server_cpu']):.1f} of {median(of['cpu_seconds']):.1f} s",
                f"{of['start_bytes'] / MIB:.0f} to {of['peak_bytes'] / MIB:.0f} MiB "
                f"(may take {of['allowed_bytes'] / MIB:.0f})",
                f"{link['seconds']:.1f} s; {link['bytes_up'] / MIB:.0f} MiB up, "
                f"{link['bytes_down'] / MIB:.0f} down",
            )
        )
    heads = ("Codec", "Round", "Floor", "CPU: server of all", "Server's memory", "At 20 MB/s")
    return _table(heads, rows)


def _owned(peer: dict) -> str:
    rows = [
        (
            f"{owned} of 16",
            f"{of['formula'] / 1e6:.0f} MB",
            f"{of['peak'] / 1e6:.0f} MB",
            f"{of['of_formula']:.2f}",
        )
        for owned, of in peer["memory"].items()
    ]
    return _table(("Experts owned", "Formula", "Peak", "Ratio"), rows)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
