"""Runnable examples of the composites: an ordinary call or two each, and the edges with told outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")
_POINTS = [-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0]
_KEY = array("u32", [0, 42])
EMPTY = np.zeros((0, 3), np.float32)


def _f(*shape: int, seed: int = 0, dtype: str = "f32", spread: float = 1.0) -> np.ndarray:
    """Normal numbers that are the same everywhere."""
    return array(dtype, np.random.default_rng(seed).standard_normal(shape) * spread)


def _p(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.1 and 0.9."""
    return array("f32", np.random.default_rng(seed).uniform(0.1, 0.9, shape))


def _i(high: int, *shape: int, seed: int = 0, dtype: str = "i64") -> np.ndarray:
    return array(dtype, np.random.default_rng(seed).integers(0, high, shape))


def _row(*values: float, dtype: str = "f32") -> np.ndarray:
    return array(dtype, values)


def _curve(*told: Example, **attrs: Any) -> Callable[[], list[Example]]:
    """Examples of an activation: a few points in four dtypes, nothing, and what is told."""
    kinds = ("f32", "f64", "bf16", "f16")
    return lambda: [*(example(array(d, _POINTS), **attrs) for d in kinds), example(EMPTY, out=EMPTY, **attrs), *told]


def _told(x: list[float], y: list[float], note: str = "", **attrs: Any) -> Example:
    return example(_row(*x), out=_row(*y), note=note, **attrs)


_ACTIVATIONS: dict[str, Callable[[], list[Example]]] = {
    "relu": _curve(
        _told([-1, NAN, INF, 2], [0, NAN, INF, 2]), example(_row(-1, 2, dtype="i32"), out=_row(0, 2, dtype="i32"))
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
        example(_f(2, 3, 2), _row(0.1, 0.2, 0.3), note="one slope per channel"),
        example(_row(-2, 4), _row(0.5), out=_row(-1, 4)),
        example(_row(-2, 4), array("f32", 0.25), out=_row(-0.5, 4), note="a scalar slope"),
    ],
    "glu": lambda: [
        example(_f(2, 6), axis=-1),
        example(_f(4, 3, dtype="bf16"), axis=0),
        example(_row(3, 0), axis=0, out=_row(1.5)),
    ],
    "softmax": lambda: [
        example(_f(3, 4), axis=-1),
        example(_f(3, 4, dtype="bf16"), axis=0),
        example(_row(1000, 1000), axis=0, out=_row(0.5, 0.5), note="no overflow"),
        example(_row(-INF, 0), axis=0, out=_row(0, 1)),
        example(_row(-INF, -INF), axis=0, out=_row(NAN, NAN), note="nothing to choose from"),
        example(EMPTY, axis=1, out=EMPTY),
    ],
    "log_softmax": lambda: [
        example(_f(3, 4), axis=1),
        example(_f(3, 4, dtype="f16"), axis=0),
        example(_row(1000, 0), axis=0, out=_row(0, -1000), note="no overflow"),
        example(_row(-INF, -INF), axis=0, out=_row(NAN, NAN)),
    ],
    "logsumexp": lambda: [
        example(_f(3, 4), axes=(0, 1)),
        example(_f(3, 4), axes=(1,), keepdims=True),
        example(_row(-INF, -INF), axes=(0,), out=array("f32", -INF)),
        example(_row(INF, 0), axes=(0,), out=array("f32", INF)),
        example(EMPTY, axes=(0,), out=_row(-INF, -INF, -INF), note="the sum of nothing is 0"),
    ],
}

