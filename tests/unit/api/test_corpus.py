"""One corpus of jobs, judged alike by pydantic and by the generated schema."""

import json
from functools import cache

import pytest
from builders.corpus import Case, corpus
from builders.structural import violations, with_defaults
from spes_api.definitions import DEFINITIONS
from spes_api.errors import ConfigError
from spes_api.job import changed_immutable_fields
from spes_api.loading import load_job

CASES = corpus()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))


@cache
def schema_of_jobs():
    """Made once: of nearly 300 tests here most look at it, none changes it."""
    version = DEFINITIONS[0].manifest()["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]


def loaded(job, folder, name="job.json"):
    path = folder / name
    path.write_text(json.dumps(job))
    return load_job(path)


@each_case
def test_pydantic_judges(case: Case, tmp_path):
    if case.old is not None:
        changed = changed_immutable_fields(
            loaded(case.old, tmp_path, "old.json").spec, loaded(case.job, tmp_path).spec
        )
        assert changed == (() if case.valid else (case.rule,))
    elif case.valid:
        loaded(case.job, tmp_path)
    else:
        with pytest.raises(ConfigError) as caught:
            loaded(case.job, tmp_path)
        (line,) = str(caught.value).splitlines()
        assert case.rule in line
        assert f": {case.field} " in line or not case.field


@each_case
def test_the_schema_judges(case: Case):
    """Rules over several fields are CEL, which only an API server evaluates."""
    schema = schema_of_jobs()
    job = {**case.job, "metadata": {"name": case.job["metadata"]["name"]}}
    found = list(violations(schema, with_defaults(schema, job)))
    assert found == ([case.field] if case.field else [])


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.rule], ids=lambda case: case.name.replace(" ", "-")
)
def test_a_rule_has_a_cel_twin_that_says_the_same(case: Case):
    messages = {rule["message"] for rule in rules_in(schema_of_jobs())}
    assert any(case.rule in message for message in messages)


def rules_in(schema):
    yield from schema.get("x-kubernetes-validations", [])
    for inner in schema.get("properties", {}).values():
        yield from rules_in(inner)
    if "items" in schema:
        yield from rules_in(schema["items"])
