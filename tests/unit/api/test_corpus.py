"""One corpus of jobs, judged alike by pydantic, by the generated schema and by its CEL rules."""

import json
from functools import cache

import pytest
from builders.cel_rules import broken_rules
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
    found = list(violations(schema_of_jobs(), stored(case.job)))
    assert found == ([case.field] if case.field else [])


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.field], ids=lambda case: case.name.replace(" ", "-")
)
def test_the_rules_judge(case: Case):
    """What the schema refuses never gets here, as in an API server."""
    broken = broken_by(case)
    assert bool(broken) is not case.valid
    assert case.valid or any(case.rule in message for message in broken)


def test_every_rule_is_broken_by_a_job():
    broken = {message for case in CASES if case.rule for message in broken_by(case)}
    assert broken == {rule["message"] for rule in rules_in(schema_of_jobs())}


def broken_by(case):
    old = None if case.old is None else stored(case.old)
    return list(broken_rules(schema_of_jobs(), stored(case.job), old))


def rules_in(schema):
    yield from schema.get("x-kubernetes-validations", [])
    for inner in (*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])):
        yield from rules_in(inner)


def stored(job):
    """As an API server has it: with defaults, and of the metadata what the schema names."""
    return with_defaults(schema_of_jobs(), job | {"metadata": {"name": job["metadata"]["name"]}})
