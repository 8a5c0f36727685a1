"""Makers of arguments: each draws from torch's generator, so a seed fixes them."""

from __future__ import annotations

from typing import Any

import torch

Inputs = dict[str, Any]
BATCH, LENGTH, WRITTEN = 2, 7, 5


def tokens(batch: int = BATCH, length: int = LENGTH, low: int = 3, high: int = 100) -> torch.Tensor:
    """Token ids above the special ones."""
    return torch.randint(low, high, (batch, length))


def mask(length: int = LENGTH) -> torch.Tensor:
    """The second text is two tokens shorter."""
    found = torch.ones(BATCH, length, dtype=torch.int64)
    found[1, -2:] = 0
    return found


def ids() -> Inputs:
    return {"input_ids": tokens()}


def masked() -> Inputs:
    return {"input_ids": tokens(), "attention_mask": mask()}


def long() -> Inputs:
    """A text of 16 tokens, for models that work in blocks."""
    return {"input_ids": tokens(length=16), "attention_mask": mask(16)}


def translated() -> Inputs:
    return {**masked(), "decoder_input_ids": tokens(length=WRITTEN)}


def image(size: int = 32, channels: int = 3, batch: int = BATCH) -> Inputs:
    return {"pixel_values": torch.randn(batch, channels, size, size)}


def wide_image() -> Inputs:
    return image(64)


def video(frames: int = 4, size: int = 32) -> Inputs:
    return {"pixel_values": torch.randn(1, frames, 3, size, size)}


def wave(length: int = 800) -> Inputs:
    return {"input_values": torch.randn(BATCH, length)}
