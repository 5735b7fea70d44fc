"""What a job's trainers' pods are made from, and the hash that tells two apart. Pure."""

from __future__ import annotations

import hashlib
import json

from spes_api.job import SpesJob
from spes_api.kinds import TrainerTemplate

_HASH = 10


def trainer_template(job: SpesJob) -> TrainerTemplate:
    """The part of the job that a trainer's pod is made from."""
    trainer = job.spec.trainer
    return TrainerTemplate(
        image=trainer.image or job.status.images.trainer,
        num_proc_per_node=trainer.num_proc_per_node,
        resources=trainer.resources,
        grace_period_seconds=trainer.grace_period_seconds,
        datasets=list(job.spec.datasets),
        node_selector=trainer.node_selector,
        priority_class_name=trainer.priority_class_name,
        queue_name=trainer.queue_name,
    )


def template_hash(template: TrainerTemplate) -> str:
    """Depends on what is set alone, so that new fields with defaults restart no trainer."""
    text = json.dumps(template.model_dump(by_alias=True, exclude_defaults=True), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]
