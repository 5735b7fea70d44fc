"""The probes of a program: asked by a kubelet, answered from its first moment on."""

import asyncio
import urllib.error
import urllib.request

import pytest
from builders.hub_program import free_port
from spes_operator.daemon.metrics_server import serve_liveness
from spes_operator.errors import ConfigError
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings


def status(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_liveness_probe_asks_the_program():
    port, alive = free_port(), [True]
    with serve_liveness(lambda: alive[0], "127.0.0.1", port):
        assert status(port, "healthz") == 200
        alive[0] = False
        assert status(port, "healthz") == 503
    with pytest.raises(urllib.error.URLError):
        status(port, "healthz")


def test_probes_are_not_logged(capsys):
    """Kubelets ask every few seconds, which would be most of a log."""
    port = free_port()
    with serve_liveness(lambda: True, "127.0.0.1", port):
        assert status(port, "healthz") == 200
    assert capsys.readouterr() == ("", "")


def test_a_port_that_is_taken_is_named():
    port = free_port()
    with (
        serve_liveness(lambda: True, "127.0.0.1", port),
        pytest.raises(ConfigError, match=f"probes cannot be served on 127.0.0.1:{port}"),
        serve_liveness(lambda: True, "127.0.0.1", port),
    ):
        pass


def test_a_feed_that_does_not_run_is_not_taken_for_stuck(tmp_path):
    """Its API server is away: that is no fault of the program."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}")

    async def whole():
        feed = KopfFeed(KopfSettings(kubeconfig=kubeconfig))
        running = asyncio.create_task(feed.run({"ConfigMap": print}, ""))
        await asyncio.sleep(0)
        assert feed.idle_for.total_seconds() < 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert feed.idle_for.total_seconds() < 1

    asyncio.run(whole())
