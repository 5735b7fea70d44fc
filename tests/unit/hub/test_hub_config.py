"""The hub's settings file: what is missing or too much is named."""

import json

import pytest
from spes_api.errors import ConfigError
from spes_api.loading import load_file
from spes_operator.daemon.hub_config import HubConfig

GOOD = {
    "jobNamespaces": ["research"],
    "images": {"sync": "registry.example/sync:1"},
    "exposure": {"nodePort": {"externalHost": "hub.example"}},
}


def load(tmp_path, **changes):
    path = tmp_path / "hub.yaml"
    path.write_text(json.dumps(GOOD | changes))
    return load_file(path, HubConfig)


def test_defaults_are_those_of_a_pod(tmp_path):
    config = load(tmp_path)
    assert (config.namespace, config.probe_port, config.issuer) == ("spes-system", 8080, None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exposure": {}}, "exposure must hold one of nodePort, loadBalancer, sni"),
        ({"exposure": {"loadBalancer": {}, "sni": {"domain": "a.example"}}}, "(got 2)"),
        ({"exposure": {"nodePort": {"externalHost": "a", "port": 1}}}, "exposure.nodePort.port"),
        ({"jobNamespaces": []}, "jobNamespaces"),
        ({"jobNamespaces": ["Research"]}, "jobNamespaces"),
        ({"imagess": {}}, "imagess"),
        ({"probePort": "8080"}, "probePort"),
    ],
    ids=["none", "two", "nested", "empty", "name", "unknown", "text"],
)
def test_a_mistake_is_named_with_its_path(tmp_path, changes, said):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **changes)
    assert said in str(caught.value)
