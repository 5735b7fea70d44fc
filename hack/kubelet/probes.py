"""Probes: asks a container at its period, and counts answers as a kubelet does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from kubelet.pod_spec import Probe

_GOOD_STATUS = range(200, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a probe needs to know of a container."""

    ip: str
    ports: Mapping[str, int]
    directory: Path
    environment: Mapping[str, str]
    command: tuple[str, ...] = ()
    """Of an exec probe, with its paths as a process sees them."""


async def answers(probe: Probe, target: Target, *, first: bool) -> AsyncGenerator[bool, None]:
    """Yields the verdict each time it changes, for ever; it begins as `first`."""
    verdict, streak = first, 0
    await asyncio.sleep(probe.initial_delay.total_seconds())
    while True:
        good = await _ask(probe, target)
        streak = 0 if good == verdict else streak + 1
        if streak >= (probe.successes if good else probe.failures):
            verdict, streak = good, 0
            yield verdict
        await asyncio.sleep(probe.period.total_seconds())


async def _ask(probe: Probe, target: Target) -> bool:
    try:
        async with asyncio.timeout(probe.timeout.total_seconds()):
            match probe.kind:
                case "exec":
                    return await _runs(target)
                case "tcpSocket":
                    return await _connects(probe.action, target)
                case "httpGet":
                    return await _gets(probe.action, target)
    except (TimeoutError, OSError, aiohttp.ClientError):
        return False


async def _runs(target: Target) -> bool:
    process = await asyncio.create_subprocess_exec(
        *target.command,
        cwd=target.directory,
        env=dict(target.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _connects(action: Mapping[str, Any], target: Target) -> bool:
    _, writer = await asyncio.open_connection(*_address(action, target))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _gets(action: Mapping[str, Any], target: Target) -> bool:
    host, port = _address(action, target)
    url = f"{action.get('scheme', 'HTTP').lower()}://{host}:{port}{action.get('path', '/')}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=False, allow_redirects=False) as answer,
    ):
        return answer.status in _GOOD_STATUS


def _address(action: Mapping[str, Any], target: Target) -> tuple[str, int]:
    port = action["port"]
    return action.get("host") or target.ip, target.ports.get(port) or int(port)
