"""What the figures should be, and what the raw results say they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.raw_results import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One ratio, or a plain number where `unit` says so; less is better."""

    name: str
    value: float
    target: float | None = None
    """None: to know, not to reach."""
    unit: str = ""

    @property
    def missed(self) -> bool:
        """Whether it should be less."""
        return self.target is not None and self.value > self.target

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, value, target, verdict."""
        verdict = "" if self.target is None else "missed" if self.missed else "met"
        return (self.name, self._said(self.value), self._said(self.target), verdict)

    def _said(self, value: float | None) -> str:
        if value is None:
            return ""
        digits = f"{value:.1e}" if 0 < value < 1e-3 else f"{value:.2f}"
        return f"{digits} {self.unit}".strip()


def figures() -> list[Figure]:
    """All of them, from the results that are kept."""
    return [
        *_server(load("sync_round")),
        *_merge(load("merge")),
        *_peer(load("peer")),
        *_rest(load("codec"), load("placement")),
    ]


def table(found: list[Figure]) -> str:
    """The figures as text."""
    lines = [("", "ratio", "target", ""), *(figure.cells for figure in found)]
    return "".join(f"{a:58}{b:>12}{c:>10}  {d}".rstrip() + "\n" for a, b, c, d in lines)


def _server(r: dict[str, Any]) -> Iterator[Figure]:
    fp32, int8 = r["codecs"]["FP32"], r["codecs"]["INT8"]
    peak = max(c["peak_bytes"] / c["allowed_bytes"] for c in (fp32, int8))
    yield Figure(name="FP32 round over the floor, TLS both", value=fp32["of_the_floor"], target=1.6)
    yield Figure(name="the same in CPU seconds", value=fp32["cpu_of_the_floor"])
    yield Figure(
        name="FP32 round with TLS over the floor without",
        value=fp32["of_the_floor_without_tls"],
    )
    yield Figure(name="INT8 round over the FP32 floor", value=int8["of_the_floor"], target=1.0)
    yield Figure(
        name="INT8 over FP32 round, 20 MB/s a peer",
        value=r["int8_of_fp32_on_a_slow_link"],
        target=0.35,
    )
    yield Figure(name="server's peak over what it may take", value=peak, target=1.0)
    yield Figure(
        name="server's peak, three times the sizes",
        value=r["three_times"]["peak_bytes"] / 1e9,
        target=4.0,
        unit="GB",
    )
    yield Figure(name="memory after 30 rounds over 5", value=r["growth"]["ratio"], target=1.1)


def _merge(r: dict[str, Any]) -> Iterator[Figure]:
    yield Figure(
        name=f"merge of a layer, {r['experts']} x {r['weights_of_one_expert'] / 1e6:.1f} M weights",
        value=r["seconds"],
        target=0.5,
        unit="s",
    )
    yield Figure(name="the same in CPU seconds, one thread", value=r["cpu_seconds"], unit="s")
    yield Figure(
        name="its difference to the direct formula", value=r["relative_difference"], target=4e-6
    )
    yield Figure(name="its time over the direct formula", value=1 / r["times_faster_than_direct"])


def _peer(r: dict[str, Any]) -> Iterator[Figure]:
    for owned, memory in r["memory"].items():
        yield Figure(
            name=f"distance of the peak from the formula, {owned} of 16 owned",
            value=abs(memory["of_formula"] - 1),
            target=0.1,
        )
    for shape, backward in r["backward"].items():
        yield Figure(
            name=f"backward, a quarter of the experts owned over all, {shape}",
            value=backward["ratio"],
            target=0.75 if shape.startswith("moe-9b") else None,
        )
    for shape, steps in r["steps"].items():
        for implementation, ratio in steps["of"].items():
            yield Figure(name=f"step over OLMoE's ({implementation}), {shape}", value=ratio)


def _rest(codec: dict[str, Any], placement: dict[str, Any]) -> Iterator[Figure]:
    for name in (
        "INT8 encode with residual",
        "INT8 decode",
        "UINT8 encode with residual",
        "UINT8 Huffman",
        "BF16 encode with residual",
    ):
        yield Figure(name=f"{name}, time over a copy", value=1 / codec[name]["of_a_copy"])
    for name in ("BF16 Huffman", "INT8 Huffman", "UINT8 Huffman"):
        yield Figure(name=f"{name}, bytes over FP32", value=1 / codec[name]["compression"])
    yield Figure(
        name=f"placement of {placement['experts']} experts on {placement['peers']} peers",
        value=1e3 * placement["median_seconds"],
        unit="ms",
    )
    yield Figure(
        name="its moves above the lower bound",
        value=placement["moves_above_the_lower_bound"],
        target=0,
    )
