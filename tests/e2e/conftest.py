"""A federation on kind clusters, made once and removed at the end, whatever happens."""

import os
from collections.abc import Iterator

import pytest
from builders.kind_federation import KindFederation
from builders.kind_installation import Images
from builders.scenario_table import ScenarioTable

_TABLE = ScenarioTable()
# Making clusters counts as part of the first test.
_TEST_SECONDS = 1500


def pytest_configure(config):
    config.addinivalue_line("markers", "e2e: a federation of kind clusters; `make e2e` runs it")
    config.addinivalue_line("markers", "rest: of `make e2e-all` alone")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


def pytest_terminal_summary(terminalreporter):
    if _TABLE.rows:
        terminalreporter.section("scenarios")
        for line in _TABLE.lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def table() -> ScenarioTable:
    """Of all that is played."""
    return _TABLE


@pytest.fixture(scope="session")
def federation(tmp_path_factory) -> Iterator[KindFederation]:
    """Nothing runs in it yet; tests build on each other from top to bottom."""
    images = Images.of_environment()
    if images is None:
        pytest.skip("needs kind clusters, which `make e2e` brings")
    made = KindFederation(tmp_path_factory.mktemp("federation"), images)
    try:
        yield made
    finally:
        if not os.environ.get("SPES_E2E_KEEP"):
            made.close()


_broken: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and "federation" in item.fixturenames:
        _broken.append(item.name)
    return report


@pytest.fixture(autouse=True)
def _nothing_broken_before():
    """What stands on a step that failed is not tried."""
    if _broken:
        pytest.fail(f"{_broken[0]} failed before, and this stands on it")
