"""The text form prints everything, reads back the same graph, and says where it cannot."""

from __future__ import annotations

import random

import numpy as np
import pytest

import unigraph as ug
from unigraph import serde
from unigraph.builder import GraphBuilder
from unigraph.errors import TextError, UnigraphError
from unigraph.graph import Graph, Value

from .harness import all_examples, example_graph
from .samples import chain, nested, sample


def same(a: Graph, b: Graph) -> bool:
    return serde.encode(a).data == serde.encode(b).data


@pytest.mark.parametrize("make", [sample, lambda: sample(weights=False), lambda: chain(50), lambda: nested(3)])
def test_full_text_is_the_graph(make) -> None:
    graph = make()
    assert same(ug.parse(graph.text(full=True)), graph)


def test_short_text_is_the_graph_without_its_data() -> None:
    graph = sample()
    text = graph.text()
    assert len(text) < 5000 and "constant %0: f64[3000] = ..." in text
    read = ug.parse(text)
    assert read.text() == text
    assert set(read.weights.values()) == {None}


def test_one_line_per_operation() -> None:
    b = GraphBuilder("affine")
    x = b.input("x", "f32", ("batch",))
    w = b.weight("dense.w", np.ones(3, np.float32))
    with b.at("dense.act", "net.py:7"):
        y = b.tanh(b.add(x, x))
    assert str(b.build((y, b.neg(w)))) == (
        "graph affine {\n"
        "  symbol batch\n"
        "  input %x: f32[batch]\n"
        "  weight %dense.w: f32[3]\n"
        "  %0: f32[batch] = add(%x, %x) @ dense.act, net.py:7\n"
        "  %1: f32[batch] = tanh(%0) @ dense.act, net.py:7\n"
        "  %2: f32[3] = neg(%dense.w)\n"
        "  return (%1, %2)\n"
        "}\n"
    )


def test_written_by_hand() -> None:
    graph = ug.parse(
        """
        # no header, no types of results, no symbols
        input %x: f32[n, 3]
        constant %half: f32 = 0.5
        %h = broadcast_in_dim(%half, shape=[n, 3], broadcast_dimensions=[])
        %y = mul(%x, %h)      # a comment
        %sum = reduce(%y, %half, axes=[1]) {
          body {
            input %a: f32[]
            input %b: f32[]
            %c = add(%a, %b)
            return (%c,)
          }
        }
        return %sum
        """
    )
    assert str(graph.out_types[0]) == "f32[n]"
    assert list(graph.symbols) == ["n"]
    assert graph.signature is not None and graph.signature.arg_names == ("x",)
    ug.check(graph)
    assert same(ug.parse(graph.text(full=True)), graph)


def test_names_that_stand_twice() -> None:
    x = Value(ug.TensorType("f32", (2,)), "x", "input")
    b = GraphBuilder()
    b._inputs.append(x)
    b._known.add(x)
    y = b.neg(x)
    twin = Value(y.type, "x")
    edge = b._edges[0]
    b._edges[0] = type(edge)(edge.op, edge.inputs, (twin,), edge.attrs)
    b._known.add(twin)
    graph = b.build(twin)
    assert '%0 as "x"' in graph.text()
    assert same(ug.parse(graph.text(full=True)), graph)


