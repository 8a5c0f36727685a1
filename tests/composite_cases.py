"""Calls of composites and what torch makes of them: the cases of test_composites.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


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
        image = normal("n", 2, *old)
        add = lambda reference, mode, image=image, new=new, **o: found.append(
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
    return found + [
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
        for antialias in (False, True)
    ]


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
