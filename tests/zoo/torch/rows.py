"""What describes an architecture, and the sizes that most of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One architecture: ``model`` is a class of transformers, ``sizes`` the keywords of its config."""

    model: str
    inputs: Callable[[], dict[str, Any]]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""  # where the model's class does not tell
    redraw: bool = True  # False where weights of unit gain overflow or make results chaotic


BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TOKENS = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**BODY, **TOKENS, "max_position_embeddings": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2}  # fewer heads for keys and values than for queries
PATCHES = {**BODY, "image_size": 32, "patch_size": 8}