ERRORS = [
    ("input %x: f32[2]\n%y = tanh(%z)\nreturn %y", 2, 11, "no value %z"),
    ("input %x: f32[2]\n%y = tann(%x)\nreturn %y", 2, 6, "no op is called 'tann'"),
    ("input %x: i32[2]\n%y = tanh(%x)\nreturn %y", 2, 6, "tanh_c1"),
    ("input %x: f32[2]\n  %y: f32[3] = tanh(%x)\nreturn %y", 2, 16, r"gives f32\[2\], not f32\[3\]"),
    ("input %x: f32[2]\n%x = tanh(%x)\nreturn %x", 2, 1, "made twice"),
    ("input %x: f32[2]\n%y, %z = tanh(%x)\nreturn %y", 2, 10, "gives 1 values, 2 are named"),
    ("input %x: f32[2]\n%y = tanh(%x, axis=1)\nreturn %y", 2, 15, "no attribute 'axis'"),
    ("input %x: f32[2]\n%y = round(%x, mode=even)\nreturn %y", 2, 21, "quoted string"),
    ('input %x: f32[2]\n%y = round(%x, mode="up")\nreturn %y', 2, 6, "must be one of"),
    ("input %x: f32[2]\n%y = tanh(%x)", 2, 14, "found the end"),
    ("input %x: f32[2\n", 2, 1, "expected ']'"),
    ("input %x: f33[2]\nreturn %x", 1, 11, "unknown dtype"),
    ("input %x: f32[a**b]\nreturn %x", 1, 15, "size expression"),
    ("input %x f32[2]\nreturn %x", 1, 10, "expected ':'"),
    ("weight %w: f32[2] = [1, 2, 3]\nreturn %w", 1, 21, "3 numbers"),
    ('weight %w: f32[2] = base64"AAAA"\nreturn %w', 1, 21, "3 bytes"),
    ("weight %w: i8[1] = [1.5e400]\nreturn %w", 1, 20, "no data"),
    ("graph { return }\n}", 2, 1, "expected the end"),
    ("", 1, 1, "found the end"),
    ("input %x: f32[2]\n%y = tanh(%x) {\n  body { return }\n}\nreturn %y", 3, 3, "regions none"),
]


@pytest.mark.parametrize("text, line, column, message", ERRORS)
def test_errors_point_at_the_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(TextError, match=message) as caught:
        ug.parse(text)
    assert str(caught.value).startswith(f"line {line}, column {column}:")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(TextError, match="deeper"):
        ug.parse(nested(40).text())
    with pytest.raises(TextError, match="deeper"):
        ug.parse("signature args=" + "(" * 5000)


def test_mutated_text_never_fails_otherwise() -> None:
    original = sample().text(full=True)
    rng = random.Random(4)
    signs = '%"{}()[]=,:@#.-0123456789abcxf \n\\'
    for _ in range(600):
        text = list(original)
        for _ in range(rng.choice((1, 2, 5))):
            place = rng.randrange(len(text))
            if rng.random() < 0.5:
                text[place] = rng.choice(signs)
            else:
                del text[place : place + rng.randrange(1, 9)]
        try:
            ug.check(ug.parse("".join(text)), constants=False)
        except UnigraphError as error:
            assert isinstance(error, TextError), error


def test_every_example_of_every_op_survives_file_and_text() -> None:
    broken = []
    for name, op, example in all_examples():
        graph = example_graph(op, example)
        data = serde.encode(graph).data
        ug.check(graph)
        if serde.encode(serde.decode(data)).data != data:
            broken.append(f"{name}: file")
        if serde.encode(ug.parse(graph.text(full=True))).data != data:
            broken.append(f"{name}: text")
    assert not broken


def test_control_flow_by_hand() -> None:
    graph = ug.parse(
        """
        graph branches {
          key %key: key<threefry2x32>
          input %x: f32[n]
          constant %zero: f32 = 0.0
          %draw = random_bernoulli(%key, shape=[], p=0.5)
          %y = cond(%draw, %x) @ choice, net.py:3 {
            branches { input %a: f32[n] %b = tanh(%a) return (%b,) }
            branches as "other" { input %a: f32[n] %b = exp(%a) return (%b,) }
          }
          %sum, %all = scan(%zero, %y, length=n, num_consts=0, num_carry=1) {
            body { input %c: f32 input %e: f32 %d = add(%c, %e) return (%d, %c) }
          }
          return (%sum, %all)
        }
        """
    )
    assert [str(t) for t in graph.out_types] == ["f32[]", "f32[n]"]
    assert [r.name for r in graph.edges[1].regions] == ["branches", "other"]
    assert graph.edges[1].where == "choice (net.py:3)"
    assert same(ug.parse(graph.text(full=True)), graph)
