"""Orders to a running stand-in: one JSON object a line over a Unix socket, one line back each.

`{"order": "lose", "node": "a-0"}` is answered by `{}` when it is done, or by `{"error": "..."}`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from spes_operator.errors import SpesError

from kubelet.errors import KubeletError, OrderError
from kubelet.kubelet import Kubelet
from kubelet.pod_spec import Json

_SIGNALS = {
    "kill": signal.SIGKILL,
    "pause": signal.SIGSTOP,
    "resume": signal.SIGCONT,
}


async def serve(kubelet: Kubelet, path: Path) -> asyncio.Server:
    """Take orders at `path`."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                await _obey(kubelet, json.loads(line))
                answer = {}
            except (KubeletError, SpesError, KeyError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve_one, path)


async def _obey(kubelet: Kubelet, order: Json) -> None:
    match order:
        case {"order": ("kill" | "pause" | "resume") as what, "namespace": namespace, "pod": pod}:
            kubelet.signal(namespace, pod, _SIGNALS[what])
        case {"order": "lose", "node": node}:
            await kubelet.lose(node)
        case {"order": "shutdown", "node": node}:
            await kubelet.shut_down(node)
        case {"order": "start", "node": node}:
            await kubelet.start(node)
        case {"order": "cut", "namespace": namespace, "service": service}:
            for relay in kubelet.proxies.of(namespace, service):
                relay.cut()
        case {"order": "mend", "namespace": namespace, "service": service}:
            for relay in kubelet.proxies.of(namespace, service):
                relay.mend()
        case _:
            raise OrderError(f"unknown order {order!r:.200}; see README.md")
