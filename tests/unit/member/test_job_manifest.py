"""A trainer as a Job: whole documents against golden files. Rewrite them with WRITE_GOLDEN=1."""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from spes_operator.k8s.workloads import FileProbe, JobStatus, LocalJob, PodRequest, SecretMount
from spes_operator.member.job_manifest import job_manifest, read_job, read_leftover_pod
from spes_operator.member.pod_manifest import POD_PATHS, PodSettings, WorkVolume, work_claim

GOLDEN = Path(__file__).parents[2] / "golden" / "member"
JOB = LocalJob(
    name="moe-tiny-0-1a2b3c4d-fffff",
    job_uid="uid-1",
    assignment="moe-tiny-0-1a2b3c4d",
    slot="a100-0",
    command=("spes-trainer", "train", "--dir", "/work"),
    secret_mounts=(SecretMount(secret="moe-tiny-0-1a2b3c4d-join", directory=POD_PATHS.secrets),),
    ready_probe=FileProbe(path=POD_PATHS.work / "ready", max_age=timedelta(seconds=30)),
    ignore_exit_codes=(75,),
    fail_exit_codes=(2,),
    grace=timedelta(seconds=120),
)
SETTINGS = PodSettings(namespace="spes", image="trainer@sha256:1")
FULL_JOB = replace(
    JOB,
    env={"OMP_NUM_THREADS": "4"},
    suspend=True,
    pod=PodRequest(
        image="other:2",
        resources={"nvidia.com/gpu": "2", "memory": "64Gi"},
        datasets=("corpus", "weights"),
        node_selector={"nvidia.com/gpu.product": "A100"},
        priority_class="low",
        queue="gpus",
    ),
)
FULL_SETTINGS = replace(
    SETTINGS,
    work_volume=WorkVolume(kind="pvc", size="20Gi", storage_class="fast"),
    datasets={
        "corpus": {"persistentVolumeClaim": {"claimName": "corpus", "readOnly": True}},
        "weights": {"image": {"reference": "weights:1"}},
    },
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
    image_pull_secrets=("registry",),
    runtime_class="nvidia",
    env={"OMP_NUM_THREADS": "1", "https_proxy": "http://proxy:3128"},
)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("job-plain", job_manifest(JOB, SETTINGS)),
        ("job-full", job_manifest(FULL_JOB, FULL_SETTINGS)),
        ("work-claim", work_claim(FULL_JOB, FULL_SETTINGS, {"a": "b"})),
    ],
)
def test_manifest_is_the_golden_one(name, document):
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    assert document == yaml.safe_load(path.read_text())


def test_only_a_queued_job_is_suspended_and_labelled():
    plain, queued = job_manifest(JOB, SETTINGS), job_manifest(FULL_JOB, FULL_SETTINGS)
    assert "suspend" not in plain["spec"]
    assert queued["spec"]["suspend"] is True
    label = "kueue.x-k8s.io/queue-name"
    assert (label in plain["metadata"]["labels"], queued["metadata"]["labels"][label]) == (
        False,
        "gpus",
    )


def test_job_is_read_back():
    status = JobStatus(active=True, ready=True)
    read = read_job(job_manifest(FULL_JOB, FULL_SETTINGS), status)
    assert (read.name, read.job_uid, read.assignment, read.slot, read.command, read.grace) == (
        *(FULL_JOB.name, FULL_JOB.job_uid, FULL_JOB.assignment, FULL_JOB.slot),
        *(FULL_JOB.command, FULL_JOB.grace),
    )
    assert read.status == status


def test_pod_without_its_job_is_a_trainer_that_is_being_stopped():
    template = job_manifest(JOB, SETTINGS)["spec"]["template"]
    labels = template["metadata"]["labels"] | {"batch.kubernetes.io/job-name": JOB.name}
    read = read_leftover_pod({"metadata": {"labels": labels}, "spec": template["spec"]})
    assert (read.name, read.slot, read.status) == (JOB.name, JOB.slot, JobStatus(active=True))
