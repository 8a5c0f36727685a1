"""Graphs as torch modules: equal to the torch engine, trainable, exportable, compilable, copyable."""

from __future__ import annotations

import copy
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unigraph as ug
from unigraph.builder import GraphBuilder
from unigraph.converters.torch_fx.export import to_torch
from unigraph.dims import Constraint
from unigraph.graph import Graph, Value
from unigraph.runtime.engines import compile as compile_graph
from unigraph.runtime.torch.dtypes import from_numpy, to_numpy
from unigraph.tree import LEAF, NONE, Signature, Tree, flatten

from . import harness

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def leaves(x: Any) -> list[Any]:
    return flatten(x, lambda v: isinstance(v, torch.Tensor))[0]


def agree(graph: Graph, *inputs: Any, module: Any = None) -> Any:
    """The module's result, which must be that of the torch engine."""
    module = module or to_torch(graph)
    result = module(*inputs)
    expected = compile_graph(graph, "torch")(*inputs)
    ours, theirs = leaves(result), leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype is b.dtype
        torch.testing.assert_close(a.detach(), b, equal_nan=True, rtol=1e-5, atol=1e-6)
    return result


def block() -> Graph:
    """Attention, layer norm and a gelu, with free batch and sequence."""
    b = GraphBuilder("block")
    x = b.input("x", "f32", ("batch", "seq", 8))
    with b.at("encoder.0.attention"):
        h = b.layer_norm(
            x, b.weight("norm.weight", f32(8)), b.weight("norm.bias", f32(8)), normalized_rank=1, epsilon=1e-5
        )
        h = b.linear(h, b.weight("encoder.0.q.weight", f32(8, 8)), b.weight("encoder.0.q.bias", f32(8)))
        heads = b.transpose(b.reshape(h, shape=("batch", "seq", 2, 4)), permutation=(0, 2, 1, 3))
        a = b.transpose(b.attention(heads, heads, heads), permutation=(0, 2, 1, 3))
        y = b.add(b.gelu(b.mul(b.reshape(a, shape=("batch", "seq", 8)), 2.0)), x)
    return b.build({"y": y, "total": [b.reduce_sum(y, axes=(0, 1, 2))]})


def test_code_names_structure_and_sizes() -> None:
    module = to_torch(block())
    assert list(module.state_dict()) == ["norm.weight", "norm.bias", "encoder.0.q.weight", "encoder.0.q.bias"]
    assert "unigraph" not in module.code
    assert "layer_norm(" in module.code and "scaled_dot_product_attention(" in module.code and "2.0)" in module.code
    assert "encoder_0_attention_linear" in module.code
    for shape in ((2, 3, 8), (5, 1, 8), (1, 7, 8)):
        result = agree(block_graph := block(), torch.from_numpy(f32(*shape)), module=None)
        assert set(result) == {"y", "total"} and block_graph.name == "block"


def test_trains_copies_saves() -> None:
    graph = block()
    module, x = to_torch(graph), torch.from_numpy(f32(2, 3, 8))
    twin = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    first = module(x)["total"][0]
    first.backward()
    assert all(p.grad is not None for p in module.parameters())
    optimizer.step()
    assert module(x)["total"][0] < first
    assert not torch.equal(twin(x)["y"], module(x)["y"])
    twin.load_state_dict(module.state_dict())
    assert torch.equal(twin(x)["y"], module(x)["y"])


def check_export(module: Any, *inputs: Any, dynamic: Any = None) -> None:
    expected = leaves(module(*inputs))
    exported = torch.export.export(module, inputs, dynamic_shapes=dynamic)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for f in (exported.module(), compiled):
        for a, b in zip(leaves(f(*inputs)), expected, strict=True):
            torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-5, atol=1e-6)


def test_exports_and_compiles() -> None:
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
    check_export(to_torch(block()), torch.from_numpy(f32(2, 3, 8)), dynamic=(dims,))


FIRST = {
    op.name: f"{op.name}.{i}" for op in harness.registry().values() for i in reversed(range(min(len(op.examples), 2)))
}


@pytest.mark.parametrize("name", FIRST.values())
def test_every_op_is_written_into_code(name: str) -> None:
    if name in harness.gaps("torch"):
        pytest.skip(harness.gaps("torch")[name])
    op, example = harness.by_name()[name]
    module = to_torch(harness.example_graph(op, example))
    results = [to_numpy(x) for x in module(*map(from_numpy, example.inputs))]
    assert harness.compare(results, harness.reference(name)) is None
    assert "unigraph" not in module.code


