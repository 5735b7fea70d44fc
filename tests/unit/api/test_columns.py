"""What `kubectl get` shows of each kind, in this order."""

import pytest
from spes_api.definitions import DEFINITIONS

COLUMNS = {
    "SpesJob": ("Ready Reason Members Experts Round Epoch Loss Age", "Sync Mode"),
    "MemberCluster": ("Accepted Ready GPUs Jobs Version Last-Seen Age", "Reason Slots"),
    "MemberReport": ("Version Age", ""),
    "TrainerAssignment": ("Job Experts Desired Ready Age", ""),
}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.model.__name__)
def test_columns_are_those_that_people_look_for(definition):
    usual = [column.name for column in definition.columns if not column.wide]
    wide = [column.name for column in definition.columns if column.wide]
    assert (" ".join(usual), " ".join(wide)) == COLUMNS[definition.model.__name__]
