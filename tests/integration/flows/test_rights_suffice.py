"""Whatever hub and agents have done before this, they had the rights for."""

import pytest

pytestmark = pytest.mark.timeout(900)


def test_hub_and_agents_were_refused_nothing(federation):
    assert refusals(federation.hub.log()) == []
    for agent in federation.agents.values():
        # Before its acceptance an agent asks in vain; then it gets a token of its own.
        _, _, since = agent.log().partition("credential renewed")
        assert since
        assert refusals(since) == []


def refusals(log):
    return [line for line in log.splitlines() if "HTTP 403" in line or "orbidden" in line]