@pytest.mark.parametrize("log_space", (False, True))
def test_a_loop_until_accepted(log_space: bool) -> None:
    b = GraphBuilder()
    alpha = b.input("alpha", "f32", ("n",))
    graph = b.build(b.random_gamma(b.rng_fold_in(b.key(), b.constant(3, "u32")), alpha, log_space=log_space))
    module = to_torch(graph)
    dims = {0: torch.export.Dim("n")}, None
    alpha = torch.tensor([0.01, 0.3, 1.0, 2.5, 40.0, 1e4])
    for seed in range(3):
        key = torch.tensor([0, seed], dtype=torch.uint32)
        expected = ug.run(graph, alpha.numpy(), key.numpy(), engine="numpy")
        assert np.allclose(module(alpha, key).numpy(), expected, rtol=1e-5)
    check_export(module, alpha, key, dynamic=dims)


# -- control flow --------------------------------------------------------------------------------


def branches() -> Graph:
    b = GraphBuilder("branches")
    which, x = b.input("which", "bool"), b.input("x", "f32", ("n", 3))
    w = b.weight("w", f32(3, 3))
    table = np.arange(3, dtype=np.float32)

    def yes(r: GraphBuilder, x: Value, w: Value) -> Value:
        return r.relu(r.matmul(x, w))

    def no(r: GraphBuilder, x: Value, w: Value) -> Value:
        rows = r.broadcast_in_dim(r.constant(table), shape=x.type.shape, broadcast_dimensions=(1,))
        return r.logistic(r.add(r.matmul(x, w), rows))

    (y,) = b.cond(which, x, w, branches=[no, yes])
    return b.build(y)


def test_cond() -> None:
    graph, x = branches(), torch.from_numpy(f32(4, 3))
    module = to_torch(graph)
    for which in (True, False):
        agree(graph, torch.tensor(which), x, module=module)
    module(torch.tensor(True), x).sum().backward()
    expected = x.clone()
    w = torch.from_numpy(np.array(graph.weights["w"])).requires_grad_()
    torch.relu(expected @ w).sum().backward()
    torch.testing.assert_close(module.w.grad, w.grad)
    module.requires_grad_(False)
    check_export(module, torch.tensor(False), x, dynamic=(None, {0: torch.export.Dim("n")}))


def test_cond_of_many_branches_clamps() -> None:
    b = GraphBuilder()
    which, x = b.input("which", "i32"), b.input("x", "f32", (2,))
    cases: list[Callable[..., Value]] = [lambda r, x, k=k: r.mul(x, float(k)) for k in range(3)]
    graph = b.build(b.cond(which, x, branches=cases)[0])
    module = to_torch(graph)
    for k in (-1, 0, 1, 2, 9):
        agree(graph, torch.tensor(k, dtype=torch.int32), torch.ones(2), module=module)


@pytest.mark.parametrize("length", [3, 20])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(length: int, reverse: bool) -> None:
    b = GraphBuilder()
    h, xs, w = b.input("h", "f32", (2,)), b.input("xs", "f32", (length, 2)), b.weight("w", f32(2, 2))

    def body(r: GraphBuilder, w: Value, h: Value, x: Value) -> tuple[Value, Value]:
        h = r.tanh(r.add(r.matmul(h, w), x))
        return h, r.mul(h, 3.0)

    graph = b.build(b.scan(w, h, xs, length=length, num_consts=1, num_carry=1, reverse=reverse, body=body))
    module = to_torch(graph)
    _, ys = agree(graph, torch.zeros(2), torch.from_numpy(f32(length, 2)), module=module)
    assert ys.shape == (length, 2)
    ys.sum().backward()
    assert module.w.grad is not None and torch.isfinite(module.w.grad).all()


def test_scan_without_carry_or_inputs() -> None:
    b = GraphBuilder()
    x, xs = b.input("x", "f32"), b.input("xs", "f32", (12, 2))
    (doubled,) = b.scan(xs, length=12, num_consts=0, num_carry=0, body=lambda r, v: r.mul(v, 2.0))
    (power,) = b.scan(x, length=12, num_consts=0, num_carry=1, body=lambda r, v: r.mul(v, 2.0))
    agree(b.build((doubled, power)), torch.tensor(1.5), torch.ones(12, 2))


