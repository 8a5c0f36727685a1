"""Runnable examples of the random ops; values told are those of jax.random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

_IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
_HALF = [0, 42]
_KEYS = {"threefry2x32": _HALF, "rbg": _HALF * 2, "unsafe_rbg": _HALF * 2}  # of seed 42
_SPLIT = [[1832780943, 270669613], [64467757, 2916123636]]
_SPLITS = {
    "threefry2x32": _SPLIT,
    "rbg": [word * 2 for word in _SPLIT],
    "unsafe_rbg": [
        [2620864722, 2991908441, 282133475, 2589630650],
        [4105776319, 298289174, 864345282, 274752888],
    ],
}
_FOLD = [2547012911, 1371500959]
_FOLDS = {
    "threefry2x32": _FOLD,
    "rbg": _FOLD * 2,
    "unsafe_rbg": [2104303640, 250182049, 1106406590, 1983638428],
}
_PHILOX = {
    "u8": [210, 89, 227],
    "u16": [14546, 58969, 995],
    "u32": [2620864722, 2991908441, 282133475],
    "u64": [12850148909342210258, 11122378950751355875, 4595359157297867242],
}
_THREEFRY = {
    "u8": [162, 217, 249],
    "u16": [5026, 12505, 63993],
    "u32": [2098992034, 2919706841, 2646866425],
    "u64": [7871734211187709741, 276886910877598708, 10591095138341673235],
}


def _keyed(impl: str, *inputs: np.ndarray, **attrs: Any) -> Example:
    return example(array("u32", _KEYS[impl]), *inputs, key_impl=impl, **attrs)


def _seed() -> list[Example]:
    told = [
        ("i64", 42, [0, 42]),
        ("i64", 2**40 + 3, [256, 3]),
        ("i64", -1, [2**32 - 1] * 2),
        ("i32", -1, [0, 2**32 - 1]),
        ("u32", 2**32 - 1, [0, 2**32 - 1]),
        ("u8", 200, [0, 200]),
    ]
    return [
        *[example(array(d, s), out=array("u32", o), impl="threefry2x32") for d, s, o in told],
        *[example(array("i64", 42), out=array("u32", _KEYS[impl]), impl=impl) for impl in _IMPLS[1:]],
    ]


def _wrap() -> list[Example]:
    return [example(x := array("u32", _KEYS[impl]), out=x, impl=impl) for impl in _IMPLS] + [
        example(array("u32", _SPLIT), out=array("u32", _SPLIT), impl="threefry2x32", note="two keys")
    ]


def _unwrap() -> list[Example]:
    return [_keyed(impl, out=array("u32", _KEYS[impl])) for impl in _IMPLS]


def _split() -> list[Example]:
    return [
        *[_keyed(impl, out=array("u32", _SPLITS[impl]), shape=(2,)) for impl in _IMPLS],
        _keyed("threefry2x32", out=array("u32", _SPLIT[0]), shape=(), note="one key"),
        _keyed("threefry2x32", out=array("u32", np.zeros((0, 2))), shape=(0,), note="no key"),
        *[_keyed(impl, shape=(2, 3)) for impl in _IMPLS],
        example(array("u32", _SPLIT), key_impl="threefry2x32", shape=(3,), note="from each of two keys"),
    ]


def _fold_in() -> list[Example]:
    return [
        *[_keyed(impl, array("u32", 7), out=array("u32", _FOLDS[impl])) for impl in _IMPLS],
        example(array("u32", _SPLIT), array("u32", 1), key_impl="threefry2x32", note="each of two keys"),
        example(array("u32", _SPLIT), array("u32", [1, 2]), key_impl="threefry2x32", note="a number for each"),
    ]


def _bits() -> list[Example]:
    told = {"threefry2x32": _THREEFRY, "rbg": _PHILOX, "unsafe_rbg": _PHILOX}
    return [
        *[
            _keyed(impl, out=array(d, values), shape=(3,), dtype=d)
            for impl, by_dtype in told.items()
            for d, values in by_dtype.items()
        ],
        _keyed("threefry2x32", out=array("u32", _THREEFRY["u32"][0]), shape=(), dtype="u32", note="a scalar"),
        _keyed("threefry2x32", out=array("u32", np.zeros((2, 0))), shape=(2, 0), dtype="u32", note="nothing"),
        _keyed("threefry2x32", shape=(3, 5), dtype="u16"),
        example(array("u32", _SPLIT), key_impl="threefry2x32", shape=(4,), dtype="u32", note="for each of two keys"),
    ]


def _threefry() -> list[Example]:
    def words(*values: int) -> list[np.ndarray]:
        return [array("u32", [v]) for v in values]

    # The known answers published with the reference implementation.
    told = [
        ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    return [example(*words(*x), out=tuple(words(*y))) for x, y in told]


def _generator() -> list[Example]:
    narrow, wide = array("u32", [1, 2, 3, 4]), array("u64", [1, 2**64 - 1])
    told = [
        ("philox", narrow, [1, 2, 5, 4], "u32", [512747620, 1298009047, 1267190206, 761827841, 1383286907]),
        ("philox", wide, [1, 1], "u64", [2799744913794548913, 15652314161293592793, 10154990248698053839]),
        ("three_fry", narrow, [1, 2, 6, 4], "u32", [1576285164, 2249660814, 740599976, 2425682526, 2436392515]),
        ("three_fry", wide, [1, 2], "u64", [5935036730470049944, 10874829180423743482, 3280001176275675250]),
    ]
    return [
        *[
            example(
                state, out=(array(state.dtype, after), array(d, bits)), shape=(len(bits),), dtype=d, algorithm=algorithm
            )
            for algorithm, state, after, d, bits in told
        ],
        example(narrow, out=(narrow, array("u32", [])), shape=(0,), dtype="u32", algorithm="philox", note="nothing"),
        *[example(narrow, shape=(3, 5), dtype=d, algorithm="default") for d in ("u8", "u16")],
        example(narrow, shape=(5, 7, 3), dtype="u32", algorithm="three_fry", note="no even axis"),
    ]


def _gamma() -> list[Example]:
    plain = [0.19865354933259452, 1.4213185612322232, 28.2123291739037]
    logs = [-1.6161929296141218, 0.351585005012126, 3.3397590871462777]
    return [
        _keyed("threefry2x32", array("f64", [0.5, 2, 20]), out=array("f64", plain), log_space=False),
        _keyed("threefry2x32", array("f32", [0.5, 2, 20]), log_space=False),
        _keyed("threefry2x32", array("f64", [0.5, 2, 20]), out=array("f64", logs), log_space=True),
        _keyed("threefry2x32", array("f32", []), out=array("f32", []), log_space=False, note="nothing"),
        _keyed("rbg", array("f64", [0.5, 2, 20]), log_space=False),
    ]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "rng_seed": _seed,
    "rng_wrap": _wrap,
    "rng_unwrap": _unwrap,
    "rng_split": _split,
    "rng_fold_in": _fold_in,
    "rng_bits": _bits,
    "threefry2x32": _threefry,
    "rng_bit_generator": _generator,
    "random_gamma": _gamma,
}
