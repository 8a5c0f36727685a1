"""Every composite's decomposition, on the reference table, against torch.nn.functional and jax.

Rows that a table may have for composites are left out: it is the decomposition that is tested. Each
case is run with known sizes in several dtypes, and again with a symbolic batch at two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.dtypes import dtype
from unigraph.errors import TypeCheckError
from unigraph.evaluate import Program
from unigraph.graph import Graph
from unigraph.opdef import registry
from unigraph.runtime.numpy.table import TABLE, NumpyTable
from unigraph.tolerances import difference

BARE = NumpyTable({op: row for op, row in TABLE.rows.items() if not op.is_composite})
SHORT = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}


def build(
    name: str, arrays: list[np.ndarray], attrs: dict[str, Any], shapes: list[tuple[Any, ...]] | None = None
) -> Graph:
    """A graph of one composite over inputs like ``arrays``, with symbolic ``shapes`` if given."""
    b = GraphBuilder(name)
    values = [b.input(f"x{i}", dtype(a.dtype), shapes[i] if shapes else a.shape) for i, a in enumerate(arrays)]
    result = b.apply(registry()[name], values, attrs)
    return b.build(result if isinstance(result, tuple) else (result,))


def run(name: str, arrays: list[np.ndarray], **attrs: Any) -> tuple[np.ndarray, ...]:
    return Program(build(name, arrays, attrs), BARE).run(arrays)


def to_torch(a: np.ndarray) -> torch.Tensor:
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(a.copy())


def to_numpy(t: torch.Tensor) -> np.ndarray:
    if t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.detach().numpy()


def agree(actual: tuple[np.ndarray, ...], expected: Any, rounds: float) -> None:
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected)):
        reason = difference(a, to_numpy(e) if isinstance(e, torch.Tensor) else e, rounds)
        assert reason is None, f"output {i}: {reason}"


@dataclass(frozen=True)
class Case:
    """One call of a composite: inputs for a batch of n, attributes, and what torch makes of them."""

    name: str
    make: Callable[[np.random.Generator, int], list[np.ndarray]]
    torch: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("f32", "f64", "bf16", "f16")
    rounds: float = 1.0  # factor of the tolerance: about the number of roundings in a row


def normal(*shape: Any, spread: float = 1.0) -> Callable[[np.random.Generator, int], np.ndarray]:
    """A maker of normal numbers; "n" in the shape is the batch."""
    return lambda rng, n: (rng.standard_normal([n if s == "n" else s for s in shape]) * spread).astype(np.float32)


def positive(*shape: Any) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.uniform(0.1, 0.9, [n if s == "n" else s for s in shape]).astype(np.float32)


def whole(
    high: int, *shape: Any, low: int = 0, kind: Any = np.int64
) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.integers(low, high, [n if s == "n" else s for s in shape]).astype(kind)


def case(name: str, makers: list[Any], reference: Callable[..., Any], **options: Any) -> Case:
    keys = ("dtypes", "rounds")
    settings = {k: options.pop(k) for k in keys if k in options}
    return Case(name, lambda rng, n: [m(rng, n) for m in makers], reference, options, **settings)


X = normal("n", 4, 5, spread=3.0)
WIDE_ONLY = ("f32", "f64")

ACTIVATIONS = [
    case("relu", [X], F.relu),
    case("relu6", [X], F.relu6),
    case("silu", [X], F.silu),
    case("mish", [X], F.mish),
    case("softsign", [X], F.softsign),
    case("log_sigmoid", [X], F.logsigmoid),
    case("hardswish", [X], F.hardswish),
    case("selu", [X], F.selu),
    case("tanhshrink", [X], F.tanhshrink, dtypes=WIDE_ONLY),
    case(
        "quick_gelu", [X], lambda x: (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype), dtypes=("f32", "bf16")
    ),
    case("gelu", [X], F.gelu, rounds=2),
    case("gelu", [X], partial(F.gelu, approximate="tanh"), approximate="tanh", rounds=2),
    case("leaky_relu", [X], F.leaky_relu),
    case("leaky_relu", [X], partial(F.leaky_relu, negative_slope=0.2), negative_slope=0.2),
    case("elu", [X], partial(F.elu, alpha=1.3), alpha=1.3),
    case("celu", [X], partial(F.celu, alpha=0.7), alpha=0.7),
    case("softplus", [X], F.softplus),
    case("softplus", [X], partial(F.softplus, beta=2.0, threshold=3.0), beta=2.0, threshold=3.0),
    case("hardsigmoid", [X], F.hardsigmoid),
    case("hardtanh", [X], partial(F.hardtanh, min_val=-0.5, max_val=2.0), low=-0.5, high=2.0),
    case("softshrink", [X], partial(F.softshrink, lambd=0.3), lambd=0.3),
    case("hardshrink", [X], partial(F.hardshrink, lambd=0.3), lambd=0.3),
    case("threshold", [X], lambda x: F.threshold(x, 0.25, -7.0), threshold=0.25, value=-7.0),
    case("prelu", [X, normal(4)], F.prelu),
    case("prelu", [X, normal(1)], F.prelu),
    case("glu", [normal("n", 4, 6)], partial(F.glu, dim=-1), axis=-1),
    case("glu", [normal("n", 4, 6)], partial(F.glu, dim=1), axis=1),
    case("softmax", [X], partial(F.softmax, dim=-1), axis=-1),
    case("softmax", [X], partial(F.softmax, dim=0), axis=0),
    case("log_softmax", [X], partial(F.log_softmax, dim=1), axis=1),
    case(
        "logsumexp", [X], lambda x: torch.logsumexp(x.float(), (0, 2)).to(x.dtype), axes=(0, 2), dtypes=("f32", "bf16")
    ),
    case(
        "logsumexp", [X], lambda x: torch.logsumexp(x, (1,), keepdim=True), axes=(1,), keepdims=True, dtypes=WIDE_ONLY
    ),
]

STATISTICS = [
    case("mean", [X], lambda x: x.mean((0, 2)), axes=(0, 2)),
    case("mean", [X], lambda x: x.mean((-1,), keepdim=True), axes=(-1,), keepdims=True),
    case("var", [X], lambda x: x.var((0, 2), correction=1), axes=(0, 2), correction=1, rounds=2),
    case("var", [X], lambda x: x.var((1,), correction=0, keepdim=True), axes=(1,), keepdims=True, rounds=2),
    case("std", [X], lambda x: x.std((0, 1, 2), correction=1.5), axes=(0, 1, 2), correction=1.5, rounds=2),
    case("clip", [X], lambda x: x.clamp(-1, 0.5), low=-1.0, high=0.5),
    case("clip", [whole(9, "n", 3, low=-9)], lambda x: x.clamp(min=-2), low=-2),
    case("normalize", [X], partial(F.normalize, p=2.0, dim=1), axis=1, rounds=2),
    case("normalize", [X], partial(F.normalize, p=1.0, dim=-1), p=1.0, axis=-1, rounds=2),
    case("normalize", [X], partial(F.normalize, p=3.0, dim=0), p=3.0, axis=0, dtypes=WIDE_ONLY, rounds=2),
    case("normalize", [X], partial(F.normalize, p=float("inf"), dim=0), p=float("inf"), axis=0),
]


def _rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.double() * torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-6) * w.double()
    return y.to(x.dtype)


def _batch_norm_train(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, c: torch.Tensor) -> Any:
    m, v = m.clone(), v.clone()
    y = F.batch_norm(x, m, v, w, c, training=True, momentum=0.2, eps=1e-4)
    return y, m, v


IMAGE = normal("n", 6, 4, 5)
NORMS = [
    case(
        "layer_norm",
        [X, normal(5), normal(5)],
        lambda x, w, c: F.layer_norm(x, (5,), w, c),
        normalized_rank=1,
        rounds=4,
    ),
    case("layer_norm", [X], lambda x: F.layer_norm(x, (4, 5), eps=1e-3), normalized_rank=2, epsilon=1e-3, rounds=4),
    case("rms_norm", [X, normal(5)], _rms, normalized_rank=1, epsilon=1e-6, rounds=4),
    case("group_norm", [IMAGE, normal(6), normal(6)], lambda x, w, c: F.group_norm(x, 3, w, c), num_groups=3, rounds=4),
    case("group_norm", [normal("n", 6)], lambda x: F.group_norm(x, 2), num_groups=2, rounds=4),
    case(
        "instance_norm", [IMAGE, normal(6), normal(6)], lambda x, w, c: F.instance_norm(x, weight=w, bias=c), rounds=4
    ),
    case("batch_norm", [IMAGE, normal(6), positive(6), normal(6), normal(6)], F.batch_norm, rounds=4),
    case("batch_norm", [IMAGE, normal(6), positive(6)], F.batch_norm, rounds=4),
    case(
        "batch_norm_train",
        [IMAGE, normal(6), positive(6), normal(6), normal(6)],
        _batch_norm_train,
        epsilon=1e-4,
        momentum=0.2,
        rounds=4,
    ),
    case(
        "local_response_norm",
        [IMAGE],
        lambda x: F.local_response_norm(x, 3, 0.1, 0.6, 2.0),
        size=3,
        alpha=0.1,
        beta=0.6,
        k=2.0,
        dtypes=WIDE_ONLY,
    ),
    case("local_response_norm", [IMAGE], lambda x: F.local_response_norm(x, 4), size=4, dtypes=WIDE_ONLY),
]


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _rotate_half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2)


def _sdpa(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda *xs: F.scaled_dot_product_attention(*xs, **options)


Q, K, V = normal("n", 4, 5, 8), normal("n", 2, 6, 8), normal("n", 2, 6, 7)
FULL_K = normal("n", 4, 5, 8)
SAME = [Q, FULL_K, FULL_K]
MASK = lambda rng, n: (rng.random((n, 1, 5, 6)) > 0.4).astype(np.bool_)
ONLY_F32 = ("f32",)
PRODUCTS = [
    case("matmul", [normal("n", 3, 4), normal(4, 5)], torch.matmul, rounds=4),
    case("matmul", [normal("n", 3, 4), normal("n", 4, 5)], torch.matmul, rounds=4),
    case("matmul", [normal(7, 1, 3, 4), normal("n", 4, 5)], torch.matmul, dtypes=WIDE_ONLY, rounds=4),
    case("matmul", [normal(4), normal("n", 4, 5)], torch.matmul, dtypes=WIDE_ONLY, rounds=4),
    case("matmul", [normal("n", 3, 4), normal(4)], torch.matmul, dtypes=WIDE_ONLY, rounds=4),
    case("matmul", [normal(4), normal(4)], torch.matmul, dtypes=WIDE_ONLY, rounds=4),
    case("matmul", [whole(9, "n", 3), whole(9, 3, 2)], torch.matmul),
    case("linear", [normal("n", 3, 4), normal(5, 4), normal(5)], F.linear, rounds=8),
    case("linear", [normal("n", 4), normal(5, 4)], F.linear, rounds=4),
    case("linear", [normal("n", 4), normal(4)], F.linear, dtypes=WIDE_ONLY, rounds=4),
    *(
        case("einsum", makers, partial(torch.einsum, equation), equation=equation, dtypes=WIDE_ONLY, rounds=8)
        for equation, makers in [
            ("bij,bjk->bik", [normal("n", 3, 4), normal("n", 4, 5)]),
            ("ij,jk", [normal("n", 3), normal(3, 2)]),
            ("...ij,...jk->...ik", [normal("n", 2, 3, 4), normal(2, 4, 5)]),
            ("ii->i", [normal(4, 4)]),
            ("ii", [normal(4, 4)]),
            ("bii->b", [normal("n", 4, 4)]),
            ("i,j->ij", [normal("n"), normal(3)]),
            ("i,j->ji", [normal("n"), normal(3)]),
            ("ij->", [normal("n", 3)]),
            ("ba", [normal("n", 3)]),
            ("bhqd,bhkd->bhqk", [normal("n", 2, 3, 4), normal("n", 2, 5, 4)]),
            ("ij,jk,kl->il", [normal("n", 3), normal(3, 4), normal(4, 2)]),
            ("bn,anm,bm->ba", [normal("n", 3), normal(5, 3, 4), normal("n", 4)]),
            ("ij,ij->ij", [normal("n", 3), normal(1, 3)]),
            ("ij,kj->ik", [normal("n", 1), normal(2, 3)]),
        ]
    ),
    case("attention", SAME, _sdpa(), rounds=4),
    case("attention", SAME, _sdpa(is_causal=True), is_causal=True, rounds=4),
    case("attention", [Q, K, V, MASK], _sdpa(enable_gqa=True), dtypes=ONLY_F32, rounds=4),
    case(
        "attention",
        [Q, K, V, normal(5, 6)],
        lambda q, k, v, m: _sdpa(attn_mask=m, enable_gqa=True, scale=0.3)(q, k, v),
        scale=0.3,
        dtypes=WIDE_ONLY,
        rounds=4,
    ),
    case("attention", [normal("n", 5, 8), normal("n", 6, 8), normal("n", 6, 8)], _sdpa(), dtypes=WIDE_ONLY, rounds=4),
    case("attention", [normal("n", 8), normal(6, 8), normal(6, 8)], _sdpa(), dtypes=WIDE_ONLY, rounds=4),
    case("rotary_embedding", [normal("n", 3, 8), normal(3, 4), normal(3, 4)], _rotated, dtypes=WIDE_ONLY),
    case("rotary_embedding", [normal("n", 3, 8), normal(3, 8), normal(3, 8)], _rotate_half, dtypes=WIDE_ONLY),
    case(
        "rotary_embedding",
        [normal("n", 3, 8), normal(3, 4), normal(3, 4)],
        _interleaved,
        interleaved=True,
        dtypes=WIDE_ONLY,
    ),
]


def _conv(x: torch.Tensor, w: torch.Tensor, c: torch.Tensor | None = None, **o: Any) -> torch.Tensor:
    return [F.conv1d, F.conv2d, F.conv3d][x.ndim - 3](x, w, c, **o)


def _conv_t(x: torch.Tensor, w: torch.Tensor, c: torch.Tensor | None = None, **o: Any) -> torch.Tensor:
    return [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][x.ndim - 3](x, w, c, **o)


CONVOLUTIONS = [
    case(
        "conv",
        [normal("n", 4, 7), normal(6, 4, 3), normal(6)],
        _conv,
        strides=[1],
        low=[0],
        high=[0],
        dilation=[1],
        rounds=8,
    ),
    case(
        "conv",
        [normal("n", 4, 7, 8), normal(6, 2, 3, 2), normal(6)],
        partial(_conv, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        strides=[2, 1],
        low=[1, 2],
        high=[1, 2],
        dilation=[1, 2],
        groups=2,
        dtypes=WIDE_ONLY,
        rounds=8,
    ),
    case(
        "conv",
        [normal("n", 2, 4, 5, 4), normal(3, 2, 2, 2, 2)],
        _conv,
        strides=[1] * 3,
        low=[0] * 3,
        high=[0] * 3,
        dilation=[1] * 3,
        dtypes=WIDE_ONLY,
        rounds=8,
    ),
    case(
        "conv_transpose",
        [normal("n", 4, 5), normal(4, 3, 3), normal(3)],
        partial(_conv_t, stride=2, padding=1, output_padding=1),
        strides=[2],
        low=[1],
        high=[1],
        output_padding=[1],
        dilation=[1],
        dtypes=WIDE_ONLY,
        rounds=8,
    ),
    case(
        "conv_transpose",
        [normal("n", 4, 5, 4), normal(4, 3, 3, 2), normal(6)],
        partial(_conv_t, stride=(2, 3), padding=(1, 0), output_padding=(0, 2), dilation=(2, 1), groups=2),
        strides=[2, 3],
        low=[1, 0],
        high=[1, 0],
        output_padding=[0, 2],
        dilation=[2, 1],
        groups=2,
        dtypes=WIDE_ONLY,
        rounds=8,
    ),
]

SQUARE = normal("n", 2, 7, 9)
POOLS = [
    case(
        "max_pool",
        [SQUARE],
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2)),
        kernel=[3, 2],
        strides=[2, 1],
        low=[1, 0],
        high=[1, 0],
        dilation=[1, 2],
    ),
    case(
        "max_pool",
        [normal("n", 2, 8)],
        lambda x: F.max_pool1d(x, 3, 2, 0, ceil_mode=True),
        kernel=[3],
        strides=[2],
        low=[0],
        high=[1],
        dilation=[1],
    ),
    case(
        "avg_pool", [SQUARE], lambda x: F.avg_pool2d(x, (3, 2)), kernel=[3, 2], strides=[3, 2], low=[0, 0], high=[0, 0]
    ),
    case(
        "avg_pool",
        [SQUARE],
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        kernel=[3, 3],
        strides=[2, 2],
        low=[1, 1],
        high=[1, 1],
        count_include_pad=False,
    ),
    *(
        case(
            "avg_pool",
            [normal("n", 2, 8, 9)],
            lambda x, include=include, divisor=divisor: F.avg_pool2d(
                x, 3, 2, 1, ceil_mode=True, count_include_pad=include, divisor_override=divisor
            ),
            kernel=[3, 3],
            strides=[2, 2],
            low=[1, 1],
            high=[2, 1],
            ceil_extra=[1, 0],
            count_include_pad=include,
            divisor=divisor,
        )
        for include, divisor in [(True, None), (False, None), (True, 5)]
    ),
    case("adaptive_avg_pool", [SQUARE], lambda x: F.adaptive_avg_pool2d(x, (3, 4)), output_size=(3, 4)),
    case("adaptive_avg_pool", [SQUARE], lambda x: F.adaptive_avg_pool2d(x, (1, 3)), output_size=(1, 3)),
    case("adaptive_avg_pool", [SQUARE], lambda x: F.adaptive_avg_pool2d(x, (9, 12)), output_size=(9, 12)),
    case(
        "adaptive_avg_pool",
        [normal(2, 3, "n")],
        lambda x: F.adaptive_avg_pool1d(x, 4),
        output_size=(4,),
        dtypes=WIDE_ONLY,
    ),
    case("adaptive_max_pool", [SQUARE], lambda x: F.adaptive_max_pool2d(x, (3, 4)), output_size=(3, 4)),
    case(
        "adaptive_max_pool",
        [normal(2, 3, "n")],
        lambda x: F.adaptive_max_pool1d(x, 2),
        output_size=(2,),
        dtypes=WIDE_ONLY,
    ),
    case("pixel_shuffle", [normal("n", 8, 3, 2)], lambda x: F.pixel_shuffle(x, 2), factor=2),
    case("pixel_unshuffle", [normal("n", 2, 6, 3)], lambda x: F.pixel_unshuffle(x, 3), factor=3),
]


def resize_cases() -> list[Case]:
    found = []
    for old, new in [((5, 7), (8, 4)), ((4, 6), (8, 3)), ((3, 3), (3, 9)), ((9, 10), (4, 3)), ((5, 4), (1, 2))]:
        add = lambda reference, mode, image=normal("n", 2, *old), new=new, **o: found.append(
            case("resize", [image], reference, shape=new, mode=mode, rounds=4, dtypes=("f32", "f64", "bf16"), **o)
        )
        add(partial(F.interpolate, size=new, mode="nearest"), "nearest", coordinates="asymmetric")
        add(partial(F.interpolate, size=new, mode="nearest-exact"), "nearest", nearest="round_prefer_ceil")
        for mode, ours in (("bilinear", "linear"), ("bicubic", "cubic")):
            add(partial(F.interpolate, size=new, mode=mode), ours)
            add(partial(F.interpolate, size=new, mode=mode, align_corners=True), ours, coordinates="align_corners")
            smooth = partial(F.interpolate, size=new, mode=mode, antialias=True)
            found.append(
                case(
                    "resize",
                    [normal("n", 2, *old)],
                    smooth,
                    shape=new,
                    mode=ours,
                    antialias=True,
                    cubic_coeff=-0.5,
                    dtypes=ONLY_F32,
                    rounds=8,
                )
            )
    for mode, ours in (("linear", "linear"), ("nearest", "nearest")):
        found.append(
            case(
                "resize",
                [normal(2, 2, 7)],
                partial(F.interpolate, scale_factor=1.6, mode=mode, recompute_scale_factor=False),
                shape=(11,),
                mode=ours,
                coordinates="half_pixel" if ours == "linear" else "asymmetric",
                scales=[1.6],
                dtypes=ONLY_F32,
                rounds=4,
            )
        )
    # A symbolic axis that is resampled.
    for antialias in (False, True):
        found.append(
            case(
                "resize",
                [normal(1, 2, "n", 4)],
                partial(F.interpolate, size=(6, 3), mode="bilinear", antialias=antialias),
                shape=(6, 3),
                mode="linear",
                antialias=antialias,
                dtypes=ONLY_F32,
                rounds=8,
            )
        )
    return found


def _layer(
    kind: type, x: torch.Tensor, states: Any, *parameters: torch.Tensor, reverse: bool = False, **options: Any
) -> Any:
    """One torch layer with given parameters; reversed by turning time round."""
    h = states[0].shape[-1]
    layer = kind(x.shape[-1], h, bias=len(parameters) == 4, dtype=x.dtype, **options)
    layer._flat_weights = [torch.nn.Parameter(p) for p in parameters]
    first = tuple(s[None] for s in states)
    with torch.no_grad():
        ys, final = layer(x.flip(0) if reverse else x, first if len(first) > 1 else first[0])
    final = final if isinstance(final, tuple) else (final,)
    return (ys.flip(0) if reverse else ys, *(f[0] for f in final))


def recurrent_cases() -> list[Case]:
    found = []
    for reverse in (False, True):
        for biased in (True, False):
            for name, kind, gates, states in (
                ("lstm", torch.nn.LSTM, 4, 2),
                ("gru", torch.nn.GRU, 3, 1),
                ("rnn", torch.nn.RNN, 1, 1),
            ):
                rows = 3 * gates
                makers = [normal(4, "n", 2), *[normal("n", 3)] * states, normal(rows, 2), normal(rows, 3)]
                makers += [normal(rows)] * 2 if biased else []

                def reference(
                    x: Any, *rest: Any, kind: Any = kind, states: int = states, reverse: bool = reverse
                ) -> Any:
                    return _layer(kind, x, rest[:states], *rest[states:], reverse=reverse)

                found.append(case(name, makers, reference, reverse=reverse, dtypes=WIDE_ONLY, rounds=8))
    makers = [normal(4, "n", 2), normal("n", 3), normal(3, 2), normal(3, 3)]
    found.append(
        case(
            "rnn",
            makers,
            lambda x, h, *w: _layer(torch.nn.RNN, x, (h,), *w, nonlinearity="relu"),
            nonlinearity="relu",
            dtypes=WIDE_ONLY,
            rounds=8,
        )
    )
    found.append(
        case(
            "gru",
            [normal("n", 2, 2), normal(2, 3), normal(9, 2), normal(9, 3)],
            lambda x, h, *w: _layer(torch.nn.GRU, x, (h,), *w),
            dtypes=ONLY_F32,
            rounds=8,
        )
    )
    return found


def loss_cases() -> list[Case]:
    found = []
    logits, target = normal("n", 5, 3), whole(5, "n", 3)
    pair = [normal("n", 4), normal("n", 4)]
    probabilities = [positive("n", 4), positive("n", 4)]
    for reduction in ("mean", "sum", "none"):
        add = lambda name, makers, f, reduction=reduction, **o: found.append(
            case(name, makers, partial(f, reduction=reduction), reduction=reduction, rounds=4, **o)
        )
        add("cross_entropy", [logits, target], F.cross_entropy)
        add(
            "cross_entropy",
            [logits, target],
            partial(F.cross_entropy, ignore_index=2, label_smoothing=0.3),
            ignore_index=2,
            label_smoothing=0.3,
        )
        add("nll_loss", [logits, target], partial(F.nll_loss, ignore_index=1), ignore_index=1)
        add("mse_loss", pair, F.mse_loss)
        add("l1_loss", pair, F.l1_loss)
        add("smooth_l1_loss", pair, partial(F.smooth_l1_loss, beta=0.5), beta=0.5)
        add("huber_loss", pair, partial(F.huber_loss, delta=0.7), delta=0.7)
        add("bce_loss", probabilities, F.binary_cross_entropy, dtypes=WIDE_ONLY)
        add("bce_with_logits", [pair[0], probabilities[1]], F.binary_cross_entropy_with_logits, dtypes=WIDE_ONLY)
        add("kl_div", probabilities, F.kl_div, dtypes=WIDE_ONLY)
        add("kl_div", probabilities, partial(F.kl_div, log_target=True), log_target=True, dtypes=WIDE_ONLY)
    found.append(
        case("kl_div", probabilities, partial(F.kl_div, reduction="batchmean"), reduction="batchmean", dtypes=WIDE_ONLY)
    )
    found.append(case("cross_entropy", [normal(5), whole(5)], F.cross_entropy, dtypes=ONLY_F32))
    return found


INDEXED = [
    case("embedding", [normal(6, 3), whole(6, "n", 2)], lambda w, i: F.embedding(i, w)),
    case("one_hot", [whole(5, "n", 2)], lambda i: F.one_hot(i, 5), depth=5, dtype="i64"),
    case("one_hot", [whole(5, "n", 2)], lambda i: F.one_hot(i, 5).movedim(-1, 0).float(), depth=5, axis=0, dtype="f32"),
    case("take", [normal(3, 6, 2), whole(6, "n", 2)], lambda x, i: x[:, i], axis=1),
    case("take", [normal("n", 6), whole(6, 4, low=-6)], lambda x, i: x[:, i], axis=1, mode="wrap"),
    case("take", [normal("n", 6), whole(6, 4, low=-6)], lambda x, i: x[:, i], axis=-1, mode="fill"),
    case("take_along_axis", [normal("n", 6, 2), whole(6, "n", 3, 2)], lambda x, i: x.gather(1, i), axis=1),
    case(
        "take_along_axis",
        [normal("n", 6), whole(6, 1, 3, low=-6)],
        lambda x, i: torch.take_along_dim(x, i % 6, 1),
        axis=1,
    ),
    case("tril", [normal("n", 4, 5)], torch.tril),
    case("tril", [normal(3, "n")], partial(torch.tril, diagonal=1), diagonal=1),
    case("triu", [normal("n", 4, 5)], partial(torch.triu, diagonal=-2), diagonal=-2),
    case("roll", [normal("n", 4)], lambda x: x.roll((2, -1), (0, 1)), shifts=(2, -1), axes=(0, 1)),
    case("roll", [normal("n", 4)], lambda x: x.roll(3), shifts=(3,), axes=()),
    case("tile", [normal("n", 2)], lambda x: x.tile((2, 3)), repeats=(2, 3)),
    case("tile", [normal("n", 2)], lambda x: x.tile((2, 1, 3)), repeats=(2, 1, 3)),
    case("tile", [normal("n", 2)], lambda x: x.tile((3,)), repeats=(3,)),
    case("repeat", [normal("n", 2)], lambda x: x.repeat_interleave(3, 0), repeats=3, axis=0),
    case("repeat", [normal("n", 2)], lambda x: x.repeat_interleave(2, 1), repeats=2, axis=-1),
]

CASES = [
    *ACTIVATIONS,
    *STATISTICS,
    *NORMS,
    *PRODUCTS,
    *CONVOLUTIONS,
    *POOLS,
    *resize_cases(),
    *recurrent_cases(),
    *loss_cases(),
    *INDEXED,
]
IDS = [f"{c.name}-{i}" for i, c in enumerate(CASES)]


def _as(array: np.ndarray, kind: str) -> np.ndarray:
    return array.astype(dtype(kind).numpy) if array.dtype == np.float32 else array


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_against_torch(case: Case) -> None:
    for kind in case.dtypes:
        arrays = [_as(a, kind) for a in case.make(np.random.default_rng(0), 3)]
        agree(run(case.name, arrays, **case.attrs), case.torch(*map(to_torch, arrays)), case.rounds)


def _shapes(small: list[np.ndarray], large: list[np.ndarray]) -> list[tuple[Any, ...]]:
    """Shapes with the symbol ``batch`` wherever the two sizes 3 and 5 of it show."""
    return [
        tuple(s if s == t else dims.parse("batch") * (s // 3) for s, t in zip(a.shape, b.shape))
        for a, b in zip(small, large)
    ]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_symbolic_batch(case: Case) -> None:
    small, large = (case.make(np.random.default_rng(1), n) for n in (3, 5))
    shapes = _shapes(small, large)
    if all(all(map(dims.is_static, s)) for s in shapes):
        pytest.skip("no batch")
    program = Program(build(case.name, small, case.attrs, shapes), BARE)
    for arrays in (small, large):
        agree(program.run(arrays), case.torch(*map(to_torch, arrays)), case.rounds)


# -- random distributions, against jax.random ----------------------------------------------------

SEED = 7
_RANDOM: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    ("random_uniform", {}, lambda r, k, s, d: r.uniform(k, s, d)),
    ("random_uniform", {"low": -2.0, "high": 3.0}, lambda r, k, s, d: r.uniform(k, s, d, -2.0, 3.0)),
    ("random_normal", {}, lambda r, k, s, d: r.normal(k, s, d)),
    ("random_exponential", {}, lambda r, k, s, d: r.exponential(k, s, d)),
    ("random_gumbel", {}, lambda r, k, s, d: r.gumbel(k, s, d)),
    ("random_truncated_normal", {"low": -1.0, "high": 2.5}, lambda r, k, s, d: r.truncated_normal(k, -1.0, 2.5, s, d)),
]
# Uniform in [0, 1) is equal bit for bit. XLA contracts `u * width + low` to one rounding, NumPy has two, and
# logarithms and erf_inv may round otherwise too.
EXACT = ("random_uniform", {})


def _draw(name: str, shape: tuple[Any, ...], sizes: list[int] | None = None, **attrs: Any) -> list[np.ndarray]:
    """The draws of a distribution for key `SEED`: one for a known shape, else one for each batch size."""
    import jax

    words = np.asarray(jax.random.key_data(jax.random.key(SEED)))
    b = GraphBuilder(name)
    key = b.key()
    x = b.input("x", "f32", ("batch",)) if sizes else None
    graph = b.build((b.apply(registry()[name], [key], {"shape": shape, **attrs}),))
    program = Program(graph, BARE)
    if x is None:
        return [program.run([words])[0]]
    return [program.run([words, np.zeros(n, np.float32)])[0] for n in sizes]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(("name", "attrs", "theirs"), _RANDOM, ids=[f"{r[0]}-{i}" for i, r in enumerate(_RANDOM)])
def test_random_against_jax(name: str, attrs: dict[str, Any], theirs: Callable[..., Any], kind: str) -> None:
    import jax

    with jax.enable_x64(True):
        expected = np.asarray(theirs(jax.random, jax.random.key(SEED), (5, 7), dtype(kind).numpy))
    (actual,) = _draw(name, (5, 7), dtype=kind, **attrs)
    if (name, attrs) == EXACT:
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))
    assert difference(actual, expected, 2) is None


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_randint_against_jax(kind: str) -> None:
    import jax

    info = np.iinfo(dtype(kind).numpy)
    for low, high in [
        (0, 10),
        (3, 120),
        (5, 5),
        (9, 2),
        (info.min, info.max),
        (-5, 100),
        (7, int(info.max) + 1),
        (int(info.min), int(info.max) + 1),
    ]:
        if not -(2**63) <= low < 2**63 or not -(2**63) <= high < 2**63 or (kind[0] == "u" and low < 0):
            continue
        with jax.enable_x64(True):
            expected = np.asarray(jax.random.randint(jax.random.key(SEED), (40,), low, high, dtype(kind).numpy))
        (actual,) = _draw("random_randint", (40,), dtype=kind, low=int(low), high=int(high))
        np.testing.assert_array_equal(actual, expected, err_msg=f"{low}, {high}")


def test_bernoulli_and_dropout_against_jax() -> None:
    import jax

    key = jax.random.key(SEED)
    for p in (0.0, 0.3, 0.9, 1.0):
        (actual,) = _draw("random_bernoulli", (50,), p=p)
        np.testing.assert_array_equal(actual, np.asarray(jax.random.bernoulli(key, p, (50,))))
    b = GraphBuilder()
    x, k = b.input("x", "f32", ("batch", 4)), b.key()
    program = Program(b.build((b.dropout(x, k, rate=0.4),)), BARE)
    for n in (3, 6):
        data = np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)
        kept = np.asarray(jax.random.bernoulli(key, 1 - 0.4, (n, 4)))
        (actual,) = program.run([data, np.asarray(jax.random.key_data(key))])
        assert difference(actual, np.where(kept, data / np.float32(0.6), np.float32(0))) is None


def test_random_shapes_may_be_symbolic() -> None:
    import jax

    for n, actual in zip((3, 4), _draw("random_uniform", ("batch", 2), [3, 4], dtype="f32")):
        np.testing.assert_array_equal(actual, np.asarray(jax.random.uniform(jax.random.key(SEED), (n, 2), "float32")))


def test_keys_may_be_batched() -> None:
    import jax

    keys = jax.random.split(jax.random.key(SEED), 3)
    b = GraphBuilder()
    k = b.key(shape=(3,))
    graph = b.build(
        (b.random_normal(k, shape=(4,), dtype="f32"), b.random_randint(k, shape=(4,), dtype="i32", low=0, high=99))
    )
    normal_, whole_ = Program(graph, BARE).run([np.asarray(jax.random.key_data(keys))])
    assert difference(normal_, np.asarray(jax.vmap(lambda q: jax.random.normal(q, (4,)))(keys))) is None
    np.testing.assert_array_equal(whole_, np.asarray(jax.vmap(lambda q: jax.random.randint(q, (4,), 0, 99))(keys)))


# -- quantisation, against torch -----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "torch_kind"), [("i8", torch.qint8), ("u8", torch.quint8)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_against_torch(kind: str, torch_kind: Any, axis: int | None) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 4)) * 20).astype(np.float32)
    if axis is None:
        scale, zero = np.float32(0.25), np.int32(3)
        q = torch.quantize_per_tensor(to_torch(x), 0.25, 3, torch_kind)
    else:
        scale, zero = np.array([0.25, 0.5, 0.125, 1], np.float32), np.array([1, 0, 3, 5], np.int32)
        q = torch.quantize_per_channel(to_torch(x), to_torch(scale).double(), to_torch(zero), axis % 2, torch_kind)
    (ours,) = run("quantize", [x, np.asarray(scale), np.asarray(zero)], axis=axis, dtype=kind)
    np.testing.assert_array_equal(ours, q.int_repr().numpy())
    (real,) = run("dequantize", [ours, np.asarray(scale), np.asarray(zero)], axis=axis, dtype="f32")
    assert difference(real, q.dequantize().numpy()) is None


def test_quantize_narrow_kinds() -> None:
    x = np.array([-1000, -3.5, -0.5, 0.5, 1.5, 2.5, 1000, np.nan], np.float32)
    one, zero = np.float32(1), np.int32(0)
    (four,) = run("quantize", [x, np.asarray(one), np.asarray(zero)], dtype="i4")
    np.testing.assert_array_equal(four.astype(np.int8), [-8, -4, 0, 0, 2, 2, 7, 0])
    (eight,) = run("quantize", [x, np.asarray(one), np.asarray(zero)], dtype="f8e4m3fn")
    np.testing.assert_array_equal(eight.astype(np.float32), [-448, -3.5, -0.5, 0.5, 1.5, 2.5, 448, np.nan])
    (wide,) = run("quantize", [np.array([3e9, -3e9, 7], np.float32), np.asarray(one), np.asarray(zero)], dtype="i32")
    np.testing.assert_array_equal(wide, [2**31 - 1, -(2**31), 7])


# -- edges ---------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 88.0, -88.0, 0.5, -0.5, 1e-30], np.float32)
# gelu: torch's vector code gives NaN for +inf, its scalar code inf.
FINITE = [
    c
    for c in ACTIVATIONS
    if c.name not in {"gelu", "prelu", "glu", "softmax", "log_softmax", "logsumexp", "quick_gelu"}
]


@pytest.mark.parametrize("case", FINITE, ids=[f"{c.name}-{i}" for i, c in enumerate(FINITE)])
def test_activations_of_special_values(case: Case) -> None:
    x = np.tile(SPECIAL, 4)  # long enough for torch's vector code
    agree(run(case.name, [x], **case.attrs), case.torch(to_torch(x)), 2)


def test_masked_attention_rows_are_zero() -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 3, 4)).astype(np.float32)
    mask = np.ones((2, 3, 3), np.bool_)
    mask[0, 1] = False
    for m in (mask, np.where(mask, 0, -np.inf).astype(np.float32)):
        expected = F.scaled_dot_product_attention(*map(to_torch, (q, q, q)), attn_mask=to_torch(m))
        (y,) = run("attention", [q, q, q, m])
        agree((y,), expected, 4)
        assert not y[0, 1].any()


def test_softmax_of_infinite_rows_as_torch() -> None:
    inf = np.inf
    x = np.array([[-inf, -inf], [inf, 0], [np.nan, 0], [-inf, 3]], np.float32)
    agree(run("softmax", [x], axis=-1), F.softmax(to_torch(x), -1), 1)
    agree(run("log_softmax", [x], axis=-1), F.log_softmax(to_torch(x), -1), 1)
    agree(run("logsumexp", [x], axes=(1,)), torch.logsumexp(to_torch(x), 1), 1)


def test_losses_with_everything_ignored() -> None:
    x, t = np.ones((2, 3), np.float32), np.full(2, -100)
    for name in ("cross_entropy", "nll_loss"):
        (mean,), (total,) = (run(name, [x, t], reduction=r) for r in ("mean", "sum"))
        assert np.isnan(mean) and total == 0


def test_norms_of_empty_and_single_batches() -> None:
    x = np.zeros((0, 3, 4), np.float32)
    (y,) = run("layer_norm", [x], normalized_rank=1)
    assert y.shape == x.shape
    single = np.array([[1.0, 2.0]], np.float32)
    ones = np.ones(2, np.float32)
    y, _, variance = run("batch_norm_train", [single, ones, ones])
    assert not y.any() and np.isnan(variance).all()


# -- refusals ------------------------------------------------------------------------------------

f = lambda *shape: np.zeros(shape, np.float32)
i = lambda *shape: np.zeros(shape, np.int32)
REFUSED: list[tuple[str, list[np.ndarray], dict[str, Any], str]] = [
    ("gelu", [i(2)], {}, "gelu_dtype"),
    ("softmax", [f(2, 3)], {"axis": 2}, "softmax_axis"),
    ("softmax", [i(2, 3)], {"axis": 0}, "softmax_dtype"),
    ("glu", [f(3)], {"axis": 0}, "glu_size"),
    ("mean", [i(3)], {"axes": (0,)}, "mean_dtype"),
    ("mean", [f(3, 3)], {"axes": (0, -2)}, "mean_axis"),
    ("clip", [i(3)], {"low": 0.5}, "clip_bound"),
    ("layer_norm", [f(2, 3), f(2)], {"normalized_rank": 1}, "layer_norm_weight"),
    ("layer_norm", [f(2, 3)], {"normalized_rank": 3}, "layer_norm_rank"),
    ("group_norm", [f(2, 3, 4)], {"num_groups": 2}, "group_norm_groups"),
    ("batch_norm", [f(2, 3), f(2), f(2)], {}, "batch_norm_weight"),
    ("matmul", [f(2, 3), f(2, 3)], {}, "matmul_size"),
    ("matmul", [f(2, 3), i(3, 3)], {}, "matmul_dtype"),
    ("matmul", [f(2, 2, 3), f(3, 3, 3)], {}, "matmul_broadcast"),
    ("linear", [f(2, 3), f(2, 2)], {}, "linear_size"),
    ("einsum", [f(2, 3)], {"equation": "ij,jk->ik"}, "einsum_operands"),
    ("einsum", [f(2, 3)], {"equation": "ijk->i"}, "einsum_rank"),
    ("einsum", [f(2, 3)], {"equation": "ij->k"}, "einsum_output"),
    ("einsum", [f(2, 3)], {"equation": "ij->ii"}, "einsum_output"),
    ("einsum", [f(2, 3)], {"equation": "i1->i"}, "einsum_equation"),
    ("einsum", [f(2, 3), f(2, 3)], {"equation": "ij,jk->ik"}, "einsum_size"),
    ("attention", [f(2, 3, 4), f(2, 5, 3), f(2, 5, 3)], {}, "attention_size"),
    ("attention", [f(3, 3, 4), f(2, 5, 4), f(2, 5, 4)], {}, "attention_heads"),
    ("attention", [f(2, 3, 4), f(2, 5, 4), f(2, 4, 4)], {}, "attention_keys"),
    ("attention", [f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), i(3, 5)], {}, "attention_mask"),
    ("rotary_embedding", [f(2, 5), f(2, 2), f(2, 2)], {}, "rotary_embedding_size"),
    ("conv", [f(1, 2, 3), f(1, 3, 2)], {"strides": [1], "low": [0], "high": [0], "dilation": [1]}, "conv_channels"),
    ("conv", [f(1, 2, 3), f(1, 2, 2)], {"strides": [1, 1], "low": [0], "high": [0], "dilation": [1]}, "conv_attrs"),
    ("conv", [f(1, 2, 3), f(1, 2, 2)], {"strides": [0], "low": [0], "high": [0], "dilation": [1]}, "conv_attrs"),
    (
        "avg_pool",
        [f(1, 1, 4)],
        {"kernel": [2], "strides": [1], "low": [0], "high": [0], "ceil_extra": [1]},
        "avg_pool_extra",
    ),
    ("pixel_shuffle", [f(3, 2, 2)], {"factor": 2}, "pixel_shuffle_channels"),
    ("resize", [f(1, 1, 4)], {"shape": (2, 2), "mode": "linear"}, "resize_rank"),
    ("resize", [f(1, 1, 4)], {"shape": (2,), "mode": "nearest", "antialias": True}, "resize_antialias"),
    ("lstm", [f(2, 1, 3), f(1, 2), f(1, 2), f(8, 3), f(6, 2)], {}, "lstm_size"),
    ("cross_entropy", [f(2, 3), f(2)], {}, "cross_entropy_target"),
    ("nll_loss", [f(2, 3), i(3)], {}, "nll_loss_target"),
    ("mse_loss", [f(2), f(3)], {}, "mse_loss_shape"),
    ("quantize", [f(2), f(2), i(2)], {"dtype": "i8"}, "quantize_scale"),
    ("quantize", [f(2), f(), i()], {"dtype": "f32"}, "quantize_dtype"),
    ("take", [f(2), f(2)], {"axis": 0}, "take_indices"),
    ("take_along_axis", [f(2, 2), i(2)], {"axis": 0}, "take_along_axis_rank"),
    ("roll", [f(2)], {"shifts": (1, 2), "axes": (0,)}, "roll_axes"),
    ("tril", [f(2)], {}, "tril_rank"),
    ("random_uniform", [i(2)], {"shape": ()}, "random_uniform_key"),
    ("dropout", [f(2), i(2)], {"rate": 0.5}, "dropout_key"),
]


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "label"), REFUSED, ids=[f"{r[3]}-{k}" for k, r in enumerate(REFUSED)]
)
def test_refusals_carry_their_label(name: str, arrays: list[np.ndarray], attrs: dict[str, Any], label: str) -> None:
    with pytest.raises(TypeCheckError) as caught:
        build(name, arrays, attrs)
    assert caught.value.label == label


def test_every_composite_is_covered() -> None:
    tested = (
        {c.name for c in CASES}
        | {r[0] for r in _RANDOM}
        | {"random_randint", "random_bernoulli", "dropout", "quantize", "dequantize"}
    )
    assert {op.name for op in registry().values() if op.is_composite and op.family == "composite"} <= tested
