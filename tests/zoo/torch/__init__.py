"""Architectures of transformers as data: a name, the model's class, sizes of its config, a maker of inputs.

Every model is tiny (one or two layers, 32 wide) and drawn from a seed. Freshly made models are nearly linear
(weights around 0.02, zero biases, unit scales): what a layer does would hardly show in the output. So each
weight is drawn again with unit gain, and vectors are moved a little.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from .audio import AUDIO, SERIES
from .decoders import DECODERS, MIXTURES, STATE_SPACE
from .encoders import ENCODER_DECODERS, ENCODERS
from .inputs import Inputs
from .multimodal import MULTIMODAL
from .rows import Row
from .vision import VISION

KINDS: Mapping[str, Mapping[str, Row]] = {
    "text encoder": ENCODERS,
    "decoder": DECODERS,
    "mixture of experts": MIXTURES,
    "state space": STATE_SPACE,
    "encoder-decoder": ENCODER_DECODERS,
    "vision": VISION,
    "audio": AUDIO,
    "time series": SERIES,
    "multimodal": MULTIMODAL,
}
ROWS: Mapping[str, Row] = {name: row for rows in KINDS.values() for name, row in rows.items()}
assert len(ROWS) == sum(map(len, KINDS.values())), "a name stands in two kinds"


def kind_of(name: str) -> str:
    """The kind that an architecture belongs to."""
    return next(kind for kind, rows in KINDS.items() if name in rows)


def config_of(row: Row, cache: bool = False) -> Any:
    """The config of a row. Whether a cache is among the results is said at every level of it."""
    cls = getattr(transformers, row.model)
    config = (getattr(transformers, row.config) if row.config else cls.config_class)(**row.sizes)
    for part in _parts(config):
        part.use_cache = cache
    return config


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for part in vars(config).values():
        if isinstance(part, transformers.PreTrainedConfig):
            yield from _parts(part)


def model(name: str, seed: int = 0, cache: bool = False) -> Any:
    """A model in evaluation mode, the same for the same seed."""
    row = ROWS[name]
    torch.manual_seed(seed)
    module = getattr(transformers, row.model)(config_of(row, cache)).eval()
    if row.redraw:
        redraw(module)
    return module


@torch.no_grad()
def redraw(module: Any) -> None:
    """Weights of unit gain, and vectors moved by a tenth, so that every layer and every bias counts."""
    for parameter in module.parameters():
        if not parameter.is_floating_point() or not parameter.numel():
            continue
        if parameter.ndim >= 2:
            parameter.normal_(0, (parameter.shape[0] / parameter.numel()) ** 0.5)
        else:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def inputs(name: str, seed: int = 1) -> Inputs:
    """Arguments by name. Another seed gives other values of the same shapes."""
    torch.manual_seed(seed)
    return ROWS[name].inputs()
