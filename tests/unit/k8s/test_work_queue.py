import asyncio
from datetime import timedelta

from spes_operator.work_queue import WorkQueue


def test_marks_of_a_key_collapse_into_one_pass():
    async def scenario():
        queue = WorkQueue(timedelta(0))
        for _ in range(5):
            queue.mark("a")
        queue.mark("b")
        taken = {await queue.take(), await queue.take()}
        assert taken == {"a", "b"}
        queue.mark("c")
        assert await queue.take() == "c"

    asyncio.run(scenario())


def test_the_sooner_mark_wins():
    async def scenario():
        queue = WorkQueue(timedelta(0))
        queue.mark("a", timedelta(hours=1))
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.mark("a")
        queue.mark("a", timedelta(hours=2))
        assert await asyncio.wait_for(waiting, 1) == "a"

    asyncio.run(scenario())
