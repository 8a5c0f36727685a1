"""Architectures of the torch zoo: a few captured with free sizes and held against eager torch at two of them.

The whole zoo at fixed sizes is the conformance suite ``torch_zoo``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
T = pytest.importorskip("transformers")

import unigraph as ug
from tests.conformance import torch_zoo_suite as suite
from tests.zoo import torch as zoo

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS, PIXELS = ("batch", "length"), ("batch", None, None, None)
ENGINES = ("torch", "jax")


def tokens(batch: int, length: int) -> Any:
    return torch.randint(3, 100, (batch, length))


def ids(batch: int, length: int) -> dict[str, Any]:
    return {"input_ids": tokens(batch, length)}


def image(batch: int, length: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


@dataclass(frozen=True)
class Free:
    """Arguments of a batch and a length, and which of their axes are free."""

    inputs: Callable[[int, int], dict[str, Any]]
    dynamic: dict[str, Any]


FREE = {
    "bert": Free(
        lambda n, s: {**ids(n, s), "attention_mask": torch.ones(n, s, dtype=torch.int64)},
        {"input_ids": TOKENS, "attention_mask": TOKENS},
    ),
    "gpt2": Free(ids, {"input_ids": TOKENS}),
    "llama": Free(ids, {"input_ids": TOKENS}),
    "t5": Free(
        lambda n, s: {**ids(n, s), "decoder_input_ids": tokens(n, s + 2)},
        {"input_ids": TOKENS, "decoder_input_ids": ("batch", "written")},
    ),
    "vit": Free(image, {"pixel_values": PIXELS}),
    "resnet": Free(image, {"pixel_values": PIXELS}),
    "clip": Free(
        lambda n, s: {**ids(n, s), **image(n, s)},
        {"input_ids": ("texts", "length"), "pixel_values": PIXELS},
    ),
    "whisper": Free(
        lambda n, s: {"input_features": torch.randn(n, 8, 20), "decoder_input_ids": tokens(n, s)},
        {"input_features": ("batch", None, None), "decoder_input_ids": TOKENS},
    ),
}


def leaves(x: Any) -> list[Any]:
    """The tensors of an output; a cache counts layer by layer, keys before values."""
    if isinstance(x, T.DynamicCache):
        return [t for layer in x.layers for t in (layer.keys, layer.values)]
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("name", FREE)
def test_free_sizes(name: str, tmp_path: Any) -> None:
    case = FREE[name]
    module = zoo.model(name, cache=name in ("bert", "gpt2", "llama"))
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
                    assert any(near(o, e) for o in ours), f"{output} of {name} on {engine} at {size}"


def near(actual: Any, expected: Any) -> bool:
    """Whether a result is as near as the suite of the whole zoo asks."""
    return suite.judge([actual], [expected]) is None


@pytest.mark.parametrize("engine", ["torch", "jax", "onnx"])
@pytest.mark.parametrize("name", ["mixtral", "mamba"])
def test_sample_of_the_suite(name: str, engine: str) -> None:
    assert suite.run(f"{zoo.kind_of(name)}/{name}", engine) is None


def test_the_suite_judges() -> None:
    x = torch.tensor([1.0, 200.0])
    assert suite.judge({"a": x, "b": None}, {"b": None, "a": x + 0.01}) is None
    assert "off by" in suite.judge({"a": x}, {"a": x + 0.03})
    assert "off by" in suite.judge([x * float("nan")], [x])
    assert "other integers" in suite.judge([torch.tensor([1])], [torch.tensor([2])])
    assert "expected torch.float64" in suite.judge([x], [x.double()])
    assert "1 outputs, expected 2" in suite.judge([x], [x, x])


def test_every_kind_is_there() -> None:
    assert len(zoo.ROWS) >= 100 and min(map(len, zoo.KINDS.values())) >= 5
    first, again, other = (zoo.inputs("bert", seed)["input_ids"] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    weights, same = (dict(zoo.model("gpt2").named_parameters()) for _ in range(2))
    assert all(torch.equal(weights[n], same[n]) for n in weights)


# -- architecture and weights apart ------------------------------------------------------------------


def test_weights_of_a_meta_model_come_later(tmp_path: Any) -> None:
    with torch.device("meta"):
        module = T.LlamaForCausalLM(zoo.config_of(zoo.ROWS["llama"])).eval()
    # Frequencies are in no checkpoint: they are real, and go with the architecture.
    module.model.rotary_emb = type(module.model.rotary_emb)(module.config)
    given = zoo.inputs("llama")
    graph = ug.from_torch(module, kwargs=given)
    assert graph.weights["lm_head.weight"] is None and not module.model.rotary_emb.inv_freq.is_meta
    graph.save(tmp_path / "model.ugraph", weights=False)
    assert (tmp_path / "model.ugraph").stat().st_size < 50_000
    real = zoo.model("llama")
    real.save_pretrained(tmp_path / "checkpoint", max_shard_size="40KB")
    shards = sorted(p.name for p in (tmp_path / "checkpoint").glob("model-*.safetensors"))
    assert len(shards) > 1
    loaded = ug.load(tmp_path / "model.ugraph", weights=str(tmp_path / "checkpoint" / "model-*.safetensors"))
    with torch.no_grad():
        expected = real(**given).logits
    for engine in ENGINES:
        got = torch.from_numpy(np.asarray(ug.compile(loaded, engine)(**given)["logits"]))
        assert near(got, expected), engine


@pytest.mark.slow
def test_seven_billion_parameters_take_no_memory() -> None:
    """As benchmarked: bench/big_architecture.py asks for less than 3 GB and for seconds."""
    found = subprocess.run([sys.executable, "-m", "bench.big_architecture"], capture_output=True, text=True, check=True)
    assert "MISSED" not in found.stdout, found.stdout