def test_while() -> None:
    b = GraphBuilder()
    limit, x = b.input("limit", "f32"), b.input("x", "f32")
    n = b.constant(0, "i32")
    results = b.while_(
        limit,
        x,
        n,
        cond_consts=1,
        cond=lambda r, limit, x, n: r.lt(x, limit),
        body=lambda r, x, n: (r.mul(x, 2.0), r.add(n, 1)),
    )
    graph = b.build(tuple(results))
    module = to_torch(graph)
    for start in (1.0, 200.0):
        agree(graph, torch.tensor(100.0), torch.tensor(start), module=module)
    check_export(module, torch.tensor(100.0), torch.tensor(1.0))


# -- keys, states, weights -----------------------------------------------------------------------


def test_dropout_takes_its_key_in_any_integer_dtype() -> None:
    b = GraphBuilder()
    x, key = b.input("x", "f32", ("n", 4)), b.key()
    graph = b.build(b.dropout(x, key, rate=0.5))
    module, x_ = to_torch(graph), torch.ones(50, 4)
    words = torch.tensor([3, 2**31 + 5])
    result = agree(graph, x_, words.to(torch.uint32), module=module)
    assert 0 < (result == 0).sum() < 200
    for t in (torch.int64, torch.int32, torch.uint32):
        assert torch.equal(module(x_, words.to(t)), result)


def test_batch_norm_state_is_written_back() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", ("n", 3))
    mean, variance = (
        b.state("bn.running_mean", np.zeros(3, np.float32)),
        b.state("bn.running_var", np.ones(3, np.float32)),
    )
    y, new_mean, new_variance = b.batch_norm_train(x, mean, variance, epsilon=1e-5, momentum=0.1)
    b.update(mean, new_mean)
    b.update(variance, new_variance)
    module, original = to_torch(b.build(y)), torch.nn.BatchNorm1d(3, affine=False)
    assert list(module.state_dict()) == ["bn.running_mean", "bn.running_var"]
    for _ in range(3):
        batch = torch.from_numpy(f32(6, 3)).requires_grad_()
        torch.testing.assert_close(module(batch), original(batch))
    torch.testing.assert_close(module.bn.running_mean, original.running_mean)
    torch.testing.assert_close(module.bn.running_var, original.running_var)
    module(batch).sum().backward()


def test_weights_tied_absent_integer_and_oddly_named() -> None:
    b = GraphBuilder("odd")
    shared = f32(3)
    a, c = b.weight("a.w", shared), b.weight("b.w", shared)
    absent = b.weight("later", type=a.type)
    table = b.weight("table", np.arange(3))
    odd = b.weight('x".__class__("\n', f32(3))
    under = b.weight("a.w.inner", f32(3))
    unread = b.weight("unread", f32(2))
    x = b.input("class", "f32", (3,))
    y = b.add(b.add(b.add(x, a), b.add(c, odd)), b.add(under, b.convert(table, dtype="f32")))
    module = to_torch(b.build((y, b.neg(absent), x)))
    assert module.a.w is module.b.w
    assert module.later.is_meta and isinstance(module.later, torch.nn.Parameter)
    assert not isinstance(module.table, torch.nn.Parameter)
    assert "\n(" not in module.code and '"x"' not in module.code
    keys = set(module.state_dict())
    assert {"a.w", "b.w", "later", "table", "unread"} <= keys and len(keys) == 7
    assert set(copy.deepcopy(module).state_dict()) == keys
    assert unread.name == "unread"


def test_large_constants_are_buffers_outside_the_state_dict() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", (4, 3))
    graph = b.build(b.matmul(x, b.constant(f32(3, 5))))
    module = to_torch(graph)
    agree(graph, torch.from_numpy(f32(4, 3)), module=module)
    assert not module.state_dict() and len(list(module.buffers())) == 1
    assert not copy.deepcopy(module).state_dict()


# -- calling convention --------------------------------------------------------------------------

Pair = namedtuple("Pair", ["left", "right"])


