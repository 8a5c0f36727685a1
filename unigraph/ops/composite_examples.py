"""Runnable examples of the composites: an ordinary call or two each, and the edges with told outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example
from .composite_examples_basic import (
    ACTIVATIONS,
    EMPTY,
    INF,
    NAN,
    NORMS,
    STATISTICS,
    normal,
    positive,
    row,
    whole,
)

_KEY = array("u32", [0, 42])

_HALF = array("bool", [[True, False], [False, False]])
_PRODUCTS: dict[str, Callable[[], list[Example]]] = {
    "matmul": lambda: [
        example(normal(2, 3), normal(3, 4, seed=1)),
        example(normal(5, 1, 2, 3), normal(4, 3, 2, seed=1), note="leading axes are broadcast"),
        example(normal(3), normal(3, seed=1), note="two vectors"),
        example(normal(3), normal(2, 3, 4, seed=1)),
        example(normal(2, 0), normal(0, 3), out=np.zeros((2, 3), np.float32), note="a sum of nothing"),
    ],
    "linear": lambda: [
        example(normal(2, 3), normal(4, 3, seed=1), normal(4, seed=2)),
        example(normal(2, 5, 3), normal(4, 3, seed=1)),
        example(row(1, 2).reshape(1, 2), array("f32", [[3, 4]]), row(5), out=array("f32", [[16]])),
    ],
    "einsum": lambda: [
        example(normal(2, 3, 4), normal(2, 4, 5, seed=1), equation="bij,bjk->bik"),
        example(normal(2, 3), normal(3, 4, seed=1), normal(4, seed=2), equation="ij,jk,k->i"),
        example(array("f32", [[1, NAN], [2, 3]]), equation="ii->i", out=row(1, 3), note="a diagonal"),
        example(row(1, 2), row(3, 4), equation="i,j->ij", out=array("f32", [[3, 4], [6, 8]])),
        example(normal(2, 3, 4), equation="...ij->...ji"),
        example(array("f32", [[1, 2]]), equation="ba", out=array("f32", [[1], [2]]), note="no output: alphabetical"),
    ],
    "conv": lambda: [
        example(
            normal(2, 4, 5, 6),
            normal(6, 2, 3, 2, seed=1),
            normal(6, seed=2),
            strides=(2, 1),
            low=(1, 0),
            high=(0, 2),
            dilation=(1, 2),
            groups=2,
        ),
        example(normal(1, 2, 6), normal(3, 2, 3, seed=1), strides=(1,), low=(1,), high=(1,), dilation=(1,)),
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
            normal(2, 4, 3, 3),
            normal(4, 3, 3, 2, seed=1),
            normal(6, seed=2),
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
        example(normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 3, seed=2)),
        example(
            normal(1, 4, 3, 4),
            normal(1, 2, 3, 4, seed=1),
            normal(1, 2, 3, 4, seed=2),
            is_causal=True,
            note="two query heads share a key head",
        ),
        example(
            normal(2, 3, 4, dtype="bf16"),
            normal(2, 3, 4, seed=1, dtype="bf16"),
            normal(2, 3, 4, seed=2, dtype="bf16"),
            normal(3, 3, seed=3, dtype="bf16"),
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
        example(normal(2, 3, 4), normal(3, 2, seed=1), normal(3, 2, seed=2)),
        example(normal(2, 3, 4), normal(3, 4, seed=1), normal(3, 4, seed=2), interleaved=True),
        example(row(1, 2, 3, 4), row(0, 0), row(1, 1), out=row(-3, -4, 1, 2), note="a quarter turn"),
        example(row(1, 2, 3, 4), row(0, 0), row(1, 1), interleaved=True, out=row(-2, 1, -4, 3)),
    ],
}

_LINE = array("f32", [[[1, 2, 3, 4, 5]]])
_WINDOW: dict[str, Any] = {"kernel": (2,), "strides": (2,), "low": (0,), "high": (1,)}
_POOLS: dict[str, Callable[[], list[Example]]] = {
    "max_pool": lambda: [
        example(normal(1, 2, 5, 6), kernel=(2, 3), strides=(1, 2), low=(1, 1), high=(0, 1), dilation=(2, 1)),
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
        example(normal(1, 2, 5, 6), kernel=(2, 3), strides=(1, 2), low=(1, 1), high=(0, 1)),
        example(
            _LINE, **_WINDOW, ceil_extra=(1,), out=array("f32", [[[1.5, 3.5, 5]]]), note="ceil mode does not count"
        ),
        example(_LINE, **_WINDOW, out=array("f32", [[[1.5, 3.5, 2.5]]]), note="padding counts"),
        example(_LINE, **_WINDOW, count_include_pad=False, out=array("f32", [[[1.5, 3.5, 5]]])),
        example(_LINE, **_WINDOW, divisor=1, out=array("f32", [[[3, 7, 5]]])),
    ],
    "adaptive_avg_pool": lambda: [
        example(normal(1, 2, 5, 6), output_size=(2, 3)),
        example(_LINE, output_size=(1,), out=array("f32", [[[3]]])),
        example(_LINE, output_size=(2,), out=array("f32", [[[2, 4]]]), note="windows overlap"),
        example(_LINE[..., :2], output_size=(4,), out=array("f32", [[[1, 1, 2, 2]]]), note="larger than x"),
    ],
    "adaptive_max_pool": lambda: [
        example(normal(1, 2, 5, 6), output_size=(2, 3)),
        example(_LINE, output_size=(2,), out=array("f32", [[[3, 5]]])),
    ],
    "pixel_shuffle": lambda: [
        example(normal(1, 8, 2, 3), factor=2),
        example(array("f32", [[[1]], [[2]], [[3]], [[4]]]), factor=2, out=array("f32", [[[1, 2], [3, 4]]])),
    ],
    "pixel_unshuffle": lambda: [
        example(normal(1, 2, 4, 6), factor=2),
        example(array("f32", [[[1, 2], [3, 4]]]), factor=2, out=array("f32", [[[1]], [[2]], [[3]], [[4]]])),
    ],
    "resize": lambda: [
        example(normal(1, 2, 3, 4), shape=(5, 3), mode="linear"),
        example(normal(1, 2, 3, 4), shape=(5, 3), mode="cubic", coordinates="align_corners"),
        example(normal(1, 2, 6, 4), shape=(3, 3), mode="cubic", antialias=True, cubic_coeff=-0.5),
        example(normal(1, 1, 6), shape=(4,), mode="linear", antialias=True),
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
    starts = [normal(2, 3, seed=k) for k in range(1, states + 1)]
    rows = 3 * gates
    weights = [normal(rows, 2, seed=5), normal(rows, 3, seed=6)]
    biases = [normal(rows, seed=7), normal(rows, seed=8)]
    empty = np.zeros((0, 2, 3), np.float32)
    return [
        example(normal(4, 2, 2), *starts, *weights, *biases, **attrs),
        example(normal(4, 2, 2), *starts, *weights, **attrs, reverse=True),
        example(np.zeros((0, 2, 2), np.float32), *starts, *weights, **attrs, out=(empty, *starts), note="no steps"),
    ]


_LOGITS = array("f32", [[0, 0], [0, 0]])
LOG2 = float(np.log(2.0))
_PAIR = (row(1, 2, 5), row(1, 2.5, 2))


def _losses(one: list[float], **attrs: Any) -> list[Example]:
    """A pairwise loss with its elements told."""
    return [
        example(*_PAIR, **attrs, reduction="none", out=row(*one)),
        example(*_PAIR, **attrs, reduction="sum", out=array("f32", sum(one))),
        example(*_PAIR, **attrs, out=array("f32", sum(one) / 3)),
        example(normal(2, 3, dtype="bf16"), normal(2, 3, seed=1, dtype="bf16"), **attrs),
        example(EMPTY, EMPTY, **attrs, out=array("f32", NAN), note="the mean of nothing"),
    ]


_LAYERS: dict[str, Callable[[], list[Example]]] = {
    "lstm": lambda: _recurrent(4, 2),
    "gru": lambda: _recurrent(3, 1),
    "rnn": lambda: [*_recurrent(1, 1), *_recurrent(1, 1, nonlinearity="relu")],
    "cross_entropy": lambda: [
        example(normal(3, 5, 2), whole(5, 3, 2)),
        example(normal(3, 5), whole(5, 3, dtype="i32"), reduction="none", label_smoothing=0.2),
        example(_LOGITS, row(0, -100, dtype="i64"), out=array("f32", LOG2), note="one target is ignored"),
        example(_LOGITS, row(0, -100, dtype="i64"), reduction="none", out=row(LOG2, 0)),
        example(_LOGITS, row(1, 1, dtype="i64"), ignore_index=1, out=array("f32", NAN), note="all are ignored"),
        example(row(1000, 0), array("i64", 1), out=array("f32", 1000), note="one example, no overflow"),
    ],
    "nll_loss": lambda: [
        example(normal(3, 5, 2), whole(5, 3, 2), reduction="sum"),
        example(array("f32", [[-1, -2], [-3, -4]]), row(1, 0, dtype="i32"), ignore_index=0, out=array("f32", 2)),
    ],
    "mse_loss": lambda: _losses([0, 0.25, 9]),
    "l1_loss": lambda: _losses([0, 0.5, 3]),
    "smooth_l1_loss": lambda: [*_losses([0, 0.125, 2.5]), *_losses([0, 0.5, 3], beta=0.0)],
    "huber_loss": lambda: _losses([0, 0.125, 4], delta=2.0),
    "bce_loss": lambda: [
        example(positive(2, 3), positive(2, 3, seed=1)),
        example(row(0, 1, 0.5), row(1, 1, 0), reduction="none", out=row(100, 0, LOG2), note="log 0 counts as -100"),
    ],
    "bce_with_logits": lambda: [
        example(normal(2, 3), positive(2, 3)),
        example(row(0, 1000, -1000), row(1, 1, 1), reduction="none", out=row(LOG2, 0, 1000), note="no overflow"),
    ],
    "kl_div": lambda: [
        example(normal(2, 3), positive(2, 3), reduction="batchmean"),
        example(normal(2, 3), normal(2, 3, seed=1), log_target=True),
        example(row(-1, -2), row(0, 1), reduction="none", out=row(0, 2), note="y log y is 0 at 0"),
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
        _dropped(normal(3, 4), 0.4),
        _dropped(normal(3, 4, dtype="bf16"), 0.5),
        _dropped(row(1, NAN), 0.0, row(1, NAN), "nothing is dropped"),
        _dropped(row(1, NAN), 1.0, row(0, 0), "all is dropped"),
    ],
}

_ONE, _ZERO = array("f32", 1), array("i32", 0)
_TABLE = array("f32", [[1, 2], [3, 4], [5, 6]])
_REST: dict[str, Callable[[], list[Example]]] = {
    "quantize": lambda: [
        example(normal(3, 4, spread=20), array("f32", 0.25), array("i8", 3), dtype="i8"),
        example(normal(3, 4, spread=20), positive(4), whole(9, 4, dtype="u8"), axis=-1, dtype="u8"),
        example(
            row(0.5, 1.5, 2.5, -0.5), _ONE, _ZERO, dtype="i8", out=row(0, 2, 2, 0, dtype="i8"), note="halves to even"
        ),
        example(
            row(1000, -1000, NAN, INF),
            _ONE,
            _ZERO,
            dtype="i8",
            out=row(127, -128, 0, 127, dtype="i8"),
            note="clamped",
        ),
        example(row(1000, -9), _ONE, _ZERO, dtype="i4", out=row(7, -8, dtype="i4")),
        example(row(1000, 0.3), _ONE, _ZERO, dtype="f8e4m3fn", out=row(448, 0.3, dtype="f8e4m3fn")),
    ],
    "dequantize": lambda: [
        example(whole(100, 3, 4, dtype="i8"), positive(3), whole(9, 3, dtype="i8"), axis=0),
        example(row(0, 255, dtype="u8"), array("f32", 0.5), array("u8", 128), out=row(-64, 63.5)),
        example(
            row(1, -2, dtype="i4"), array("f32", 0.5), array("i4", 0), dtype="bf16", out=row(0.5, -1, dtype="bf16")
        ),
    ],
    "quantized_linear": lambda: [
        example(normal(5, 8), whole(100, 3, 8, dtype="i8"), positive(3), normal(3)),
        example(normal(2, 3, 8), whole(100, 4, 8, dtype="i8"), positive(4)),
        example(
            array("f32", [[-1, 0, 254]]),
            array("i8", [[1, 2, 3], [-4, 0, 1]]),
            row(1, 0.5),
            out=array("f32", [[761, 129]]),
            note="the range is 255 wide: exact",
        ),
        example(np.zeros((2, 3), np.float32), whole(9, 2, 3, dtype="i8"), positive(2), row(1, -2), note="only zeros"),
    ],
    "embedding": lambda: [
        example(normal(5, 3), whole(5, 2, 2)),
        example(_TABLE, row(-1, 7, dtype="i32"), out=_TABLE[[0, 2]], note="outside: the nearest row"),
        example(_TABLE, np.zeros((0, 2), np.int64), out=np.zeros((0, 2, 2), np.float32)),
    ],
    "one_hot": lambda: [
        example(row(1, 0, dtype="i64"), depth=3, dtype="f32", out=array("f32", [[0, 1, 0], [1, 0, 0]])),
        example(row(1, 0, dtype="i32"), depth=2, axis=0, dtype="i8", out=array("i8", [[0, 1], [1, 0]])),
        example(row(-1, 3, dtype="i8"), depth=3, dtype="f32", out=np.zeros((2, 3), np.float32), note="outside: zeros"),
        example(
            row(3, dtype="u8"),
            depth=300,
            dtype="bool",
            out=(np.arange(300) == 3)[None],
            note="more classes than u8 holds",
        ),
    ],
    "take": lambda: [
        example(normal(3, 4, 2), whole(4, 2, 3), axis=1),
        example(_TABLE, row(-1, 7, dtype="i32"), axis=0, out=_TABLE[[0, 2]]),
        example(_TABLE, row(-1, 4, dtype="i32"), axis=0, mode="wrap", out=_TABLE[[2, 1]]),
        example(
            _TABLE,
            row(-1, 3, -4, dtype="i64"),
            axis=0,
            mode="fill",
            out=array("f32", [[5, 6], [NAN, NAN], [NAN, NAN]]),
        ),
        example(_TABLE, array("i32", 1), axis=-1, out=row(2, 4, 6), note="a scalar index takes the axis away"),
    ],
    "take_along_axis": lambda: [
        example(normal(3, 4), whole(4, 3, 2), axis=1),
        example(
            _TABLE,
            row(-1, 0, dtype="i32").reshape(1, 2),
            axis=0,
            out=array("f32", [[5, 2]]),
            note="negative: from the end",
        ),
        example(
            _TABLE,
            row(1, dtype="i32").reshape(1, 1),
            axis=1,
            out=array("f32", [[2], [4], [6]]),
            note="size 1 is broadcast",
        ),
    ],
    "tril": lambda: [
        example(normal(2, 3, 4)),
        example(array("f32", [[1, NAN], [3, 4]]), out=array("f32", [[1, 0], [3, 4]]), note="NaN is cut off"),
        example(whole(9, 3, 3), diagonal=-3, out=np.zeros((3, 3), np.int64)),
        example(whole(9, 2, 3), diagonal=2, out=whole(9, 2, 3)),
    ],
    "triu": lambda: [
        example(normal(2, 3, 4), diagonal=1),
        example(array("f32", [[1, 2], [NAN, 4]]), out=array("f32", [[1, 2], [0, 4]])),
    ],
    "roll": lambda: [
        example(row(1, 2, 3), shifts=(1,), axes=(0,), out=row(3, 1, 2)),
        example(row(1, 2, 3), shifts=(-4,), axes=(-1,), out=row(2, 3, 1)),
        example(
            array("f32", [[1, 2], [3, 4]]), shifts=(1,), axes=(), out=array("f32", [[4, 1], [2, 3]]), note="as one row"
        ),
        example(array("f32", [[1, 2], [3, 4]]), shifts=(1, 1), axes=(0, 1), out=array("f32", [[4, 3], [2, 1]])),
        example(EMPTY, shifts=(1,), axes=(0,), out=EMPTY),
    ],
    "tile": lambda: [
        example(row(1, 2), repeats=(2,), out=row(1, 2, 1, 2)),
        example(row(1, 2), repeats=(2, 1), out=array("f32", [[1, 2], [1, 2]])),
        example(array("i32", [[1], [2]]), repeats=(3,), out=array("i32", [[1] * 3, [2] * 3])),
        example(row(1, 2), repeats=(0,), out=row()),
        example(array("f32", 5), repeats=(), out=array("f32", 5)),
    ],
    "repeat": lambda: [
        example(row(1, 2), repeats=2, axis=0, out=row(1, 1, 2, 2)),
        example(normal(2, 3), repeats=3, axis=-1),
        example(row(1, 2), repeats=0, axis=0, out=row()),
    ],
}

EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    **ACTIVATIONS,
    **STATISTICS,
    **NORMS,
    **_PRODUCTS,
    **_POOLS,
    **_LAYERS,
    **_RANDOM,
    **_REST,
}
