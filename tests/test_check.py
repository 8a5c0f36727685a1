"""The checker refuses every kind of ill-formed graph and says where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.builder import GraphBuilder
from unigraph.dims import Constraint
from unigraph.errors import GraphError, TypeCheckError
from unigraph.graph import Graph, Operation, Value
from unigraph.tree import LEAF, Signature, Tree
from unigraph.types import TensorType

from .samples import chain, nested, sample


def test_good_graphs() -> None:
    for graph in (sample(), sample(weights=False), chain(100), nested(5)):
        ug.check(graph)


def test_the_function_is_public_even_after_its_module_was_imported() -> None:
    import unigraph.check  # noqa: F401

    assert callable(ug.check) and callable(ug.stats)


def small() -> Graph:
    b = GraphBuilder("small")
    x = b.input("x", "f32", ("n", 3))
    w = b.weight("w", np.ones((2, 3), np.float32))
    s = b.state("s", np.zeros(3, np.float32))
    with b.at("net.layer", "net.py:7"):
        y = b.tanh(x)
        z = b.exp(y)
    b.update(s, b.neg(s))
    return b.build((z, b.neg(w)))


def edge(graph: Graph, index: int, **changes: Any) -> Graph:
    old = graph.edges[index]
    fields = {name: getattr(old, name) for name in Operation.__slots__}
    new = Operation(**{**fields, **changes})
    return graph.replace(edges=(*graph.edges[:index], new, *graph.edges[index + 1 :]))


F32 = TensorType("f32", (2, 3))
BAD: dict[str, tuple[Callable[[Graph], Graph], type[Exception], str]] = {
    "order": (lambda g: g.replace(edges=g.edges[::-1]), GraphError, "before it is made"),
    "foreign": (lambda g: edge(g, 0, inputs=(Value(F32, "x", "input"),)), GraphError, "another graph"),
    "twice": (lambda g: g.replace(edges=(*g.edges, g.edges[0])), GraphError, "exists already"),
    "role made": (lambda g: edge(g, 0, outputs=(Value(g.inputs[0].type, "y", "input"),)), GraphError, "exists already"),
    "type": (
        lambda g: edge(g, 1, outputs=(Value(F32),)),
        TypeCheckError,
        r"net.layer \(net.py:7\): gives .*f32\[n,3\]",
    ),
    "count": (lambda g: edge(g, 1, outputs=(*g.edges[1].outputs, Value(F32))), TypeCheckError, "gives"),
    "operands": (lambda g: edge(g, 1, inputs=()), TypeCheckError, "got 0 operands"),
    "attribute": (lambda g: edge(g, 1, attrs={"axis": 1}), TypeCheckError, "no attribute"),
    "regions": (lambda g: edge(g, 1, regions=(small(),)), TypeCheckError, "regions none; got 1"),
    "input role": (lambda g: g.replace(inputs=(Value(F32, "x", "weight"),)), GraphError, "role 'weight'"),
    "key role": (lambda g: g.replace(inputs=(Value(F32, "x", "key"),)), GraphError, "only if, its type is a key"),
    "input twice": (lambda g: g.replace(inputs=g.inputs * 2), GraphError, "stands twice"),
    "names": (lambda g: g.replace(data={**g.data, Value(F32, "w", "weight"): None}), GraphError, "called 'w'"),
    "no name": (lambda g: g.replace(data={**g.data, Value(F32, "", "weight"): None}), GraphError, "no name"),
    "data role": (lambda g: g.replace(data={**g.data, Value(F32, "v", "input"): None}), GraphError, "cannot hold data"),
    "shape": (lambda g: g.bind({}).replace(data={**g.data, g.value("w"): np.ones(3)}), GraphError, "data of"),
    "dtype": (lambda g: g.replace(data={**g.data, g.value("w"): np.ones((2, 3))}), GraphError, "got f64"),
    "not an array": (lambda g: g.replace(data={**g.data, g.value("w"): [1]}), GraphError, "list"),
    "empty constant": (lambda g: g.replace(data={**g.data, Value(F32, "", "constant"): None}), GraphError, "no data"),
    "output": (lambda g: g.replace(outputs=(Value(F32), *g.outputs[1:])), GraphError, "not a value of the graph"),
    "state lost": (lambda g: g.replace(states=()), GraphError, "never updated"),
    "state type": (lambda g: g.replace(states=((g.value("s"), g.value("w")),)), TypeCheckError, "its update is"),
    "state role": (lambda g: g.replace(states=(*g.states, (g.value("w"), g.value("w")))), GraphError, "not a state"),
    "state twice": (lambda g: g.replace(states=g.states * 2), GraphError, "updated twice"),
    "symbol": (lambda g: g.replace(symbols={}), GraphError, "'n', which is not declared"),
    "constraint": (lambda g: g.replace(symbols={"n": Constraint(5, 2)}), GraphError, "cannot hold"),
    "signature": (
        lambda g: g.replace(signature=Signature(Tree("tuple"), Tree("dict"), Tree("tuple"))),
        GraphError,
        "signature has 0 leaves",
    ),
    "outputs": (
        lambda g: g.replace(signature=Signature(Tree("tuple", (Tree(LEAF),)), Tree("dict"), Tree(LEAF))),
        GraphError,
        "1 output leaves",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_graph(kind: str) -> None:
    change, error, message = BAD[kind]
    with pytest.raises(error, match=message):
        ug.check(change(small()))


def test_a_region_sees_its_own_values_only() -> None:
    graph = nested(0)
    reduce = graph.edges[0]
    outer = graph.inputs[0]
    body = reduce.regions[0]
    add = body.edges[0]
    leak = body.replace(edges=(Operation(add.op, (add.inputs[0], outer), add.outputs, add.attrs),))
    with pytest.raises((GraphError, TypeCheckError), match=r"region of .*reduce"):
        ug.check(edge(graph, 0, regions=(leak,)))


def test_a_region_holds_no_weights() -> None:
    graph = nested(0)
    body = graph.edges[0].regions[0]
    heavy = body.replace(data={Value(TensorType("f32"), "w", "weight"): np.float32(1)})
    with pytest.raises(GraphError, match="region may hold constants only"):
        ug.check(edge(graph, 0, regions=(heavy,)))


def test_labels_survive() -> None:
    graph = small()
    b = GraphBuilder()
    x = b.input("x", "i32", ("n", 3))
    bad = edge(graph, 0, inputs=(x,)).replace(inputs=(x,))
    with pytest.raises(TypeCheckError, match="tanh_c1") as caught:
        ug.check(bad)
    assert caught.value.label == "tanh_c1"


def test_an_inference_that_breaks_is_reported_as_a_type_error() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", (2, 3))
    graph = b.build(b.transpose(x, permutation=(1, 0)))
    with pytest.raises(TypeCheckError):
        ug.check(edge(graph, 0, attrs={"permutation": (7, 0)}))


def test_stats() -> None:
    figures = ug.stats(small(), {"n": 10})
    assert figures.operations == 4 and figures.counts == {"tanh": 1, "exp": 1, "neg": 2}
    assert figures.parameters == 6 and figures.weight_bytes == 24 and figures.state_bytes == 12
    assert figures.depth == 2 and figures.sizes == {"n": 10}
    assert figures.peak_bytes == 3 * 120  # x, tanh(x) and exp(tanh(x)) at once
    assert "tanh" in str(figures) and figures.to_dict()["depth"] == 2
    assert ug.stats(nested(3)).depth == 1 + 3 * 2 + 1


def test_negative_sizes_are_refused_where_they_enter() -> None:
    """No file could be loaded that held one."""
    with pytest.raises(GraphError, match="negative size"):
        GraphBuilder().input("x", "f32", (2, -1))
