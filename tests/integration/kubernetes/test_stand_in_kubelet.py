"""The stand-in kubelet plays pods as a kubelet does, as real controllers and the API server see."""

import base64
import contextlib
import json
import socket
import uuid

import pytest
from builders.live_objects import LiveObjects, condition, is_true, until
from builders.pods import claim, evict, exit_code, job, phase, pod, pod_spec, stateful_set
from builders.stand_in_kubelet import StandInKubelet

pytestmark = pytest.mark.timeout(300)

NODES = ("node-0", "node-1")
SLEEPS = ("sleep", "600")
# The paths of these scripts come as words, since what is inside a word is not rewritten.
UNTIL_NEW = ("sh", "-c", 'until grep -q new "$0"; do sleep 0.05; done')
PRINTS_ENV = ("python", "-c", "import json, os; print(json.dumps(dict(os.environ)))")
IGNORES_TERM = ("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done")
ANSWERS_TERM = ("sh", "-c", "trap 'exit 7' TERM; echo ears; while :; do sleep 0.05; done")
SAYS_HELLO_AND_REPEATS = """
import socketserver, sys

class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello")
        self.request.sendall(self.request.recv(5))

socketserver.ThreadingTCPServer((sys.argv[1], 7000), Handler).serve_forever()
"""
LISTENS = ("python", "-c", SAYS_HELLO_AND_REPEATS, "$(POD_IP)")
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
EVERY_SECOND = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10}


@pytest.fixture(scope="module")
def plane(control_plane_of):
    return control_plane_of("uni-a")


@pytest.fixture(scope="module")
def kubelet(plane):
    nodes = [
        {"name": name, "labels": {"gpu": "h200"}, "capacity": {"nvidia.com/gpu": "1"}}
        for name in NODES
    ]
    running = StandInKubelet(plane, *nodes)
    yield running.wait()
    running.stop()


@pytest.fixture(scope="module")
def objects(plane, kubelet):  # noqa: ARG001 - its nodes
    with LiveObjects(plane.kubeconfig) as live:
        for name in NODES:
            live.wait("Node", "", name, lambda node: not node["spec"].get("taints"))
        yield live


@pytest.fixture
def namespace(plane):
    name = f"test-{uuid.uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", name)
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def says(kubelet, namespace):
    """Waits until a pod's log holds a text; answers the log."""

    def wait(name, text):
        until(
            lambda: text in kubelet.output(namespace, name),
            lambda: kubelet.output(namespace, name),
        )
        return kubelet.output(namespace, name)

    return wait


def test_pods_end_with_their_exit_codes(objects, namespace):
    ends = {"good": 0, "bad": 3, "unknown": 128}
    objects.create(pod(namespace, "good", pod_spec("true")))
    objects.create(pod(namespace, "bad", pod_spec("sh", "-c", "exit 3")))
    objects.create(pod(namespace, "unknown", pod_spec("no-such-program")))
    objects.create(
        pod(
            namespace,
            "two",
            {**pod_spec(*SLEEPS), "initContainers": [{"name": "first", "image": "busybox"}]},
        )
    )
    for name, code in ends.items():
        ended = objects.wait("Pod", namespace, name, lambda pod: exit_code(pod) is not None)
        assert (exit_code(ended), phase(ended)) == (code, "Failed" if code else "Succeeded")
    refused = objects.wait("Pod", namespace, "two", lambda pod: phase(pod) == "Failed")
    assert refused["status"]["reason"] == "UnsupportedPod"


def test_the_environment_is_as_the_spec_says(objects, namespace, says):
    objects.create(config_map(namespace, "map", colour="blue"))
    env = [
        POD_IP,
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SIZE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['size']"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "late", "key": "word"}}},
        {"name": "BOTH", "value": "$(NAME) is $(SIZE), $$(NAME) stays"},
        {"name": "FILE", "value": "/scratch/file"},
    ]
    container = {
        "env": env,
        "envFrom": [{"configMapRef": {"name": "map"}}],
        "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
    }
    spec = pod_spec(*PRINTS_ENV, container=container, volumes=[{"name": "work", "emptyDir": {}}])
    objects.create(pod(namespace, "env", spec, labels={"size": "large"}))
    waits = objects.wait("Pod", namespace, "env", lambda pod: waiting(pod) != "ContainerCreating")
    assert waiting(waits) == "CreateContainerConfigError"
    objects.create(secret(namespace, "late", word="hush"))
    ended = objects.wait("Pod", namespace, "env", lambda pod: phase(pod) == "Succeeded")
    seen = json.loads(says("env", "}"))
    assert (
        seen.items()
        >= {
            "POD_IP": ended["status"]["podIP"],
            "colour": "blue",
            "WORD": "hush",
            "BOTH": "env is large, $(NAME) stays",
            "HOSTNAME": "env",
        }.items()
    )
    assert seen["FILE"].endswith("/root/scratch/file")


