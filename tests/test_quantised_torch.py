"""Quantised torch programs: captured, and equal to eager torch on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # defines the library

import unigraph as ug
from unigraph.converters.torch_fx import rows_quant

from . import harness

Q = torch.ops.quantized_decomposed
aten = torch.ops.aten
U8, I8 = torch.uint8, torch.int8


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def program(function: Callable[..., Any], *held: Any) -> Any:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, tensor in enumerate(held):
                self.register_buffer(f"held{i}", tensor)

        def forward(self, x: Any) -> Any:
            return function(x, *(getattr(self, f"held{i}") for i in range(len(held))))

    return Program()


def agrees(module: Any, x: Any, engines: Sequence[str] = harness.ENGINES, atol: float = 1e-5) -> Any:
    graph = ug.from_torch(module, (x,))
    with torch.no_grad():
        expected = module(x)
    flat = expected if isinstance(expected, tuple) else (expected,)
    for engine in engines:
        found = ug.run(graph, x, engine=engine)
        for a, e in zip(found if isinstance(found, tuple) else (found,), flat, strict=True):
            a = torch.as_tensor(np.asarray(a)) if not isinstance(a, torch.Tensor) else a
            assert a.dtype == e.dtype and a.shape == e.shape, (engine, a, e)
            torch.testing.assert_close(a, e, rtol=1e-5, atol=atol, msg=lambda m: f"{engine}: {m}")  # noqa: B023
    return graph


def test_quantise_and_back_by_tensor() -> None:
    def both(x: Any) -> Any:
        q = Q.quantize_per_tensor(x, 0.05, 12, 0, 255, U8)
        narrow = Q.quantize_per_tensor(x, 0.03, 0, -127, 127, I8)
        return (
            q,
            narrow,
            Q.dequantize_per_tensor(q, 0.05, 12, 0, 255, U8),
            Q.dequantize_per_tensor(narrow, 0.03, 0, -127, 127, I8, out_dtype=torch.float32),
        )

    x = torch.randn(5, 7) * 6
    graph = agrees(program(both), x)
    assert {"quantize", "dequantize"} <= {op.op.name for op in graph.edges}
    assert int(both(x)[1].min()) == -127  # the narrow range was met


def test_scales_that_are_tensors() -> None:
    def run(x: Any, scale: Any, zero: Any, low: Any, high: Any) -> Any:
        q = Q.quantize_per_tensor.tensor(x, scale, zero, 0, 200, U8)
        q2 = Q.quantize_per_tensor.tensor2(x, scale, zero, low, high, U8)
        return q, q2, Q.dequantize_per_tensor.tensor(q, scale, zero, 0, 200, U8)

    held = (torch.tensor([0.04], dtype=torch.float64), torch.tensor([100]), torch.tensor(3), torch.tensor(220))
    agrees(program(run, *held), torch.randn(4, 6) * 5)


@pytest.mark.parametrize("axis", (0, 1, 2))
def test_quantise_and_back_by_channel(axis: int) -> None:
    x = torch.randn(3, 4, 5) * 4
    n = x.shape[axis]
    scales, zeros = torch.rand(n) / 20 + 0.01, torch.randint(-5, 5, (n,))

    def run(x: Any, scales: Any, zeros: Any) -> Any:
        q = Q.quantize_per_channel(x, scales, zeros, axis, -128, 127, I8)
        return (
            q,
            Q.dequantize_per_channel(q, scales, zeros, axis, -128, 127, I8),
            Q.dequantize_per_channel(q, scales, None, axis, -128, 127, I8),
            Q.dequantize_per_channel(q, scales, zeros.float() + 0.5, axis, -128, 127, I8),
        )

    agrees(program(run, scales, zeros), x)


def test_quantise_by_group() -> None:
    x = torch.randn(4, 16)
    scales, zeros = torch.rand(4, 2) / 20 + 0.05, torch.randint(-3, 3, (4, 2), dtype=torch.float32)

    def run(x: Any, scales: Any, zeros: Any) -> Any:
        q = Q.quantize_per_channel_group(x, scales, zeros, -8, 7, I8, 8)
        return q, Q.dequantize_per_channel_group(q, scales, zeros, -8, 7, I8, 8, torch.float32)

    agrees(program(run, scales, zeros), x)


def test_dynamic_ranges() -> None:
    def by_tensor(x: Any) -> Any:
        scale, zero = Q.choose_qparams(x, 0, 255, 1e-6, U8)
        q = Q.quantize_per_tensor(x, scale, zero, 0, 255, U8)
        s2, z2 = Q.choose_qparams_symmetric(x, -127, 127, 1e-6, I8)
        return q, Q.dequantize_per_tensor(q, scale, zero, 0, 255, U8), s2, z2

    def by_token(x: Any) -> Any:
        scale, zero = Q.choose_qparams_per_token_asymmetric(x, I8)
        q = Q.quantize_per_token(x, scale, zero, -128, 127, I8)
        return q, Q.dequantize_per_token(q, scale, zero, -128, 127, I8, torch.float32)

    for x in (torch.randn(4, 6) + 1, torch.rand(2, 3, 5) + 2, torch.zeros(2, 2)):
        agrees(program(by_tensor), x)
        agrees(program(by_token), x, engines=("numpy", "torch", "onnx"))  # computes in f64


def test_converted_graph_as_pt2e_makes_it() -> None:
    """Weights in int8 by channel, activations by tensor: linear, relu, conv."""
    linear, conv = torch.nn.Linear(6, 8), torch.nn.Conv2d(2, 3, 3)

    def quantised(w: Any) -> Any:
        scale = w.detach().reshape(len(w), -1).abs().amax(1) / 127
        zero = torch.zeros(len(w), dtype=torch.int64)
        return Q.quantize_per_channel(w.detach(), scale, zero, 0, -127, 127, I8), scale, zero

    def run(x: Any, w: Any, s: Any, z: Any, b: Any, cw: Any, cs: Any, cz: Any, cb: Any) -> Any:
        x = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.03, 3, -128, 127, I8), 0.03, 3, -128, 127, I8)
        h = torch.nn.functional.linear(x, Q.dequantize_per_channel(w, s, z, 0, -127, 127, I8), b).relu()
        h = Q.dequantize_per_tensor(Q.quantize_per_tensor(h, 0.02, -128, -128, 127, I8), 0.02, -128, -128, 127, I8)
        h = h.reshape(1, 2, 8, -1)
        return torch.nn.functional.conv2d(h, Q.dequantize_per_channel(cw, cs, cz, 0, -127, 127, I8), cb)

    held = (*quantised(linear.weight), linear.bias.detach(), *quantised(conv.weight), conv.bias.detach())
    graph = agrees(program(run, *held), torch.randn(16, 6))
    assert sum(op.op.name == "dequantize" for op in graph.edges) == 4
    assert {v.type.dtype.name for v in graph.data if v.name in ("held0", "held4")} == {"i8"}  # kept in 8 bits


def test_fake_quantisation_of_training() -> None:
    x = torch.randn(3, 8) * 3
    scales, zeros = torch.rand(8) / 10 + 0.01, torch.randint(-4, 4, (8,), dtype=torch.int32)
    agrees(program(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 5, 0, 63)), x)
    agrees(program(lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -20, 20), scales, zeros), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weights", ("per tensor", "per channel", "half"))
def test_dynamic_linear(weights: str) -> None:
    from torch.ao import quantization as ao

    def quantised(*layers: Any) -> Any:
        which = {"per tensor": ao.default_dynamic_qconfig, "per channel": ao.per_channel_dynamic_qconfig}
        kinds = {torch.nn.Linear: which.get(weights, ao.float16_dynamic_qconfig)}
        dtype = torch.float16 if weights == "half" else torch.qint8
        return ao.quantize_dynamic(torch.nn.Sequential(*layers).eval(), kinds, dtype=dtype)

    module = quantised(torch.nn.Linear(16, 8), torch.nn.ReLU())
    for x in (torch.randn(5, 16), torch.rand(2, 3, 16) + 1, torch.zeros(1, 16), torch.full((1, 16), 1e-4)):
        graph = agrees(module, x)
        kinds = {v.name: v.type.dtype.name for v in graph.data if v.name}
        assert kinds["0.weight"] == ("f16" if weights == "half" else "i8") and kinds["0.bias"] == "f32"
    agrees(quantised(torch.nn.Linear(16, 8, bias=False)), x)
    both = torch.nn.Sequential(module[0], torch.nn.ReLU(), quantised(torch.nn.Linear(8, 16))[0])
    x = torch.randn(3, 16)
    # A last bit of difference may move a quantised number by one step, of 1/127 of the range, once.
    step = float(module(x).detach().abs().max()) / 127 * float(both[2].weight().detach().dequantize().abs().max())
    graph = agrees(both, x, atol=step)
    assert {"0.weight", "2.weight"} <= set(graph.weights)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_int8_weight_only_linear(dtype: Any) -> None:
    weight, scales = torch.randint(-128, 127, (8, 16), dtype=I8), (torch.rand(8) / 50).to(dtype)
    module = program(lambda x, w, s: aten._weight_int8pack_mm(x, w, s), weight, scales)
    agrees(module, torch.randn(3, 16, dtype=dtype), atol=1e-5 if dtype is torch.float32 else 0.03)


@pytest.mark.parametrize("n", (16, 32, 64, 80, 128, 144))
def test_int4_packing_is_undone(n: int) -> None:
    weight = torch.randint(0, 16, (n, 64), dtype=torch.int32)
    packed = aten._convert_weight_to_int4pack_for_cpu(weight, 2)
    b = ug.GraphBuilder()
    x = b.input("x", "u8", packed.shape)
    graph = b.build(rows_quant._unpack(b, x))
    assert np.array_equal(np.asarray(ug.run(graph, packed.numpy())), weight.numpy())


@pytest.mark.parametrize("n", (32, 80))
def test_int4_weight_only_linear(n: int) -> None:
    weight = torch.randint(0, 16, (n, 64), dtype=torch.int32)
    pairs = torch.randn(2, n, 2) / 10

    def inside(x: Any, weight: Any, pairs: Any) -> Any:
        return aten._weight_int4pack_mm_for_cpu(x, aten._convert_weight_to_int4pack_for_cpu(weight, 2), 32, pairs)

    def ready(x: Any, packed: Any, pairs: Any) -> Any:
        return aten._weight_int4pack_mm_for_cpu(x, packed, 32, pairs)

    x = torch.randn(3, 64)
    agrees(program(inside, weight, pairs), x, atol=1e-4)
    agrees(program(ready, aten._convert_weight_to_int4pack_for_cpu(weight, 2), pairs), x, atol=1e-4)
