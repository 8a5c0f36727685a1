"""Architectures of transformers, tiny and random: captured once, held against eager torch at two sizes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
T = pytest.importorskip("transformers")

import unigraph as ug

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 100}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}
TOKENS, PIXELS = ("batch", "length"), ("batch", None, None, None)


def tokens(batch: int, length: int) -> Any:
    return torch.randint(3, 100, (batch, length))


def ids(batch: int, length: int) -> dict[str, Any]:
    return {"input_ids": tokens(batch, length)}


def image(batch: int, length: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


@dataclass(frozen=True)
class Architecture:
    make: Callable[[], Any]
    inputs: Callable[[int, int], dict[str, Any]]
    dynamic: dict[str, Any]


def clip() -> Any:
    text = {**TEXT, "max_position_embeddings": 20, "eos_token_id": 2}
    return T.CLIPModel(T.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16))


def t5() -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    return T.T5Model(T.T5Config(**sizes, use_cache=False))


def whisper() -> Any:
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 100, "num_mel_bins": 8}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    limits = {"max_source_positions": 10, "max_target_positions": 20}
    return T.WhisperModel(T.WhisperConfig(**layers, **sizes, **special, **limits, use_cache=False))


ENGINES = ("torch", "jax")
ARCHITECTURES = {
    "bert": Architecture(
        lambda: T.BertModel(T.BertConfig(**TEXT)),
        lambda n, s: {**ids(n, s), "attention_mask": torch.ones(n, s, dtype=torch.int64)},
        {"input_ids": TOKENS, "attention_mask": TOKENS}
    ),
    "gpt2": Architecture(
        lambda: T.GPT2LMHeadModel(T.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100)),
        ids,
        {"input_ids": TOKENS}
    ),
    "llama": Architecture(
        lambda: T.LlamaForCausalLM(T.LlamaConfig(**TEXT, num_key_value_heads=2)),
        ids,
        {"input_ids": TOKENS}
    ),
    "t5": Architecture(
        t5,
        lambda n, s: {**ids(n, s), "decoder_input_ids": tokens(n, s + 2)},
        {"input_ids": TOKENS, "decoder_input_ids": ("batch", "written")},
    ),
    "vit": Architecture(lambda: T.ViTModel(T.ViTConfig(**VISION)), image, {"pixel_values": PIXELS}),
    "resnet": Architecture(
        lambda: T.ResNetModel(T.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
        image,
        {"pixel_values": PIXELS}
    ),
    "clip": Architecture(
        clip,
        lambda n, s: {**ids(n, s), **image(n, s)},
        {"input_ids": ("texts", "length"), "pixel_values": PIXELS}
    ),
    "whisper": Architecture(
        whisper,
        lambda n, s: {"input_features": torch.randn(n, 8, 20), "decoder_input_ids": tokens(n, s)},
        {"input_features": ("batch", None, None), "decoder_input_ids": TOKENS},
    ),
}  # fmt: skip


def leaves(x: Any) -> list[Any]:
    """The tensors of an output; a cache counts layer by layer, keys before values."""
    if isinstance(x, T.DynamicCache):
        return [t for layer in x.layers for t in (layer.keys, layer.values)]
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.filterwarnings("ignore")
def test_architecture(name: str, tmp_path: Any) -> None:
    case = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = case.make().eval()
    ug.from_torch(module, (), case.inputs(2, 7), dynamic=case.dynamic).save(tmp_path / "model.ugraph")
    graph = ug.load(tmp_path / "model.ugraph")
    for engine in ENGINES:
        compiled = ug.compile(graph, engine)
        for size in ((2, 7), (3, 11)):
            given = case.inputs(*size)
            with torch.no_grad():
                want = module(**given)
            got = compiled(**given)
            assert set(got) == set(want)
            for output in want:
                ours, expected = leaves(got[output]), leaves(want[output])
                assert len(ours) == len(expected), output
                # A cache comes back as lists of keys and of values, in an order of its own: all must be there.
                for e in expected:
                    close = [o.shape == e.shape and torch.allclose(o, e, rtol=1e-4, atol=1e-5) for o in ours]
                    assert any(close), f"{output} of {name} on {engine} at {size}"