def test_files_of_a_secret_follow_it(objects, namespace, kubelet):
    volumes = [{"name": "key", "secret": {"secretName": "key"}}]
    container = {"volumeMounts": [{"name": "key", "mountPath": "/etc/key"}]}
    objects.create(secret(namespace, "key", word="old", other="x"))
    spec = pod_spec(*UNTIL_NEW, "/etc/key/word", container=container, volumes=volumes)
    objects.create(pod(namespace, "reader", spec))
    objects.wait("Pod", namespace, "reader", lambda pod: phase(pod) == "Running")
    folder = kubelet.folder(namespace, "reader") / "root/etc/key"
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "word": 0o600,
        "other": 0o600,
    }
    held = objects.get("Secret", namespace, "key")
    objects.replace({**held, "data": secret(namespace, "key", word="new")["data"]})
    objects.wait("Pod", namespace, "reader", lambda pod: phase(pod) == "Succeeded")


def test_a_pod_is_ready_while_its_probe_says_so(objects, namespace, kubelet):
    container = {
        "readinessProbe": {"exec": {"command": ["test", "-e", "/scratch/ready"]}, **EVERY_SECOND},
        "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
    }
    spec = pod_spec(*SLEEPS, container=container, volumes=[{"name": "work", "emptyDir": {}}])
    objects.create(pod(namespace, "probed", spec))
    running = objects.wait("Pod", namespace, "probed", lambda pod: phase(pod) == "Running")
    assert not is_true(running, "Ready")
    sign = kubelet.folder(namespace, "probed") / "root/scratch/ready"
    sign.touch()
    objects.wait("Pod", namespace, "probed", lambda pod: is_true(pod, "Ready"))
    sign.unlink()
    objects.wait("Pod", namespace, "probed", lambda pod: not is_true(pod, "Ready"))


def test_a_node_port_leads_to_a_ready_pod_and_can_be_cut(objects, namespace, kubelet):
    container = {"env": [POD_IP], "readinessProbe": {"tcpSocket": {"port": 7000}, **EVERY_SECOND}}
    objects.create(
        pod(namespace, "server", pod_spec(*LISTENS, container=container), labels={"app": "s"})
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "door", "namespace": namespace},
        "spec": {"type": "NodePort", "selector": {"app": "s"}, "ports": [{"port": 7000}]},
    }
    port = objects.create(service)["spec"]["ports"][0]["nodePort"]
    objects.wait("Pod", namespace, "server", lambda pod: is_true(pod, "Ready"))
    until(lambda: heard(port) == b"hello")
    kubelet.cut(namespace, "door")
    assert heard(port) == b""
    kubelet.mend(namespace, "door")
    assert heard(port) == b"hello"
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        assert line.recv(5) == b"hello"
        objects.delete("Service", namespace, "door")
        until(lambda: heard(port) == b"")
        line.sendall(b"again")
        assert line.recv(5) == b"again"


def test_a_deleted_pod_gets_its_grace(objects, namespace, plane, says):
    """A finalizer keeps the pods, so that their ends can be read."""
    kept = {"finalizers": ["test.example/look"]}
    objects.create(pod(namespace, "ears", pod_spec(*ANSWERS_TERM), **kept))
    deaf = pod_spec(*IGNORES_TERM, terminationGracePeriodSeconds=1)
    objects.create(pod(namespace, "deaf", deaf, **kept))
    for name, code in {"ears": 7, "deaf": 137}.items():
        objects.wait("Pod", namespace, name, lambda pod: phase(pod) == "Running")
        says(name, name)
        objects.delete("Pod", namespace, name)
        ended = objects.wait("Pod", namespace, name, lambda pod: exit_code(pod) is not None)
        assert (exit_code(ended), phase(ended)) == (code, "Failed")
        plane.kubectl(
            *("patch", "pod", name, "-n", namespace, "--type=json"),
            *("-p", '[{"op": "remove", "path": "/metadata/finalizers"}]'),
        )
        objects.wait_gone("Pod", namespace, name)


