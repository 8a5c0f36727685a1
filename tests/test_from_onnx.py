"""The ONNX import beyond the backend suite: symbolic sizes, weights, control flow, training, broken files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.errors import FormatError, InputError, UnsupportedError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Any, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[str], held: dict[str, np.ndarray] | None = None, opset: int = 17
) -> Any:
    """A model whose outputs declare no type."""
    tensors = [numpy_helper.from_array(a, k) for k, a in (held or {}).items()]
    outs = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "g", inputs, outs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attrs)


def run(proto: Any, *inputs: Any, **options: Any) -> Any:
    return ug.compile(ug.from_onnx(proto, **options), "numpy")(*inputs)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.asarray(numbers, np.int64)


# -- sizes -------------------------------------------------------------------------------------------


def flattening() -> Any:
    """x[batch, seq, 4] to [batch * seq, 4] and back, through Shape, Gather, Concat and Reshape."""
    nodes = [
        node("Reshape", "x,flat", "y"),
        node("Relu", "y", "z"),
        node("Shape", "x", "s"),
        node("Gather", "s,zero", "batch"),
        node("Gather", "s,one", "seq"),
        node("Unsqueeze", "batch,axis", "b1"),
        node("Unsqueeze", "seq,axis", "s1"),
        node("Concat", "b1,s1,rest", "shape", axis=0),
        node("Reshape", "z,shape", "out"),
    ]
    held = {"flat": ints(-1, 4), "zero": np.int64(0), "one": np.int64(1), "axis": ints(0), "rest": ints(-1)}
    return model(nodes, [value("x", ["batch", "seq", 4])], ["out"], {k: np.asarray(v) for k, v in held.items()})


@pytest.mark.parametrize("engine", ["numpy", "torch", "jax"])
def test_shape_chains_resolve_to_expressions(engine: str) -> None:
    graph = ug.from_onnx(flattening())
    assert str(graph.outputs[0].type) == "f32[batch,seq,4]"
    assert {op.op.name for op in graph.edges} <= {"reshape", "relu"}
    compiled = ug.compile(graph, engine)
    for shape in ((2, 3, 4), (5, 1, 4)):
        x = floats(*shape)
        np.testing.assert_array_equal(np.asarray(compiled(x)[0]), np.maximum(x, 0))


def test_shapes_are_replaced_and_checked() -> None:
    graph = ug.from_onnx(flattening(), shapes={"x": (2, 3, 4)})
    assert graph.inputs[0].type.shape == (2, 3, 4)
    with pytest.raises(InputError, match="no input 'nope'"):
        ug.from_onnx(flattening(), shapes={"nope": (1,)})
    with pytest.raises(InputError, match="rank 3"):
        ug.from_onnx(flattening(), shapes={"x": (1,)})
    with pytest.raises(FormatError, match="has no shape"):
        ug.from_onnx(model([node("Relu", "x", "y")], [value("x", None)], ["y"]))


def test_unnamed_sizes_get_names() -> None:
    graph = ug.from_onnx(model([node("Relu", "x.1", "y")], [value("x.1", [None, 3])], ["y"]))
    (name,) = graph.inputs[0].type.symbols()
    assert name.isidentifier()


def test_inputs_that_decide_a_rank_are_fixed() -> None:
    proto = model([node("Unsqueeze", "x,axes", "y")], [value("x", [2]), value("axes", [1], I64)], ["y"])
    with pytest.raises(UnsupportedError, match=r"values=\{'axes': ...\}"):
        ug.from_onnx(proto)
    assert run(proto, floats(2), values={"axes": [1]})[0].shape == (2, 1)
    with pytest.raises(InputError, match="no input 'axis'"):
        ug.from_onnx(proto, values={"axis": [1]})


def test_shapes_that_are_data() -> None:
    proto = model([node("Reshape", "x,s", "y")], [value("x", [2, 6]), value("s", [3], I64)], ["y"])
    x = floats(2, 6)
    for wanted in ((2, 2, 3), (-1, 2, 2), (0, 3, 2)):
        (y,) = run(proto, x, ints(*wanted))
        np.testing.assert_array_equal(y, x.reshape([2 if w == 0 else w for w in wanted]))
    proto = model([node("Range", "a,b,c", "y")], [value(k, [], F32) for k in "abc"], ["y"])
    np.testing.assert_array_equal(run(proto, *(np.float32(v) for v in (1, 7, 2)))[0], [1, 3, 5])
    proto = model(
        [node("Slice", "x,a,b,axis", "y")],
        [value("x", [5]), value("a", [1], I64), value("b", [1], I64)],
        ["y"],
        {"axis": ints(0)},
    )
    np.testing.assert_array_equal(run(proto, np.arange(5, dtype=np.float32), ints(1), ints(-1))[0], [1, 2, 3])


# -- sequences, optionals and control flow -----------------------------------------------------------


def test_sequences_at_the_interface() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, None))
    nodes = [node("SequenceInsert", "s,x", "t"), node("ConcatFromSequence", "t", "y", axis=0)]
    proto = model(nodes, [helper.make_value_info("s", kind), value("x", [1])], ["y", "t"])
    with pytest.raises(FormatError, match="is a sequence"):
        ug.from_onnx(proto)
    y, items = run(proto, [floats(2), floats(3)], floats(1), shapes={"s": [(2,), (3,)]})
    assert y.shape == (6,) and [x.shape for x in items] == [(2,), (3,), (1,)]


def branch(name: str, op: str) -> Any:
    return helper.make_graph([node(op, "x,w", name)], name, [], [value(name, [2])])


def test_if_captures_values() -> None:
    nodes = [node("If", "c", "y", then_branch=branch("t", "Mul"), else_branch=branch("e", "Add"))]
    proto = model(nodes, [value("c", [], BOOL), value("x", [2])], ["y"], {"w": floats(2)})
    x, w = np.ones(2, np.float32), floats(2)
    np.testing.assert_allclose(run(proto, np.bool_(True), x)[0], x * w)
    np.testing.assert_allclose(run(proto, np.bool_(False), x)[0], x + w)


def halving(condition: str) -> Any:
    """v becomes v * w until it falls below 1, at most M times; every v is stacked."""
    body = helper.make_graph(
        [
            node("Mul", "v,w", "u"),
            node("Greater", "u,one", "more"),
            node(condition, "more", "go"),
            node("Identity", "u", "k"),
        ],
        "body",
        [value("i", [], I64), value("c", [], BOOL), value("v", [])],
        [value("go", [], BOOL), value("u", []), value("k", [])],
    )
    held = {"w": np.asarray(0.5, np.float32), "one": np.asarray(1.0, np.float32), "M": np.asarray(6)}
    return model([node("Loop", "M,,x", "last,all", body=body)], [value("x", [])], ["last", "all"], held)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_loop_that_stops_by_data(engine: str) -> None:
    compiled = ug.compile(ug.from_onnx(halving("Identity")), engine)
    for start, steps in ((6.0, 3), (1000.0, 6), (0.5, 1)):
        last, every = compiled(np.float32(start))
        np.testing.assert_allclose(np.asarray(every), start * 0.5 ** np.arange(1, steps + 1))
        np.testing.assert_allclose(np.asarray(last), start * 0.5**steps)


@pytest.mark.parametrize("engine", ["numpy", "torch", "jax"])
def test_loop_with_a_count_is_a_scan(engine: str) -> None:
    body = helper.make_graph(
        [node("Add", "v,x", "u"), node("Identity", "c", "go"), node("Identity", "u", "k")],
        "body",
        [value("i", [], I64), value("c", [], BOOL), value("v", [2])],
        [value("go", [], BOOL), value("u", [2]), value("k", [2])],
    )
    nodes = [node("Loop", "M,,x", "last,all", body=body)]
    graph = ug.from_onnx(model(nodes, [value("x", [2])], ["last", "all"], {"M": np.asarray(3)}))
    assert [op.op.name for op in graph.edges if op.regions] == ["scan"]
    last, every = ug.compile(graph, engine)(np.ones(2, np.float32))
    np.testing.assert_allclose(np.asarray(every), [[2, 2], [3, 3], [4, 4]])
    np.testing.assert_allclose(np.asarray(last), [4, 4])


def test_random_nodes_take_a_key() -> None:
    proto = model(
        [node("RandomNormalLike", "x", "y"), node("RandomUniformLike", "x", "z")], [value("x", [500])], ["y", "z"]
    )
    graph = ug.from_onnx(proto)
    assert [v.role for v in graph.inputs] == ["input", "key"]
    y, z = ug.compile(graph, "numpy")(np.zeros(500, np.float32))
    assert abs(y.mean()) < 0.3 and 0.8 < y.std() < 1.2 and 0 <= z.min() < z.max() < 1


# -- weights and training ----------------------------------------------------------------------------


def test_weights_keep_their_names_and_train_in_torch() -> None:
    torch = pytest.importorskip("torch")
    ort = pytest.importorskip("onnxruntime")
    nodes = [node("MatMul", "x,layer.w", "h"), node("Add", "h,layer.b", "y")]
    proto = model(nodes, [value("x", ["n", 3])], ["y"], {"layer.w": floats(3, 1), "layer.b": np.zeros(1, np.float32)})
    graph = ug.from_onnx(proto)
    assert set(graph.weights) == {"layer.w", "layer.b"}
    module = ug.to_torch(graph)
    x = torch.tensor(floats(64, 3))
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 1
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = (module(x)[0] - y).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 1e-3
    trained = graph.bind({name: p.detach().numpy() for name, p in module.named_parameters()})
    session = ort.InferenceSession(ug.to_onnx(trained).SerializeToString(), providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(out, module(x)[0].detach().numpy(), rtol=1e-4, atol=1e-5)


# -- files -------------------------------------------------------------------------------------------


def external(folder: Path, **entries: str) -> Path:
    proto = model([node("Add", "x,w", "y")], [value("x", [4])], ["y"], {"w": np.zeros(4, np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in entries.items():
        tensor.external_data.add(key=key, value=text)
    path = folder / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, location="w.bin", offset="4")
    np.arange(5, dtype=np.float32).tofile(path.parent / "w.bin")
    np.testing.assert_array_equal(run(path, np.zeros(4, np.float32))[0], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "../secret.bin"},
        {"location": "/etc/hostname"},
        {"location": "link.bin"},
        {"location": "short.bin"},
        {"location": "missing.bin"},
        {"location": "short.bin", "offset": "-4"},
        {"location": "short.bin", "length": "99999999999"},
        {"location": "short.bin", "offset": "many"},
        {},
    ],
    ids=str,
)
def test_external_data_outside_or_broken(tmp_path: Path, entries: dict[str, str]) -> None:
    path = external(tmp_path, **entries)
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (path.parent / "short.bin").write_bytes(bytes(8))
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(FormatError):
        ug.from_onnx(path)


BROKEN = {
    "not a protobuf": lambda: b"\xff\xfe not a model",
    "empty": lambda: b"",
    "undefined name": lambda: model([node("Relu", "nope", "y")], [value("x", [2])], ["y"]),
    "cycle": lambda: model([node("Add", "x,b", "a"), node("Relu", "a", "b")], [value("x", [2])], ["b"]),
    "two nodes give a name": lambda: model([node("Relu", "x", "y"), node("Abs", "x", "y")], [value("x", [2])], ["y"]),
    "a node gives an input": lambda: model([node("Relu", "x", "x")], [value("x", [2])], ["x"]),
    "two inputs of a name": lambda: model([node("Relu", "x", "y")], [value("x", [2]), value("x", [2])], ["y"]),
    "output not given": lambda: model([node("Relu", "x", "y")], [value("x", [2])], ["z"]),
    "negative size": lambda: model([node("Relu", "x", "y")], [value("x", [-2])], ["y"]),
    "string input": lambda: model([node("Identity", "x", "y")], [value("x", [2], TensorProto.STRING)], ["y"]),
    "unknown element type": lambda: model([node("Relu", "x", "y")], [value("x", [2], 99)], ["y"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models(name: str) -> None:
    with pytest.raises(FormatError):
        ug.from_onnx(BROKEN[name]())


def absurd(dims: list[int], data: bytes = b"") -> Any:
    proto = model([node("Add", "x,w", "y")], [value("x", [2])], ["y"])
    proto.graph.initializer.append(TensorProto(name="w", data_type=F32, dims=dims, raw_data=data))
    return proto


@pytest.mark.parametrize("dims", [[-1], [2**62], [2**40, 2**40], [3]], ids=str)
def test_tensors_that_lie_about_their_size(dims: list[int]) -> None:
    with pytest.raises(FormatError):
        ug.from_onnx(absurd(dims, bytes(8)))


def test_big_results_are_not_made_at_import() -> None:
    nodes = [node("ConstantOfShape", "s", "y"), node("Expand", "one,s", "z")]
    held = {"s": ints(1 << 20, 1 << 20), "one": np.ones(1, np.float32)}
    graph = ug.from_onnx(model(nodes, [value("x", [1])], ["y", "z"], held))
    assert graph.outputs[0].type.shape == (1 << 20, 1 << 20)


def test_every_gap_is_reported_at_once() -> None:
    nodes = [node("StringNormalizer", "x", "a"), node("ImageDecoder", "a", "b"), node("Relu", "b", "y")]
    with pytest.raises(UnsupportedError) as error:
        ug.from_onnx(model(nodes, [value("x", [2])], ["y"], opset=20))
    assert {g.op for g in error.value.gaps} >= {"StringNormalizer", "ImageDecoder"}


def test_functions_of_the_model() -> None:
    own = helper.make_function("here", "Twice", ["a"], ["b"], [node("Add", "a,a", "b")], [helper.make_opsetid("", 17)])
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="here")], [value("x", [2])], ["y"])
    proto.opset_import.append(helper.make_opsetid("here", 1))
    proto.functions.append(own)
    np.testing.assert_array_equal(run(proto, np.ones(2, np.float32))[0], [2, 2])


def test_functions_that_call_each_other() -> None:
    proto = model([helper.make_node("A", ["x"], ["y"], domain="here")], [value("x", [2])], ["y"])
    proto.opset_import.append(helper.make_opsetid("here", 1))
    for name, other in (("A", "B"), ("B", "A")):
        inner = helper.make_node(other, ["a"], ["b"], domain="here")
        proto.functions.append(
            helper.make_function("here", name, ["a"], ["b"], [inner], [helper.make_opsetid("here", 1)])
        )
    with pytest.raises(FormatError, match="calls itself"):
        ug.from_onnx(proto)