_STATISTICS: dict[str, Callable[[], list[Example]]] = {
    "mean": lambda: [
        example(_f(3, 4), axes=(0,)),
        example(_f(3, 4, dtype="c64"), axes=(0, 1), keepdims=True),
        example(np.full(4096, 1, array("f16", 0).dtype), axes=(0,), out=array("f16", 1), note="added up in f32"),
        example(_row(1, 2), axes=(), out=_row(1, 2), note="over no axes"),
        example(EMPTY, axes=(0,), out=_row(NAN, NAN, NAN), note="over nothing"),
    ],
    "var": lambda: [
        example(_f(3, 4), axes=(0,)),
        example(_f(3, 4, dtype="c64"), axes=(1,), correction=1),
        example(_row(1, 3), axes=(0,), correction=1, keepdims=True, out=_row(2)),
        example(_row(1), axes=(0,), correction=1, out=array("f32", NAN), note="0 / 0"),
        example(_row(1e4, 1e4 + 1, 1e4 + 2), axes=(0,), correction=1, out=array("f32", 1), note="no cancellation"),
    ],
    "std": lambda: [example(_f(3, 4), axes=(0, 1)), example(_row(1, 3), axes=(0,), out=array("f32", 1))],
    "clip": lambda: [
        example(_f(5), low=-0.5, high=0.5),
        example(_row(-5, 7, NAN), low=0.0, out=_row(0, 7, NAN)),
        example(_row(1, 5), low=4.0, high=2.0, out=_row(2, 2), note="high wins"),
        example(_row(1, 200, dtype="u8"), low=-3, high=9, out=_row(1, 9, dtype="u8"), note="a bound beyond the dtype"),
        example(_row(1, 5), out=_row(1, 5), note="no bounds"),
    ],
    "normalize": lambda: [
        example(_f(3, 4), axis=1),
        example(_f(3, 4), p=1.0, axis=0),
        example(_row(3, 4), axis=0, out=_row(0.6, 0.8)),
        example(_row(3, -4), p=INF, axis=0, out=_row(0.75, -1)),
        example(_row(0, 0), axis=0, out=_row(0, 0), note="epsilon guards zero"),
    ],
}

_NORMS: dict[str, Callable[[], list[Example]]] = {
    "layer_norm": lambda: [
        example(_f(2, 3, 4), _f(4, seed=1), _f(4, seed=2), normalized_rank=1),
        example(_f(2, 3, 4, dtype="bf16"), normalized_rank=2, epsilon=1e-3),
        example(_row(2, 2), normalized_rank=1, out=_row(0, 0), note="epsilon guards a constant"),
        example(EMPTY, normalized_rank=1, out=EMPTY),
    ],
    "rms_norm": lambda: [
        example(_f(2, 3), _f(3, seed=1), normalized_rank=1, epsilon=1e-6),
        example(_row(0, 0), normalized_rank=1, epsilon=1e-6, out=_row(0, 0), note="epsilon guards zero"),
        example(
            _row(300, 400, dtype="f16"),
            normalized_rank=1,
            epsilon=0.0,
            out=array("f16", [0.6 * 2**0.5, 0.8 * 2**0.5]),
            note="squares do not overflow",
        ),
    ],
    "group_norm": lambda: [
        example(_f(2, 4, 3), _f(4, seed=1), _f(4, seed=2), num_groups=2),
        example(_f(2, 4), num_groups=1),
        example(_f(2, 4), num_groups=4, out=np.zeros((2, 4), np.float32), note="groups of one"),
    ],
    "instance_norm": lambda: [
        example(_f(2, 3, 4), _f(3, seed=1), _f(3, seed=2)),
        example(_f(2, 3, 2, 2), epsilon=1e-3),
    ],
    "batch_norm": lambda: [
        example(_f(2, 3, 4), _f(3, seed=1), _p(3), _f(3, seed=2), _f(3, seed=3)),
        example(_f(2, 3), _f(3, seed=1), _p(3), axis=-1),
        example(_row(3).reshape(1, 1), _row(1), _row(4), epsilon=0.0, out=_row(1).reshape(1, 1)),
    ],
    "batch_norm_train": lambda: [
        example(_f(4, 3, 2), _f(3, seed=1), _p(3), _f(3, seed=2), _f(3, seed=3)),
        example(
            array("f32", [[1], [3]]),
            _row(0),
            _row(1),
            epsilon=0.0,
            momentum=0.5,
            out=(array("f32", [[-1], [1]]), _row(1), _row(1.5)),
            note="the running variance is unbiased",
        ),
        example(
            array("f32", [[1]]), _row(0), _row(1), out=(array("f32", [[0]]), _row(0.1), _row(NAN)), note="one element"
        ),
    ],
    "local_response_norm": lambda: [
        example(_f(2, 5, 3), size=3),
        example(_f(2, 5), size=2, alpha=0.5, beta=0.5, k=2.0),
        example(
            _row(1, 2, 3).reshape(1, 3),
            size=3,
            alpha=3.0,
            beta=1.0,
            k=1.0,
            out=_row(1 / 6, 2 / 15, 3 / 14).reshape(1, 3),
        ),
    ],
}

