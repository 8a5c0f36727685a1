"""Runnable examples of the control ops; edges are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

_THREE = {"branches": [lambda b, x: b.neg(x), lambda b, x: b.add(x, 1.0), lambda b, x: b.mul(x, x)]}
_TWO = {"branches": [lambda b, x: b.neg(x), lambda b, x: b.add(x, 1.0)]}
_X = array("f32", [1, 2])


def _cond() -> list[Example]:
    clamped = [(-5, [-1, -2]), (0, [-1, -2]), (1, [2, 3]), (2, [1, 4]), (9, [1, 4])]
    return [
        *[example(array("i32", i), _X, out=array("f32", o), regions=_THREE, note="clamped") for i, o in clamped],
        example(array("bool", False), _X, out=-_X, regions=_TWO, note="False takes branch 0"),
        example(array("bool", True), _X, out=_X + 1, regions=_TWO),
        example(array("i32", 3), _X, out=-_X, regions={"branches": [lambda b, x: b.neg(x)]}, note="one branch"),
        example(
            array("bool", True),
            array("i32", 1),
            array("i32", 2),
            out=(array("i32", 2), array("i32", 1)),
            regions={"branches": [lambda b, x, y: (x, y), lambda b, x, y: (y, x)]},
            note="two outputs, nothing computed",
        ),
    ]


def _counting() -> dict[str, Any]:
    return {
        "cond": lambda b, limit, i, total: b.lt(i, limit),
        "body": lambda b, step, i, total: (b.add(i, 1), b.add(total, step)),
    }


def _while() -> list[Example]:
    zero, f = array("i32", 0), array("f32", [0, 1])
    step = array("f32", [2, 3])
    return [
        example(
            array("i32", 3),
            step,
            zero,
            f,
            out=(array("i32", 3), array("f32", [6, 10])),
            regions=_counting(),
            cond_consts=1,
            body_consts=1,
            note="constants of both regions",
        ),
        example(
            array("i32", 0),
            step,
            zero,
            f,
            out=(zero, f),
            regions=_counting(),
            cond_consts=1,
            body_consts=1,
            note="no step",
        ),
        example(
            array("i32", 100),
            out=array("i32", 3),
            regions={"cond": lambda b, x: b.gt(x, 5), "body": lambda b, x: b.sub(x, 97)},
        ),
    ]


def _sums(b: Any, total: Any, x: Any) -> tuple[Any, Any]:
    total = b.add(total, x)
    return total, total


def _scan() -> list[Example]:
    xs = array("f32", [1, 2, 3])
    zero = array("f32", 0)
    carried: dict[str, Any] = {"length": 3, "num_consts": 0, "num_carry": 1}
    return [
        example(zero, xs, out=(array("f32", 6), array("f32", [1, 3, 6])), regions={"body": _sums}, **carried),
        example(
            zero, xs, out=(array("f32", 6), array("f32", [6, 5, 3])), regions={"body": _sums}, reverse=True, **carried
        ),
        example(
            zero,
            array("f32", np.zeros(0)),
            out=(zero, array("f32", np.zeros(0))),
            regions={"body": _sums},
            length=0,
            num_consts=0,
            num_carry=1,
            note="no step",
        ),
        example(
            array("f32", 10),
            xs,
            out=array("f32", [10, 20, 30]),
            regions={"body": lambda b, c, x: b.mul(c, x)},
            length=3,
            num_consts=1,
            num_carry=0,
            note="nothing carried",
        ),
        example(
            array("i32", 1),
            out=(array("i32", 8), array("i32", [1, 2, 4])),
            regions={"body": lambda b, c: (b.add(c, c), c)},
            note="no xs",
            **carried,
        ),
        example(
            array("f32", [[1, 2], [3, 4]]),
            array("f32", [1, 1]),
            array("i32", [[1], [2]]),
            out=(array("f32", [17, 37]), array("f32", [[3, 7], [17, 37]]), array("i32", [[1], [2]])),
            regions={"body": lambda b, w, h, i: _dot(b, w, h, i)},
            length=2,
            num_consts=1,
            num_carry=1,
            note="constants, carry and xs of different shapes",
        ),
    ]


def _dot(b: Any, w: Any, h: Any, i: Any) -> tuple[Any, Any, Any]:
    h = b.dot_general(w, h, lhs_contracting=(1,), rhs_contracting=(0,))
    return h, h, i


def _plain() -> list[Example]:
    return [
        example(_X, out=_X * 2, regions={"body": lambda b, x: b.add(x, x)}),
        example(_X, _X + 1, out=(_X + 1, _X), regions={"body": lambda b, x, y: (y, x)}),
        example(_X, out=(_X, _X), regions={"body": lambda b, x: (x, x)}, note="one value twice"),
    ]


def _custom_jvp() -> list[Example]:
    """Tangents and cotangents are three times what those of the body would be."""
    return [
        example(
            _X,
            _X + 1,
            out=array("f32", [2, 6]),
            regions={
                "body": lambda b, x, y: b.mul(x, y),
                "jvp": lambda b, x, y, dx, dy: b.mul(b.add(b.mul(dx, y), b.mul(x, dy)), 3.0),
                "vjp": lambda b, x, y, g: (b.mul(b.mul(g, y), 3.0), b.mul(b.mul(g, x), 3.0)),
            },
            note="two operands",
        ),
        example(
            array("i32", [3, 4]),
            _X,
            out=(array("f32", [3, 8]), array("i32", [3, 4])),
            regions={
                "body": lambda b, n, x: (b.mul(b.convert(n, dtype="f32"), x), n),
                "jvp": lambda b, n, x, dx: b.mul(b.convert(n, dtype="f32"), dx),
                "vjp": lambda b, n, x, g: b.mul(b.convert(n, dtype="f32"), g),
            },
            note="integers have no tangents",
        ),
    ]


def _custom_vjp() -> list[Example]:
    return [
        example(
            _X,
            out=_X,
            regions={
                "body": lambda b, x: b.round(x, mode="even"),
                "fwd": lambda b, x: b.round(x, mode="even"),
                "bwd": lambda b, g: g,
            },
            num_residuals=0,
            note="straight through",
        ),
        example(
            array("f32", 2),
            _X,
            out=array("f32", [2, 4]),
            regions={
                "body": lambda b, w, x: b.mul(_spread(b, w), x),
                "fwd": lambda b, w, x: (b.mul(_spread(b, w), x), b.sign(x)),
                "bwd": lambda b, w, kept, g: b.mul(b.mul(_spread(b, w), kept), g),
            },
            num_residuals=1,
            num_consts=1,
            note="a constant and something kept",
        ),
    ]


def _spread(b: Any, w: Any) -> Any:
    return b.broadcast_in_dim(w, shape=(2,), broadcast_dimensions=())


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "call": _plain,
    "remat": _plain,
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
}
