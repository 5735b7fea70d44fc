"""A hub goes on with what the API server holds from a former release of it."""

import pytest
from builders.cel_rules import broken_rules
from builders.stored_objects import stored_objects
from builders.structural import violations, with_defaults
from spes_api.definitions import DEFINITIONS
from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.template import template_hash

MODELS = {
    model.__name__: model for model in (SpesJob, MemberCluster, MemberReport, TrainerAssignment)
}


@pytest.mark.parametrize("obj", stored_objects(*MODELS))
def test_no_field_is_lost_and_no_rule_is_broken(obj):
    """An API server removes fields that the schema does not know any more."""
    (definition,) = (one for one in DEFINITIONS if one.model.__name__ == obj["kind"])
    schema = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    given = obj | {"metadata": {"name": obj["metadata"]["name"]}}
    assert list(violations(schema, given)) == []
    assert list(broken_rules(schema, with_defaults(schema, given), given)) == []


@pytest.mark.parametrize("obj", stored_objects(*MODELS))
def test_every_value_is_read(obj):
    read = MODELS[obj["kind"]].model_validate(obj).model_dump(by_alias=True, exclude_unset=True)
    for part in ("spec", "status"):
        assert read.get(part) == obj.get(part)


@pytest.mark.parametrize("obj", stored_objects("TrainerAssignment"))
def test_no_trainer_is_restarted(obj):
    assignment = TrainerAssignment.model_validate(obj)
    assert template_hash(assignment.spec.template) == assignment.spec.template_hash


@pytest.mark.parametrize("obj", stored_objects("ConfigMap"))
def test_ownership_is_read(obj):
    ownership = Ownership.from_config_map(obj)
    assert ownership is not None
    assert ownership.epoch > 0
    assert set(ownership.owners.values()) <= set(ownership.peers)
