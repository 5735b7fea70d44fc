"""`spes status --watch`: the answer anew whenever something changed. I/O only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from spes_operator.cli.status_question import Question, View
from spes_operator.errors import ForbiddenError, UnavailableError
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.follow import follow

# Changes come in bunches; one answer for each bunch.
_SETTLE = timedelta(milliseconds=300)
# Ages grow without any change.
_REDRAW = timedelta(seconds=10)


async def watch(
    api: KubeApi, question: Question, say: Callable[[View], None], *, redraws: bool = False
) -> int:
    """Say it now and whenever it is another, until interrupted.

    Args:
        api: The hub's.
        question: What is asked for.
        say: Called with each answer.
        redraws: Whether to say it also when only time has passed.

    Raises:
        ConfigError: The job is not there, or not any more.
    """
    view, changed = await question.answer(api), asyncio.Event()
    say(view)
    followers = [
        asyncio.create_task(follow(api, kind, namespace, lambda _: changed.set()))
        for kind, namespace in await _followed(api, question)
    ]
    try:
        while True:
            await _happens(changed)
            await asyncio.sleep(_SETTLE.total_seconds())
            changed.clear()
            before, view = view, await _answer(api, question, view)
            if view != before or redraws:
                say(view)
    finally:
        for task in followers:
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


async def _followed(api: KubeApi, question: Question) -> list[tuple[str, str]]:
    """Kind and namespace of what may change the answer; what cannot be read is left out."""
    wanted = [
        ("SpesJob", "" if question.deleted else question.namespace),
        ("MemberCluster", ""),
        ("TrainerAssignment", ""),
    ]
    found = []
    for kind, namespace in wanted:
        try:
            await api.list(kind, namespace)
        except ForbiddenError:
            continue
        found.append((kind, namespace))
    return found


async def _answer(api: KubeApi, question: Question, last: View) -> View:
    """The answer now; while the API server is away the last one, with a note."""
    try:
        return await question.answer(api)
    except UnavailableError as error:
        note = f"this is how it was when the hub's API server last answered ({error})"
        return replace(last, notes=(note,))


async def _happens(changed: asyncio.Event) -> None:
    """Wait for a change, for a while."""
    try:
        async with asyncio.timeout(_REDRAW.total_seconds()):
            await changed.wait()
    except TimeoutError:
        return
