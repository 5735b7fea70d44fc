"""The rights in the chart are those of the plain files, which the rights tests attack."""

import pytest
import yaml
from builders.chart import CHART, NAMESPACES, ROOT, only

FILES = {
    "hub": {
        "hub-clusterrole",
        "hub-in-own-namespace-role",
        "hub-in-job-namespace-role",
        "hub-in-member-clusterrole",
        "member-agent-clusterrole",
        "admission-policy",
    },
    "member": {"member-local-role"},
}
FILES["both"] = FILES["hub"] | FILES["member"]
OF_RIGHTS = ("ClusterRole", "Role", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def plain(names):
    texts = [(CHART / f"files/{name}.yaml").read_text() for name in names]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def identity(obj):
    return obj["kind"], obj["metadata"]["name"]


def without_labels(obj):
    metadata = {key: value for key, value in obj["metadata"].items() if key != "labels"}
    return obj | {"metadata": metadata}


def test_every_plain_file_is_in_the_chart():
    assert {path.stem for path in (CHART / "files").glob("*.yaml")} == FILES["both"]


@pytest.mark.parametrize("mode", NAMESPACES)
def test_rights_equal_the_plain_files(chart, mode):
    wanted = {identity(one): one for one in plain(FILES[mode])}
    rendered = {identity(one): without_labels(one) for one in chart.render(mode)}
    assert {key: rendered[key] for key in wanted} == wanted
    assert {key for key in rendered if key[0] in OF_RIGHTS} <= set(wanted)


@pytest.mark.parametrize(
    ("mode", "bindings"),
    [
        (
            "hub",
            {
                ("spes-hub", "", "spes-hub", "spes-system"),
                ("spes-hub-in-own-namespace", "spes-system", "spes-hub", "spes-system"),
                ("spes-hub-in-job-namespace", "research", "spes-hub", "spes-system"),
            },
        ),
        (
            "member",
            {
                ("spes-member-local", "spes", "spes-member", "spes"),
                ("spes-member-identity", "", "spes-member", "spes"),
                ("spes-member-nodes", "", "spes-member", "spes"),
            },
        ),
    ],
)
def test_each_account_is_bound_to_its_roles_alone(chart, mode, bindings):
    found = [one for one in chart.render(mode) if one["kind"].endswith("RoleBinding")]
    assert bindings == {
        (
            one["roleRef"]["name"],
            one["metadata"].get("namespace", ""),
            one["subjects"][0]["name"],
            one["subjects"][0]["namespace"],
        )
        for one in found
    }
    assert all(len(one["subjects"]) == 1 for one in found)


def test_a_member_that_declares_its_slots_does_not_read_nodes(chart):
    bindings = [one["roleRef"]["name"] for one in chart.render("both") if "roleRef" in one]
    assert "spes-member-local" in bindings
    assert "spes-member-nodes" not in bindings


def test_definitions_are_the_generated_ones_and_are_kept(chart):
    rendered = {one["metadata"]["name"]: one for one in chart.render("hub") if is_definition(one)}
    for path in (ROOT / "crds").glob("*.yaml"):
        definition = rendered.pop(path.stem)
        annotations = definition["metadata"].pop("annotations")
        assert annotations == {"helm.sh/resource-policy": "keep"}
        assert without_labels(definition) == yaml.safe_load(path.read_text())
    assert not rendered


def test_a_member_gets_no_definitions(chart):
    assert not [one for one in chart.render("member") if is_definition(one)]


def is_definition(obj):
    return obj["kind"] == "CustomResourceDefinition"


def test_the_audiences_are_the_admins(chart):
    objects = chart.render("hub", 'hub.apiAudiences=["https://a.example", "https://b.example"]')
    audiences = only(objects, "ConfigMap", "spes-api-audiences")["data"]["audiences"]
    assert audiences == "https://a.example https://b.example"
