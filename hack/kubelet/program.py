"""The program: plays the nodes of one cluster until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

from kubelet.cluster import Cluster
from kubelet.kubelet import Kubelet
from kubelet.nodes import Node, read_nodes
from kubelet.orders import serve

_SOCKET = "orders"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_run(options))
    return 0


async def _run(options: argparse.Namespace) -> None:
    image = dict(entry.split("=", 1) for entry in options.env)
    image = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/", "LANG": "C.UTF-8"} | image
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster.open(options.kubeconfig))
        heartbeat = timedelta(seconds=options.heartbeat)
        nodes = [Node(spec, cluster, heartbeat) for spec in read_nodes(options.nodes)]
        kubelet = Kubelet(cluster, options.dir, nodes, image)
        playing = asyncio.create_task(kubelet.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
        ready = asyncio.create_task(kubelet.ready.wait())
        await asyncio.wait([playing, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            server = await serve(kubelet, options.dir / _SOCKET)
            stack.callback(server.close)
        with suppress(asyncio.CancelledError):
            await playing


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="an admin of the cluster")
    parser.add_argument(
        "--dir", type=Path, required=True, help="everything lies here, the socket of orders too"
    )
    parser.add_argument(
        "--nodes", type=Path, required=True, help="YAML list with name, labels and capacity"
    )
    parser.add_argument("--heartbeat", type=float, default=2.0, help="seconds between node Leases")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="what every image sets"
    )
    return parser
