"""The chart, rendered by the helm that hack/helm/build.py builds."""

import pytest
from builders.chart import Chart, built_helm


@pytest.fixture(scope="session")
def chart() -> Chart:
    """Renders it."""
    return Chart(helm=built_helm())
