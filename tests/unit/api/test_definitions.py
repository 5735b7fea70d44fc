"""The generated CustomResourceDefinitions are structural, small, complete and committed."""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from builders.structural import violations, with_defaults
from pydantic import BaseModel
from spes_api.definitions import DEFINITIONS
from spes_api.generate import generate, render
from spes_api.loading import load_job
from spes_api.structural import structural_schema

ROOT = Path(__file__).parents[3]
# Keys that an API server takes in a structural schema, of those that we use.
STRUCTURAL = {
    "additionalProperties", "default", "description", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "items", "maximum", "maxItems", "maxLength", "maxProperties", "minimum",
    "minItems", "minLength", "pattern", "properties", "required", "type",
    "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-validations",
}  # fmt: skip

each_kind = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.name)


@cache
def schema_of(definition):
    """Made once for all tests; none changes it."""
    return definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema, path=""):
    """Every schema below spec and status, with its path."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        if path or key in ("spec", "status"):
            yield from nodes(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


@each_kind
def test_schema_is_structural(definition):
    for path, node in nodes(schema_of(definition)):
        assert node.keys() <= STRUCTURAL, path
        assert isinstance(node["type"], str), path
        assert isinstance(node.get("exclusiveMinimum", True), bool), path
        assert isinstance(node.get("exclusiveMaximum", True), bool), path
        assert not ("properties" in node and "additionalProperties" in node), path
        if node["type"] == "object":
            assert "properties" in node or "additionalProperties" in node, path
            assert set(node.get("required", [])) <= set(node.get("properties", {})), path


@each_kind
def test_everything_has_a_maximum(definition):
    """Without one the API server's estimate of a rule's cost exceeds its budget."""
    for path, node in nodes(schema_of(definition)):
        if node["type"] == "string":
            assert "maxLength" in node, path
        if node["type"] == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@each_kind
def test_the_largest_spec_is_far_below_what_kubectl_can_apply(definition):
    """It keeps the whole object in an annotation, and all annotations have 262,144 bytes."""
    spec = schema_of(definition)["properties"].get("spec")
    assert spec is None or max_bytes(spec) < 100_000


# Of a number as JSON, and of a label's key with its quotes.
NUMBER_BYTES, KEY_BYTES = 24, 320


def max_bytes(schema):
    """The most that a value takes as JSON; what is not ASCII is for people and short."""
    match schema["type"]:
        case "string":
            return schema["maxLength"] + 2
        case "array":
            return 2 + schema["maxItems"] * (max_bytes(schema["items"]) + 1)
        case "object":
            fields = schema.get("properties", {}).items()
            of_fields = sum(len(key) + 4 + max_bytes(inner) for key, inner in fields)
            values = schema.get("additionalProperties")
            of_values = schema["maxProperties"] * (KEY_BYTES + max_bytes(values)) if values else 0
            return 2 + of_fields + of_values
        case _:
            return NUMBER_BYTES


@each_kind
def test_every_field_is_described(definition):
    for path, node in nodes(schema_of(definition)):
        assert node.get("description") or path.endswith("[]"), path


@each_kind
def test_defaults_fit_and_only_the_spec_has_them(definition):
    for path, node in nodes(schema_of(definition)):
        if "default" in node:
            assert path.startswith(".spec")
            filled = with_defaults(node, node["default"])
            assert list(violations(node, filled)) == [], path


@each_kind
def test_conditions_are_merged_by_type(definition):
    conditions = schema_of(definition)["properties"]["status"]["properties"].get("conditions")
    if conditions is not None:
        assert conditions["x-kubernetes-list-type"] == "map"
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]


@each_kind
def test_list_keys_are_required(definition):
    for path, node in nodes(schema_of(definition)):
        keys = node.get("x-kubernetes-list-map-keys", [])
        assert set(keys) <= set(node.get("items", {}).get("required", [])), path


@each_kind
def test_rules_name_fields_that_exist(definition):
    for path, node in nodes(schema_of(definition)):
        for rule in node.get("x-kubernetes-validations", []):
            for reference in re.findall(
                r"\b(?:self|oldSelf)((?:\.[a-zA-Z]+)+)\b(?!\()", rule["rule"]
            ):
                inner = node
                for key in reference.removeprefix(".").split("."):
                    assert key in inner["properties"], (path, reference)
                    inner = inner["properties"][key]


@each_kind
def test_transition_rules_ask_before_they_read(definition):
    for _, node in nodes(schema_of(definition)):
        for rule in node.get("x-kubernetes-validations", []):
            for reference in re.findall(r"oldSelf(?:\.[a-zA-Z]+)+", rule["rule"]):
                assert f"has({reference})" in rule["rule"]


@each_kind
def test_columns_show_fields_that_exist(definition):
    for column in definition.columns:
        path = column.path.split("[?")[0]
        if path.startswith(".metadata"):
            continue
        node = schema_of(definition)
        for key in path.removeprefix(".").split("."):
            node = node["properties"][key]


@each_kind
def test_committed_definition_is_the_generated_one(definition, tmp_path):
    committed = ROOT / "crds" / f"{definition.name}.yaml"
    generate(tmp_path)
    assert (tmp_path / committed.name).read_text() == committed.read_text(), (
        "run `python -m spes_api.generate crds`"
    )
    assert committed.stat().st_size < 200_000


@each_kind
def test_definition_survives_yaml(definition):
    assert yaml.safe_load(render(definition)) == definition.manifest()


def test_names_and_scopes_are_those_that_people_type():
    assert {one.name: (one.short_name, one.scope, one.model.__name__) for one in DEFINITIONS} == {
        "spesjobs.spes.dev": ("sj", "Namespaced", "SpesJob"),
        "memberclusters.spes.dev": ("mc", "Cluster", "MemberCluster"),
        "memberreports.spes.dev": ("mr", "Namespaced", "MemberReport"),
        "trainerassignments.spes.dev": ("ta", "Namespaced", "TrainerAssignment"),
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("moe-*.yaml")), ids=lambda path: path.stem
)
def test_defaults_of_the_schema_are_those_of_the_models(path):
    schema = schema_of(DEFINITIONS[0])["properties"]["spec"]
    written = yaml.safe_load(path.read_text())["spec"]
    assert list(violations(schema, written)) == []
    filled = with_defaults(schema, written)
    resolved = load_job(path).spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    for empty in ("members", "trainer"):  # an absent mapping of labels or limits is an empty one
        for key in ("selector", "resources", "nodeSelector"):
            if not resolved[empty].get(key, True):
                filled[empty].setdefault(key, {})
    assert filled == resolved


def test_a_union_is_refused():
    class Loose(BaseModel):
        size: int | str

    with pytest.raises(ValueError, match="unions are not structural"):
        structural_schema(Loose, defaults=True)
