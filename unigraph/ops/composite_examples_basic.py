"""Runnable examples of activations, statistics and norms, and what examples of composites are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")
_POINTS = [-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0]
EMPTY = np.zeros((0, 3), np.float32)


def normal(*shape: int, seed: int = 0, dtype: str = "f32", spread: float = 1.0) -> np.ndarray:
    """Normal numbers that are the same everywhere."""
    return array(dtype, np.random.default_rng(seed).standard_normal(shape) * spread)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.1 and 0.9."""
    return array("f32", np.random.default_rng(seed).uniform(0.1, 0.9, shape))


def whole(high: int, *shape: int, seed: int = 0, dtype: str = "i64") -> np.ndarray:
    return array(dtype, np.random.default_rng(seed).integers(0, high, shape))


def row(*values: float, dtype: str = "f32") -> np.ndarray:
    return array(dtype, values)


def _curve(*told: Example, **attrs: Any) -> Callable[[], list[Example]]:
    """Examples of an activation: a few points in four dtypes, nothing, and what is told."""
    kinds = ("f32", "f64", "bf16", "f16")
    return lambda: [*(example(array(d, _POINTS), **attrs) for d in kinds), example(EMPTY, out=EMPTY, **attrs), *told]


def _told(x: list[float], y: list[float], note: str = "", **attrs: Any) -> Example:
    return example(row(*x), out=row(*y), note=note, **attrs)


ACTIVATIONS: dict[str, Callable[[], list[Example]]] = {
    "relu": _curve(
        _told([-1, NAN, INF, 2], [0, NAN, INF, 2]), example(row(-1, 2, dtype="i32"), out=row(0, 2, dtype="i32"))
    ),
    "relu6": _curve(_told([-1, 3, 7, NAN], [0, 3, 6, NAN])),
    "silu": _curve(_told([0, 200, -200], [0, 200, 0], "no overflow")),
    "mish": _curve(_told([0, 200, -200], [0, 200, 0], "no overflow")),
    "softsign": _curve(_told([1, -3], [0.5, -0.75])),
    "log_sigmoid": _curve(_told([0, 200, -200], [-0.6931472, 0, -200], "no overflow")),
    "hardswish": _curve(_told([-3, 0, 3, 6], [0, 0, 3, 6])),
    "selu": _curve(_told([0, -INF], [0, -1.7580993])),
    "tanhshrink": _curve(_told([0, 100], [0, 99])),
    "quick_gelu": _curve(_told([0, 100, -100], [0, 100, 0])),
    "gelu": lambda: [
        *_curve(_told([0, 10, -20], [0, 10, 0]))(),
        *_curve(_told([0, 10, -20], [0, 10, 0], approximate="tanh"), approximate="tanh")(),
    ],
    "leaky_relu": _curve(_told([-100, 2, NAN], [-1, 2, NAN])),
    "elu": _curve(_told([0, -INF, 3], [0, -2, 3], alpha=2.0)),
    "celu": _curve(_told([0, -INF, 3], [0, -2, 3], alpha=2.0)),
    "softplus": _curve(
        _told([0, 19.99, 200, -200], [0.6931472, 19.99, 200, 0], "no overflow"),
        _told([2], [2], "past the threshold", beta=2.0, threshold=3.0),
    ),
    "hardsigmoid": _curve(_told([-3, 0, 3, NAN], [0, 0.5, 1, NAN]), _told([1], [0.7], alpha=0.2)),
    "hardtanh": _curve(_told([-3, 0.5, 3, NAN], [-1, 0.5, 1, NAN])),
    "softshrink": _curve(_told([-1, -0.5, 0.25, 2, NAN], [-0.5, 0, 0, 1.5, NAN])),
    "hardshrink": _curve(_told([-1, -0.5, 0.25, 2, NAN], [-1, 0, 0, 2, NAN])),
    "threshold": _curve(_told([1, 1.5, NAN], [9, 1.5, NAN], threshold=1.0, value=9.0), threshold=0.5, value=-2.0),
    "prelu": lambda: [
        example(normal(2, 3, 2), row(0.1, 0.2, 0.3), note="one slope per channel"),
        example(row(-2, 4), row(0.5), out=row(-1, 4)),
        example(row(-2, 4), array("f32", 0.25), out=row(-0.5, 4), note="a scalar slope"),
    ],
    "glu": lambda: [
        example(normal(2, 6), axis=-1),
        example(normal(4, 3, dtype="bf16"), axis=0),
        example(row(3, 0), axis=0, out=row(1.5)),
    ],
    "softmax": lambda: [
        example(normal(3, 4), axis=-1),
        example(normal(3, 4, dtype="bf16"), axis=0),
        example(row(1000, 1000), axis=0, out=row(0.5, 0.5), note="no overflow"),
        example(row(-INF, 0), axis=0, out=row(0, 1)),
        example(row(-INF, -INF), axis=0, out=row(NAN, NAN), note="nothing to choose from"),
        example(EMPTY, axis=1, out=EMPTY),
    ],
    "log_softmax": lambda: [
        example(normal(3, 4), axis=1),
        example(normal(3, 4, dtype="f16"), axis=0),
        example(row(1000, 0), axis=0, out=row(0, -1000), note="no overflow"),
        example(row(-INF, -INF), axis=0, out=row(NAN, NAN)),
    ],
    "logsumexp": lambda: [
        example(normal(3, 4), axes=(0, 1)),
        example(normal(3, 4), axes=(1,), keepdims=True),
        example(row(-INF, -INF), axes=(0,), out=array("f32", -INF)),
        example(row(INF, 0), axes=(0,), out=array("f32", INF)),
        example(EMPTY, axes=(0,), out=row(-INF, -INF, -INF), note="the sum of nothing is 0"),
    ],
}