_HALF = array("bool", [[True, False], [False, False]])
_PRODUCTS: dict[str, Callable[[], list[Example]]] = {
    "matmul": lambda: [
        example(_f(2, 3), _f(3, 4, seed=1)),
        example(_f(5, 1, 2, 3), _f(4, 3, 2, seed=1), note="leading axes are broadcast"),
        example(_f(3), _f(3, seed=1), note="two vectors"),
        example(_f(3), _f(2, 3, 4, seed=1)),
        example(_f(2, 0), _f(0, 3), out=np.zeros((2, 3), np.float32), note="a sum of nothing"),
    ],
    "linear": lambda: [
        example(_f(2, 3), _f(4, 3, seed=1), _f(4, seed=2)),
        example(_f(2, 5, 3), _f(4, 3, seed=1)),
        example(_row(1, 2).reshape(1, 2), array("f32", [[3, 4]]), _row(5), out=array("f32", [[16]])),
    ],
    "einsum": lambda: [
        example(_f(2, 3, 4), _f(2, 4, 5, seed=1), equation="bij,bjk->bik"),
        example(_f(2, 3), _f(3, 4, seed=1), _f(4, seed=2), equation="ij,jk,k->i"),
        example(array("f32", [[1, NAN], [2, 3]]), equation="ii->i", out=_row(1, 3), note="a diagonal"),
        example(_row(1, 2), _row(3, 4), equation="i,j->ij", out=array("f32", [[3, 4], [6, 8]])),
        example(_f(2, 3, 4), equation="...ij->...ji"),
        example(array("f32", [[1, 2]]), equation="ba", out=array("f32", [[1], [2]]), note="no output: alphabetical"),
    ],
    "conv": lambda: [
        example(
            _f(2, 4, 5, 6),
            _f(6, 2, 3, 2, seed=1),
            _f(6, seed=2),
            strides=(2, 1),
            low=(1, 0),
            high=(0, 2),
            dilation=(1, 2),
            groups=2,
        ),
        example(_f(1, 2, 6), _f(3, 2, 3, seed=1), strides=(1,), low=(1,), high=(1,), dilation=(1,)),
        example(
            array("f32", [[[1, 2, 3]]]),
            array("f32", [[[1, 10]]]),
            strides=(1,),
            low=(0,),
            high=(0,),
            dilation=(1,),
            out=array("f32", [[[21, 32]]]),
        ),
    ],
    "conv_transpose": lambda: [
        example(
            _f(2, 4, 3, 3),
            _f(4, 3, 3, 2, seed=1),
            _f(6, seed=2),
            strides=(2, 1),
            low=(1, 0),
            high=(0, 0),
            output_padding=(1, 0),
            dilation=(1, 2),
            groups=2,
        ),
        example(
            array("f32", [[[1, 2]]]),
            array("f32", [[[1, 10]]]),
            strides=(2,),
            low=(0,),
            high=(0,),
            output_padding=(1,),
            dilation=(1,),
            out=array("f32", [[[1, 10, 2, 20, 0]]]),
        ),
    ],
    "attention": lambda: [
        example(_f(2, 3, 4), _f(2, 5, 4, seed=1), _f(2, 5, 3, seed=2)),
        example(
            _f(1, 4, 3, 4),
            _f(1, 2, 3, 4, seed=1),
            _f(1, 2, 3, 4, seed=2),
            is_causal=True,
            note="two query heads share a key head",
        ),
        example(
            _f(2, 3, 4, dtype="bf16"),
            _f(2, 3, 4, seed=1, dtype="bf16"),
            _f(2, 3, 4, seed=2, dtype="bf16"),
            _f(3, 3, seed=3, dtype="bf16"),
            scale=0.25,
        ),
        example(
            array("f32", [[1, 0], [0, 1]]),
            array("f32", [[1, 2], [3, 4]]),
            array("f32", [[5, 6], [7, 8]]),
            _HALF,
            out=array("f32", [[5, 6], [0, 0]]),
            note="a row that sees nothing gives zeros",
        ),
        example(
            array("f32", [[1, 0]]),
            array("f32", [[1, 2], [3, 4]]),
            array("f32", [[5, 6], [7, 8]]),
            is_causal=True,
            out=array("f32", [[5, 6]]),
        ),
    ],
    "rotary_embedding": lambda: [
        example(_f(2, 3, 4), _f(3, 2, seed=1), _f(3, 2, seed=2)),
        example(_f(2, 3, 4), _f(3, 4, seed=1), _f(3, 4, seed=2), interleaved=True),
        example(_row(1, 2, 3, 4), _row(0, 0), _row(1, 1), out=_row(-3, -4, 1, 2), note="a quarter turn"),
        example(_row(1, 2, 3, 4), _row(0, 0), _row(1, 1), interleaved=True, out=_row(-2, 1, -4, 3)),
    ],
}