def test_nested_arguments_and_results() -> None:
    b = GraphBuilder()
    y, x, z = (b.input(n, "f32", (2,)) for n in ("params.b.0", "params.w", "scale"))
    graph = b.build(Pair(b.mul(x, z), {"sum": b.add(y, z), "none": None}))
    args, kwargs = flatten(({"w": 0, "b": [1]}, None))[1], flatten({"scale": 0})[1]
    assert graph.signature is not None
    graph = graph.replace(signature=Signature(args, kwargs, graph.signature.out, ("params", "unused")))
    module = to_torch(graph)
    values = {"w": torch.ones(2), "b": [torch.full((2,), 2.0)]}
    result = module(values, None, scale=torch.full((2,), 3.0))
    assert type(result) is Pair
    assert result.left.tolist() == [3.0, 3.0] and result.right["sum"].tolist() == [5.0, 5.0]
    assert result.right["none"] is None
    assert args.children[1] == Tree(NONE) and Tree(LEAF) == kwargs.children[0]


def test_sizes_from_expressions_and_constraints() -> None:
    b = GraphBuilder("sizes", {"n": Constraint(min=1, multiple_of=4)})
    x = b.input("x", "f32", ("2*n + 1",))
    halved = b.slice(x, start=(0,), limit=("n",))
    graph = b.build(
        (
            b.add(
                halved,
                b.convert(b.broadcast_in_dim(b.size("n + 2"), shape=("n",), broadcast_dimensions=()), dtype="f32"),
            ),
        )
    )
    module = to_torch(graph)
    for n in (4, 12):
        (y,) = module(torch.zeros(2 * n + 1))
        assert y.tolist() == [n + 2.0] * n


def test_an_assumption_about_a_size_is_told() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", ("n",))
    padded = b.pad(x, b.constant(1.5, "f32"), low=("n - 4",), high=("4 - n",))
    with pytest.warns(UserWarning, match="right only for sizes with .*n"):
        to_torch(b.build(padded))


def test_no_assumption_is_made_without_need(recwarn: Any) -> None:
    to_torch(block())
    assert not [w for w in recwarn.list if "right only for" in str(w.message)]


def test_device_follows_the_input() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", ("n",))
    module = to_torch(b.build(b.add(x, b.iota(dtype="f32", shape=("n",), axis=0))))
    assert ".device" in module.code or "'device'" in module.code
    assert module.to("meta")(torch.zeros(3, device="meta")).is_meta


def test_float_buffers_stay_buffers() -> None:
    """Parameters and buffers come back as what they were, through a file, and only parameters have gradients."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("scale", torch.full((3,), 2.0))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.w * self.scale + self.steps

    graph = ug.from_torch(Scaled(), (torch.ones(2, 3),))
    assert {v.name: v.role for v in graph.data if v.name} == {"w": "weight", "scale": "buffer", "steps": "buffer"}
    again = ug.parse(graph.text(full=True))
    assert again.text(full=True) == graph.text(full=True)
    module = ug.to_torch(graph)
    assert [n for n, _ in module.named_parameters()] == ["w"]
    assert {n for n, _ in module.named_buffers()} == {"scale", "steps"}
    module(torch.ones(2, 3)).sum().backward()


def test_resize_to_a_free_size() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", (1, 2, "h", "w"))
    h, w = x.type.shape[2:]
    graph = b.build(b.resize(x, shape=(2 * h, 3 * w), mode="linear", coordinates="half_pixel"))
    agree(graph, torch.arange(24.0).reshape(1, 2, 3, 4))


def test_buffers_outside_the_checkpoint_are_constants() -> None:
    """A non-persistent buffer is not asked of a checkpoint, and not in the state_dict that comes back."""

    class Rotated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(3, 3)
            self.register_buffer("table", torch.arange(3.0), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lin(x) * self.table

    module = Rotated()
    graph = ug.from_torch(module, (torch.ones(2, 3),))
    assert set(graph.weights) == set(module.state_dict())
    back = ug.to_torch(graph)
    back.load_state_dict(module.state_dict())
    assert torch.equal(back(torch.ones(2, 3)), module(torch.ones(2, 3)))


def test_batch_norm_by_computed_statistics_trains():
    b = ug.GraphBuilder()
    x = b.input("x", "f32", (4, 3))
    mean, variance = b.mean(x, axes=(0,)), b.var(x, axes=(0,), correction=0.0)
    module = ug.to_torch(b.build(b.batch_norm(x, mean, variance, axis=1, epsilon=1e-5)))
    given = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.arange(12.0).reshape(4, 3)
    (found,) = torch.autograd.grad((module(given) * weight).sum(), given)
    wanted = torch.nn.functional.batch_norm(given, None, None, training=True)
    torch.testing.assert_close(found, torch.autograd.grad((wanted * weight).sum(), given)[0])
