"""First weights of a job that goes on from a model: `model.upcycleFrom`."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from spes_api.job import SpesJobSpec
from spes_api.model import ModelConfig
from spes_sync.errors import ExportError
from spes_sync.export import load_hugging_face

from spes_trainer.data.sources import locate
from spes_trainer.errors import config_error
from spes_trainer.model.transformer import Transformer
from spes_trainer.rows import copy_rows

logger = logging.getLogger(__name__)

_FIELD = "model.upcycleFrom"


@torch.no_grad()
def load_first_weights(model: Transformer, spec: SpesJobSpec, *, data_root: Path) -> None:
    """Copy the weights that the job names into the model, tensor by tensor; nothing if none.

    Raises:
        ConfigError: the folder is missing, damaged, or of another shape than the job says.
    """
    if spec.model.upcycle_from is None:
        return
    place = spec.model.upcycle_from.dataset
    folder = locate(place, field=f"{_FIELD}.dataset", data_root=data_root)
    own = dict(model.named_parameters())
    try:
        found, tensors = load_hugging_face(folder)
        _require_same_shape(found, spec.model.resolve(), folder)
        for name, value in tensors:
            copy_rows(own[name], torch.from_numpy(value))
    except ExportError as error:
        raise config_error(
            folder,
            f"{_FIELD}.dataset",
            got=str(error),
            expected="a folder of an OLMoE, Qwen3, Qwen3-MoE, Llama or Mixtral model",
            hint="write one with spes-trainer upcycle",
        ) from error
    logger.info("first weights loaded folder=%s", folder)


def _require_same_shape(found: ModelConfig, wanted: ModelConfig, folder: Path) -> None:
    theirs, ours = _described(found), _described(wanted)
    if differing := [key for key in ours if theirs[key] != ours[key]]:
        raise config_error(
            folder,
            _FIELD,
            got=", ".join(f"{key} {theirs[key]}" for key in differing),
            expected=", ".join(f"{key} {ours[key]}" for key in differing),
            hint="copy the config that spes-trainer upcycle printed",
        )


def _described(config: ModelConfig) -> dict[str, object]:
    """What must agree, defaults resolved; how weights would be drawn does not matter.

    Nor do the gates of a single expert: they are 1 either way.
    """
    resolved: dict[str, object] = {
        "num_kv_heads": config.kv_heads,
        "head_width": config.head_size,
        "renormalize": config.renormalize or config.num_experts == 1,
    }
    plain = config.model_copy(update=resolved).model_dump(by_alias=True)
    return {key: value for key, value in plain.items() if key != "initStd"}