def test_a_pod_goes_on_while_its_hook_sleeps(objects, namespace, kubelet, says):
    """It ends by itself, before it would be asked to."""
    script = "trap 'exit 7' TERM; echo up; until test -e \"$0\"; do sleep 0.05; done"
    container = {
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
        "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
    }
    spec = pod_spec(
        *("sh", "-c", script, "/scratch/go"),
        container=container,
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    objects.create(job(namespace, "server", spec))
    name = the_pod(objects, namespace)
    says(name, "up")
    objects.delete("Pod", namespace, name)
    objects.wait("Pod", namespace, name, lambda pod: "deletionTimestamp" in pod["metadata"])
    (kubelet.folder(namespace, name) / "root/scratch/go").touch()
    objects.wait("Job", namespace, "server", lambda job: is_true(job, "Complete"))


def test_a_job_counts_no_disruption_and_every_failure(objects, namespace, plane, says):
    objects.create(job(namespace, "trainer", pod_spec(*ANSWERS_TERM)))
    first = the_pod(objects, namespace)
    says(first, "ears")
    evict(plane, namespace, first)
    until(lambda: the_pod(objects, namespace) not in ("", first))
    second = the_pod(objects, namespace)
    assert condition(objects.get("Job", namespace, "trainer"), "Failed") == {}
    says(second, "ears")
    objects.delete("Pod", namespace, second)
    failed = objects.wait("Job", namespace, "trainer", lambda job: is_true(job, "Failed"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"


def test_a_stateful_pod_comes_back_with_its_name_and_volume(objects, namespace, kubelet, says):
    script = 'echo start >> "$0"; cat "$0"; exec sleep 600'
    objects.create(claim(namespace, "volume"))
    spec = pod_spec("sh", "-c", script, "/data/starts")
    objects.create(stateful_set(namespace, "server", spec, "volume"))
    first = objects.wait("Pod", namespace, "server-0", lambda pod: is_true(pod, "Ready"))
    bound = objects.get("PersistentVolumeClaim", namespace, "volume")
    assert bound["status"]["phase"] == "Bound"
    says("server-0", "start")
    kubelet.kill(namespace, "server-0")
    objects.wait("Pod", namespace, "server-0", lambda pod: restarts(pod) == 1)
    says("server-0", "start\nstart")
    objects.delete("Pod", namespace, "server-0")
    second = objects.wait(
        *("Pod", namespace, "server-0"),
        lambda pod: uid(pod) != uid(first) and is_true(pod, "Ready"),
    )
    assert restarts(second) == 0
    says("server-0", "start\nstart\nstart")


def test_a_pod_waits_for_what_it_needs(objects, namespace):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for name in ("a", "b", "c"):
        objects.create(pod(namespace, name, pod_spec(*SLEEPS, container=limits)))
        objects.wait("Pod", namespace, name, lambda pod: condition(pod, "PodScheduled"))
    places = {name: objects.get("Pod", namespace, name)["spec"].get("nodeName") for name in "abc"}
    assert set(places.values()) == {*NODES, None}
    left = next(name for name, node in places.items() if node is None)
    told = condition(objects.get("Pod", namespace, left), "PodScheduled")["message"]
    assert told == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    objects.delete("Pod", namespace, "a" if left != "a" else "b")
    objects.wait("Pod", namespace, left, lambda pod: phase(pod) == "Running")
    nowhere = pod_spec(*SLEEPS, container={"image": "registry.invalid/none:1"})
    objects.create(pod(namespace, "nowhere", nowhere))
    objects.wait("Pod", namespace, "nowhere", lambda pod: waiting(pod) == "ImagePullBackOff")


def test_a_lost_node_is_silent_and_its_pods_are_dead(objects, namespace, kubelet):
    spec = pod_spec(*SLEEPS, nodeSelector={"kubernetes.io/hostname": "node-1"})
    objects.create(job(namespace, "trainer", spec))
    name = the_pod(objects, namespace)
    objects.wait("Pod", namespace, name, lambda pod: is_true(pod, "Ready"))
    kubelet.lose("node-1")
    objects.wait("Node", "", "node-1", lambda node: condition(node, "Ready")["status"] == "Unknown")
    silent = objects.wait("Pod", namespace, name, lambda pod: not is_true(pod, "Ready"))
    assert phase(silent) == "Running"
    kubelet.start("node-1")
    objects.wait("Node", "", "node-1", lambda node: is_true(node, "Ready"))
    failed = objects.wait("Job", namespace, "trainer", lambda job: is_true(job, "Failed"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"


def test_a_node_that_shuts_down_ends_its_pods_as_disrupted(objects, namespace, kubelet, says):
    """Even one that ends with 0: it did not end by itself."""
    objects.create(job(namespace, "trainer", pod_spec("sh", "-c", ENDS_WELL)))
    first = the_pod(objects, namespace)
    says(first, "up")
    node = objects.get("Pod", namespace, first)["spec"]["nodeName"]
    kubelet.shut_down(node)
    until(lambda: the_pod(objects, namespace) not in ("", first))
    second = the_pod(objects, namespace)
    moved = objects.wait("Pod", namespace, second, lambda pod: phase(pod) == "Running")
    assert moved["spec"]["nodeName"] != node
    assert not is_true(objects.get("Job", namespace, "trainer"), "Failed")
    kubelet.start(node)
    objects.wait("Node", "", node, lambda node: is_true(node, "Ready"))


ENDS_WELL = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


def secret(namespace, name, **words):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: encoded(word) for key, word in words.items()},
    }


def encoded(word):
    return base64.b64encode(word.encode()).decode()


def config_map(namespace, name, **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def waiting(obj):
    statuses = obj.get("status", {}).get("containerStatuses") or [{"state": {}}]
    return statuses[0]["state"].get("waiting", {}).get("reason", "ContainerCreating")


def restarts(obj):
    return obj["status"]["containerStatuses"][0]["restartCount"]


def uid(obj):
    return obj["metadata"]["uid"]


def the_pod(objects, namespace):
    """The name of the Job's pod that has not ended, once there is one."""
    found = []

    def look():
        pods = objects.list("Pod", namespace)
        found[:] = [
            pod["metadata"]["name"]
            for pod in pods
            if phase(pod) in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]
        return len(found) == 1

    until(look)
    return found[0]


def heard(port):
    """What a node port says; nothing if it is cut."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
        return line.recv(5)
    return b""