_LINE = array("f32", [[[1, 2, 3, 4, 5]]])
_WINDOW: dict[str, Any] = {"kernel": (2,), "strides": (2,), "low": (0,), "high": (1,)}
_POOLS: dict[str, Callable[[], list[Example]]] = {
    "max_pool": lambda: [
        example(_f(1, 2, 5, 6), kernel=(2, 3), strides=(1, 2), low=(1, 1), high=(0, 1), dilation=(2, 1)),
        example(_LINE, **_WINDOW, dilation=(1,), out=array("f32", [[[2, 4, 5]]]), note="ceil mode"),
        example(
            array("f32", [[[-1, NAN, 3]]]),
            kernel=(1,),
            strides=(1,),
            low=(1,),
            high=(0,),
            dilation=(1,),
            out=array("f32", [[[-INF, -1, NAN, 3]]]),
        ),
        example(
            array("i32", [[[-4, -2]]]),
            kernel=(2,),
            strides=(1,),
            low=(1,),
            high=(0,),
            dilation=(1,),
            out=array("i32", [[[-4, -2]]]),
        ),
    ],
    "avg_pool": lambda: [
        example(_f(1, 2, 5, 6), kernel=(2, 3), strides=(1, 2), low=(1, 1), high=(0, 1)),
        example(
            _LINE, **_WINDOW, ceil_extra=(1,), out=array("f32", [[[1.5, 3.5, 5]]]), note="ceil mode does not count"
        ),
        example(_LINE, **_WINDOW, out=array("f32", [[[1.5, 3.5, 2.5]]]), note="padding counts"),
        example(_LINE, **_WINDOW, count_include_pad=False, out=array("f32", [[[1.5, 3.5, 5]]])),
        example(_LINE, **_WINDOW, divisor=1, out=array("f32", [[[3, 7, 5]]])),
    ],
    "adaptive_avg_pool": lambda: [
        example(_f(1, 2, 5, 6), output_size=(2, 3)),
        example(_LINE, output_size=(1,), out=array("f32", [[[3]]])),
        example(_LINE, output_size=(2,), out=array("f32", [[[2, 4]]]), note="windows overlap"),
        example(_LINE[..., :2], output_size=(4,), out=array("f32", [[[1, 1, 2, 2]]]), note="larger than x"),
    ],
    "adaptive_max_pool": lambda: [
        example(_f(1, 2, 5, 6), output_size=(2, 3)),
        example(_LINE, output_size=(2,), out=array("f32", [[[3, 5]]])),
    ],
    "pixel_shuffle": lambda: [
        example(_f(1, 8, 2, 3), factor=2),
        example(array("f32", [[[1]], [[2]], [[3]], [[4]]]), factor=2, out=array("f32", [[[1, 2], [3, 4]]])),
    ],
    "pixel_unshuffle": lambda: [
        example(_f(1, 2, 4, 6), factor=2),
        example(array("f32", [[[1, 2], [3, 4]]]), factor=2, out=array("f32", [[[1]], [[2]], [[3]], [[4]]])),
    ],
    "resize": lambda: [
        example(_f(1, 2, 3, 4), shape=(5, 3), mode="linear"),
        example(_f(1, 2, 3, 4), shape=(5, 3), mode="cubic", coordinates="align_corners"),
        example(_f(1, 2, 6, 4), shape=(3, 3), mode="cubic", antialias=True, cubic_coeff=-0.5),
        example(_f(1, 1, 6), shape=(4,), mode="linear", antialias=True),
        example(
            _LINE[..., :2], shape=(4,), mode="nearest", coordinates="asymmetric", out=array("f32", [[[1, 1, 2, 2]]])
        ),
        example(
            _LINE[..., :2],
            shape=(4,),
            mode="linear",
            out=array("f32", [[[1, 1.25, 1.75, 2]]]),
            note="the border is repeated",
        ),
        example(
            _LINE[..., :3],
            shape=(5,),
            mode="linear",
            coordinates="align_corners",
            out=array("f32", [[[1, 1.5, 2, 2.5, 3]]]),
        ),
        example(
            _LINE, shape=(1,), mode="linear", coordinates="align_corners", out=array("f32", [[[1]]]), note="one element"
        ),
        example(_LINE, shape=(5,), mode="cubic", out=_LINE, note="same size"),
        example(
            _LINE[..., :2], shape=(3,), mode="nearest", nearest="round_prefer_ceil", out=array("f32", [[[1, 2, 2]]])
        ),
        example(
            _LINE[..., :2],
            shape=(3,),
            mode="nearest",
            nearest="round_prefer_floor",
            out=array("f32", [[[1, 1, 2]]]),
            note="half way",
        ),
    ],
}


