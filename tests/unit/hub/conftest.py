import asyncio

import pytest
from builders.hub_world import World


@pytest.fixture
def play(tmp_path_factory):
    """Runs a scenario, an async function of a World, to its end."""

    def run(scenario):
        async def whole():
            world = World(tmp_path_factory.getbasetemp() / "shared-tls")
            try:
                await scenario(world)
            finally:
                await world.hub.close()

        asyncio.run(whole())

    return run
