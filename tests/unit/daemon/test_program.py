"""`spes-operator`, as far as all of its programs are alike."""

import logging

from spes_api.exit_codes import UNUSABLE
from spes_operator.daemon import main


def test_probes_are_not_logged(tmp_path, capsys):
    nowhere = str(tmp_path / "none.yaml")
    assert main(["hub", "--config", nowhere]) == UNUSABLE
    assert f"spes-operator hub: {nowhere}" in capsys.readouterr().err
    assert not logging.getLogger("aiohttp.access").isEnabledFor(logging.INFO)