def _recurrent(gates: int, states: int, **attrs: Any) -> list[Example]:
    starts = [_f(2, 3, seed=k) for k in range(1, states + 1)]
    rows = 3 * gates
    weights = [_f(rows, 2, seed=5), _f(rows, 3, seed=6)]
    biases = [_f(rows, seed=7), _f(rows, seed=8)]
    empty = np.zeros((0, 2, 3), np.float32)
    return [
        example(_f(4, 2, 2), *starts, *weights, *biases, **attrs),
        example(_f(4, 2, 2), *starts, *weights, **attrs, reverse=True),
        example(np.zeros((0, 2, 2), np.float32), *starts, *weights, **attrs, out=(empty, *starts), note="no steps"),
    ]


_LOGITS = array("f32", [[0, 0], [0, 0]])
LOG2 = float(np.log(2.0))
_PAIR = (_row(1, 2, 5), _row(1, 2.5, 2))


def _losses(one: list[float], **attrs: Any) -> list[Example]:
    """A pairwise loss with its elements told."""
    return [
        example(*_PAIR, **attrs, reduction="none", out=_row(*one)),
        example(*_PAIR, **attrs, reduction="sum", out=array("f32", sum(one))),
        example(*_PAIR, **attrs, out=array("f32", sum(one) / 3)),
        example(_f(2, 3, dtype="bf16"), _f(2, 3, seed=1, dtype="bf16"), **attrs),
        example(EMPTY, EMPTY, **attrs, out=array("f32", NAN), note="the mean of nothing"),
    ]


