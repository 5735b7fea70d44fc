"""Connections that say nothing for a while stay open on both sides."""

from datetime import timedelta

import pytest
from spes_operator.hub import sync_control
from spes_sync.client import connection
from spes_sync.server import server

SERVER = dict(server._OPTIONS)
PEER = dict(connection._CHANNEL_OPTIONS)
# Routers and load balancers forget what was silent for longer.
FORGOTTEN = timedelta(minutes=1)


@pytest.mark.parametrize(
    "period_ms",
    [PEER["grpc.keepalive_time_ms"], sync_control._KEEPALIVE_MS, SERVER["grpc.keepalive_time_ms"]],
    ids=["peer", "hub", "server"],
)
def test_everybody_pings_before_a_router_forgets_and_never_too_often(period_ms):
    """A server that is pinged more often than it allows ends the connection."""
    assert timedelta(milliseconds=period_ms) < FORGOTTEN
    assert period_ms >= 2 * SERVER["grpc.http2.min_recv_ping_interval_without_data_ms"]


def test_a_session_that_says_nothing_is_pinged_all_the_same():
    for options in (PEER, SERVER):
        assert options["grpc.keepalive_permit_without_calls"] == 1
        assert options["grpc.http2.max_pings_without_data"] == 0  # no limit