STATISTICS: dict[str, Callable[[], list[Example]]] = {
    "mean": lambda: [
        example(normal(3, 4), axes=(0,)),
        example(normal(3, 4, dtype="c64"), axes=(0, 1), keepdims=True),
        example(np.full(4096, 1, array("f16", 0).dtype), axes=(0,), out=array("f16", 1), note="added up in f32"),
        example(row(1, 2), axes=(), out=row(1, 2), note="over no axes"),
        example(EMPTY, axes=(0,), out=row(NAN, NAN, NAN), note="over nothing"),
    ],
    "var": lambda: [
        example(normal(3, 4), axes=(0,)),
        example(normal(3, 4, dtype="c64"), axes=(1,), correction=1),
        example(row(1, 3), axes=(0,), correction=1, keepdims=True, out=row(2)),
        example(row(1), axes=(0,), correction=1, out=array("f32", NAN), note="0 / 0"),
        example(row(1e4, 1e4 + 1, 1e4 + 2), axes=(0,), correction=1, out=array("f32", 1), note="no cancellation"),
    ],
    "std": lambda: [example(normal(3, 4), axes=(0, 1)), example(row(1, 3), axes=(0,), out=array("f32", 1))],
    "clip": lambda: [
        example(normal(5), low=-0.5, high=0.5),
        example(row(-5, 7, NAN), low=0.0, out=row(0, 7, NAN)),
        example(row(1, 5), low=4.0, high=2.0, out=row(2, 2), note="high wins"),
        example(row(1, 200, dtype="u8"), low=-3, high=9, out=row(1, 9, dtype="u8"), note="a bound beyond the dtype"),
        example(row(1, 5), out=row(1, 5), note="no bounds"),
    ],
    "normalize": lambda: [
        example(normal(3, 4), axis=1),
        example(normal(3, 4), p=1.0, axis=0),
        example(row(3, 4), axis=0, out=row(0.6, 0.8)),
        example(row(3, -4), p=INF, axis=0, out=row(0.75, -1)),
        example(row(0, 0), axis=0, out=row(0, 0), note="epsilon guards zero"),
    ],
}

NORMS: dict[str, Callable[[], list[Example]]] = {
    "layer_norm": lambda: [
        example(normal(2, 3, 4), normal(4, seed=1), normal(4, seed=2), normalized_rank=1),
        example(normal(2, 3, 4, dtype="bf16"), normalized_rank=2, epsilon=1e-3),
        example(row(2, 2), normalized_rank=1, out=row(0, 0), note="epsilon guards a constant"),
        example(EMPTY, normalized_rank=1, out=EMPTY),
    ],
    "rms_norm": lambda: [
        example(normal(2, 3), normal(3, seed=1), normalized_rank=1, epsilon=1e-6),
        example(row(0, 0), normalized_rank=1, epsilon=1e-6, out=row(0, 0), note="epsilon guards zero"),
        example(
            row(300, 400, dtype="f16"),
            normalized_rank=1,
            epsilon=0.0,
            out=array("f16", [0.6 * 2**0.5, 0.8 * 2**0.5]),
            note="squares do not overflow",
        ),
    ],
    "group_norm": lambda: [
        example(normal(2, 4, 3), normal(4, seed=1), normal(4, seed=2), num_groups=2),
        example(normal(2, 4), num_groups=1),
        example(normal(2, 4), num_groups=4, out=np.zeros((2, 4), np.float32), note="groups of one"),
    ],
    "instance_norm": lambda: [
        example(normal(2, 3, 4), normal(3, seed=1), normal(3, seed=2)),
        example(normal(2, 3, 2, 2), epsilon=1e-3),
    ],
    "batch_norm": lambda: [
        example(normal(2, 3, 4), normal(3, seed=1), positive(3), normal(3, seed=2), normal(3, seed=3)),
        example(normal(2, 3), normal(3, seed=1), positive(3), axis=-1),
        example(row(3).reshape(1, 1), row(1), row(4), epsilon=0.0, out=row(1).reshape(1, 1)),
    ],
    "batch_norm_train": lambda: [
        example(normal(4, 3, 2), normal(3, seed=1), positive(3), normal(3, seed=2), normal(3, seed=3)),
        example(
            array("f32", [[1], [3]]),
            row(0),
            row(1),
            epsilon=0.0,
            momentum=0.5,
            out=(array("f32", [[-1], [1]]), row(1), row(1.5)),
            note="the running variance is unbiased",
        ),
        example(array("f32", [[1]]), row(0), row(1), out=(array("f32", [[0]]), row(0.1), row(NAN)), note="one element"),
    ],
    "local_response_norm": lambda: [
        example(normal(2, 5, 3), size=3),
        example(normal(2, 5), size=2, alpha=0.5, beta=0.5, k=2.0),
        example(
            row(1, 2, 3).reshape(1, 3),
            size=3,
            alpha=3.0,
            beta=1.0,
            k=1.0,
            out=row(1 / 6, 2 / 15, 3 / 14).reshape(1, 3),
        ),
    ],
}