_LAYERS: dict[str, Callable[[], list[Example]]] = {
    "lstm": lambda: _recurrent(4, 2),
    "gru": lambda: _recurrent(3, 1),
    "rnn": lambda: [*_recurrent(1, 1), *_recurrent(1, 1, nonlinearity="relu")],
    "cross_entropy": lambda: [
        example(_f(3, 5, 2), _i(5, 3, 2)),
        example(_f(3, 5), _i(5, 3, dtype="i32"), reduction="none", label_smoothing=0.2),
        example(_LOGITS, _row(0, -100, dtype="i64"), out=array("f32", LOG2), note="one target is ignored"),
        example(_LOGITS, _row(0, -100, dtype="i64"), reduction="none", out=_row(LOG2, 0)),
        example(_LOGITS, _row(1, 1, dtype="i64"), ignore_index=1, out=array("f32", NAN), note="all are ignored"),
        example(_row(1000, 0), array("i64", 1), out=array("f32", 1000), note="one example, no overflow"),
    ],
    "nll_loss": lambda: [
        example(_f(3, 5, 2), _i(5, 3, 2), reduction="sum"),
        example(array("f32", [[-1, -2], [-3, -4]]), _row(1, 0, dtype="i32"), ignore_index=0, out=array("f32", 2)),
    ],
    "mse_loss": lambda: _losses([0, 0.25, 9]),
    "l1_loss": lambda: _losses([0, 0.5, 3]),
    "smooth_l1_loss": lambda: [*_losses([0, 0.125, 2.5]), *_losses([0, 0.5, 3], beta=0.0)],
    "huber_loss": lambda: _losses([0, 0.125, 4], delta=2.0),
    "bce_loss": lambda: [
        example(_p(2, 3), _p(2, 3, seed=1)),
        example(_row(0, 1, 0.5), _row(1, 1, 0), reduction="none", out=_row(100, 0, LOG2), note="log 0 counts as -100"),
    ],
    "bce_with_logits": lambda: [
        example(_f(2, 3), _p(2, 3)),
        example(_row(0, 1000, -1000), _row(1, 1, 1), reduction="none", out=_row(LOG2, 0, 1000), note="no overflow"),
    ],
    "kl_div": lambda: [
        example(_f(2, 3), _p(2, 3), reduction="batchmean"),
        example(_f(2, 3), _f(2, 3, seed=1), log_target=True),
        example(_row(-1, -2), _row(0, 1), reduction="none", out=_row(0, 2), note="y log y is 0 at 0"),
    ],
}


def _draws(floats: bool = True, **attrs: Any) -> Callable[[], list[Example]]:
    """A distribution from one key, from several, in several dtypes, and of nothing."""
    kinds: tuple[dict[str, Any], ...] = tuple({"dtype": d} for d in ("f32", "f64", "bf16", "f16")) if floats else ({},)

    def examples() -> list[Example]:
        first = {**kinds[0], **attrs}
        return [
            *(example(_KEY, key_impl="threefry2x32", shape=(3, 4), **k, **attrs) for k in kinds),
            example(np.stack([_KEY, _KEY + 1]), key_impl="threefry2x32", shape=(3,), note="two keys", **first),
            example(_KEY, key_impl="threefry2x32", shape=(), **first),
            example(_KEY, key_impl="threefry2x32", shape=(0, 2), note="nothing", **first),
        ]

    return examples


def _dropped(x: np.ndarray, rate: float, out: Any = None, note: str = "") -> Example:
    outputs = None if out is None else (out,)
    return Example((x, _KEY), {"rate": rate}, outputs, note=note, key_impl="threefry2x32", key_index=1)


def _randint() -> list[Example]:
    ranges = {
        "i32": (0, 10),
        "u8": (0, 256),
        "i8": (-5, 100),
        "u64": (3, 2**40),
        "i64": (-(2**63), 2**63),
        "u16": (1, 7),
    }
    drawn = [
        example(_KEY, key_impl="threefry2x32", shape=(20,), dtype=d, low=lo, high=hi) for d, (lo, hi) in ranges.items()
    ]
    none = example(
        _KEY,
        key_impl="threefry2x32",
        shape=(2,),
        low=5,
        high=5,
        out=array("i32", [5, 5]),
        note="an empty range gives low",
    )
    return [*drawn, none]


_RANDOM: dict[str, Callable[[], list[Example]]] = {
    "random_uniform": lambda: [*_draws()(), *_draws(low=-2.0, high=3.0)()],
    "random_normal": _draws(),
    "random_exponential": _draws(),
    "random_gumbel": _draws(),
    "random_truncated_normal": _draws(low=-1.0, high=2.0),
    "random_bernoulli": lambda: [
        *_draws(floats=False, p=0.3)(),
        example(_KEY, key_impl="threefry2x32", shape=(3,), p=0.0, out=array("bool", [False] * 3)),
        example(_KEY, key_impl="threefry2x32", shape=(3,), p=1.0, out=array("bool", [True] * 3)),
    ],
    "random_randint": _randint,
    "dropout": lambda: [
        _dropped(_f(3, 4), 0.4),
        _dropped(_f(3, 4, dtype="bf16"), 0.5),
        _dropped(_row(1, NAN), 0.0, _row(1, NAN), "nothing is dropped"),
        _dropped(_row(1, NAN), 1.0, _row(0, 0), "all is dropped"),
    ],
}

_ONE, _ZERO = array("f32", 1), array("i32", 0)
_TABLE = array("f32", [[1, 2], [3, 4], [5, 6]])
_REST: dict[str, Callable[[], list[Example]]] = {
    "quantize": lambda: [
        example(_f(3, 4, spread=20), array("f32", 0.25), array("i8", 3), dtype="i8"),
        example(_f(3, 4, spread=20), _p(4), _i(9, 4, dtype="u8"), axis=-1, dtype="u8"),
        example(
            _row(0.5, 1.5, 2.5, -0.5), _ONE, _ZERO, dtype="i8", out=_row(0, 2, 2, 0, dtype="i8"), note="halves to even"
        ),
        example(
            _row(1000, -1000, NAN, INF),
            _ONE,
            _ZERO,
            dtype="i8",
            out=_row(127, -128, 0, 127, dtype="i8"),
            note="clamped",
        ),
        example(_row(1000, -9), _ONE, _ZERO, dtype="i4", out=_row(7, -8, dtype="i4")),
        example(_row(1000, 0.3), _ONE, _ZERO, dtype="f8e4m3fn", out=_row(448, 0.3, dtype="f8e4m3fn")),
    ],
    "dequantize": lambda: [
        example(_i(100, 3, 4, dtype="i8"), _p(3), _i(9, 3, dtype="i8"), axis=0),
        example(_row(0, 255, dtype="u8"), array("f32", 0.5), array("u8", 128), out=_row(-64, 63.5)),
        example(
            _row(1, -2, dtype="i4"), array("f32", 0.5), array("i4", 0), dtype="bf16", out=_row(0.5, -1, dtype="bf16")
        ),
    ],
    "embedding": lambda: [
        example(_f(5, 3), _i(5, 2, 2)),
        example(_TABLE, _row(-1, 7, dtype="i32"), out=_TABLE[[0, 2]], note="outside: the nearest row"),
        example(_TABLE, np.zeros((0, 2), np.int64), out=np.zeros((0, 2, 2), np.float32)),
    ],
    "one_hot": lambda: [
        example(_row(1, 0, dtype="i64"), depth=3, dtype="f32", out=array("f32", [[0, 1, 0], [1, 0, 0]])),
        example(_row(1, 0, dtype="i32"), depth=2, axis=0, dtype="i8", out=array("i8", [[0, 1], [1, 0]])),
        example(_row(-1, 3, dtype="i8"), depth=3, dtype="f32", out=np.zeros((2, 3), np.float32), note="outside: zeros"),
        example(
            _row(3, dtype="u8"),
            depth=300,
            dtype="bool",
            out=(np.arange(300) == 3)[None],
            note="more classes than u8 holds",
        ),
    ],
    "take": lambda: [
        example(_f(3, 4, 2), _i(4, 2, 3), axis=1),
        example(_TABLE, _row(-1, 7, dtype="i32"), axis=0, out=_TABLE[[0, 2]]),
        example(_TABLE, _row(-1, 4, dtype="i32"), axis=0, mode="wrap", out=_TABLE[[2, 1]]),
        example(
            _TABLE,
            _row(-1, 3, -4, dtype="i64"),
            axis=0,
            mode="fill",
            out=array("f32", [[5, 6], [NAN, NAN], [NAN, NAN]]),
        ),
        example(_TABLE, array("i32", 1), axis=-1, out=_row(2, 4, 6), note="a scalar index takes the axis away"),
    ],
    "take_along_axis": lambda: [
        example(_f(3, 4), _i(4, 3, 2), axis=1),
        example(
            _TABLE,
            _row(-1, 0, dtype="i32").reshape(1, 2),
            axis=0,
            out=array("f32", [[5, 2]]),
            note="negative: from the end",
        ),
        example(
            _TABLE,
            _row(1, dtype="i32").reshape(1, 1),
            axis=1,
            out=array("f32", [[2], [4], [6]]),
            note="size 1 is broadcast",
        ),
    ],
    "tril": lambda: [
        example(_f(2, 3, 4)),
        example(array("f32", [[1, NAN], [3, 4]]), out=array("f32", [[1, 0], [3, 4]]), note="NaN is cut off"),
        example(_i(9, 3, 3), diagonal=-3, out=np.zeros((3, 3), np.int64)),
        example(_i(9, 2, 3), diagonal=2, out=_i(9, 2, 3)),
    ],
    "triu": lambda: [
        example(_f(2, 3, 4), diagonal=1),
        example(array("f32", [[1, 2], [NAN, 4]]), out=array("f32", [[1, 2], [0, 4]])),
    ],
    "roll": lambda: [
        example(_row(1, 2, 3), shifts=(1,), axes=(0,), out=_row(3, 1, 2)),
        example(_row(1, 2, 3), shifts=(-4,), axes=(-1,), out=_row(2, 3, 1)),
        example(
            array("f32", [[1, 2], [3, 4]]), shifts=(1,), axes=(), out=array("f32", [[4, 1], [2, 3]]), note="as one row"
        ),
        example(array("f32", [[1, 2], [3, 4]]), shifts=(1, 1), axes=(0, 1), out=array("f32", [[4, 3], [2, 1]])),
        example(EMPTY, shifts=(1,), axes=(0,), out=EMPTY),
    ],
    "tile": lambda: [
        example(_row(1, 2), repeats=(2,), out=_row(1, 2, 1, 2)),
        example(_row(1, 2), repeats=(2, 1), out=array("f32", [[1, 2], [1, 2]])),
        example(array("i32", [[1], [2]]), repeats=(3,), out=array("i32", [[1] * 3, [2] * 3])),
        example(_row(1, 2), repeats=(0,), out=_row()),
        example(array("f32", 5), repeats=(), out=array("f32", 5)),
    ],
    "repeat": lambda: [
        example(_row(1, 2), repeats=2, axis=0, out=_row(1, 1, 2, 2)),
        example(_f(2, 3), repeats=3, axis=-1),
        example(_row(1, 2), repeats=0, axis=0, out=_row()),
    ],
}

EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    **_ACTIVATIONS,
    **_STATISTICS,
    **_NORMS,
    **_PRODUCTS,
    **_POOLS,
    **_LAYERS,
    **_RANDOM,
    **_REST,
}
