# ruff: noqa: E501  one program a line
"""ATen semantics that torch's own samples reach seldom: each program on four engines against eager torch.

Programs stand in tables by kind, one a line: a function and its arguments.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import unigraph as ug
from unigraph.converters.torch_fx.capture import from_torch
from unigraph.runtime.torch.dtypes import from_numpy

ENGINES = ("numpy", "torch", "jax", "onnx")
inf, nan = float("inf"), float("nan")


def t(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 2 if dtype is torch.bool else 9, shape, generator=generator).to(dtype)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def ints(*shape, high=9, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def check(program, args, tolerance=2e-5, engines=ENGINES):
    """Capture once, run on the engines, compare structure, dtype, shape and value."""
    with torch.no_grad():
        want = [torch.as_tensor(w) for w in torch.utils._pytree.tree_leaves(program(*copy.deepcopy(args)))]
    graph = from_torch(program, args)
    tensors = [a for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
    for engine in engines:
        found = torch.utils._pytree.tree_leaves(ug.compile(graph, engine)(*tensors))
        got = [x if isinstance(x, torch.Tensor) else from_numpy(np.array(x)) for x in found]
        assert [(x.dtype, x.shape) for x in got] == [(w.dtype, w.shape) for w in want], engine
        for x, w in zip(got, want, strict=True):
            w = w.resolve_conj().resolve_neg()
            assert torch.allclose(x, w, rtol=tolerance, atol=tolerance, equal_nan=True), (engine, x, w)
    return graph


# -- writing in place, views, aliases ----------------------------------------------------------------


def write_through_a_view(x):
    x = x.clone()
    x[1:, ::2] = 0
    x.t()[0].add_(1)
    return x


def write_after_reading_a_view(x):
    x = x.clone()
    v = x.view(-1)
    s = v.sum()
    v.mul_(2)
    return x, s, v[:3]


def two_views_of_one(x):
    x = x.clone()
    a, b = x[:2], x[1:]
    a += 10
    b *= 2
    return x, a, b


def view_of_a_view(x):
    x = x.clone()
    x.view(3, 2, 2).transpose(0, 1)[1].diagonal(dim1=0, dim2=1).fill_(7.0)
    return x


def overlapping_reads(x):
    x = x.clone()
    x[1:] = x[:-1].clone()
    return x


def unbound_and_written(x):
    x = x.clone()
    for i, row in enumerate(x.unbind(0)):
        row.add_(i)
    a, b = x.chunk(2, 1)
    a.sub_(1)
    return x, b


def strided(x):
    x = x.clone()
    torch.as_strided(x, (2, 2), (5, 1), 1).zero_()
    return x, x.as_strided((3, 3), (1, 1))


def out_argument(x, y):
    z = torch.empty_like(x)
    torch.add(x, y, out=z)
    torch.mul(z, 2, out=z)
    return z


def out_into_a_view(x, y):
    z = torch.zeros(2, *x.shape)
    torch.add(x, y, out=z[1])
    return z


def two_outs(x):
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    return values, indices


def set_with_a_mask(x):
    x = x.clone()
    x[x > 0] = -1.0
    x[torch.tensor([0, 2])] += 1
    return x


def set_with_indices(x, i):
    x = x.clone()
    x[i, i] = torch.arange(3.0)
    x[:, i[:1]] = 5
    return x


def copy_between_dtypes(x, y):
    x = x.clone()
    return x.copy_(y), y.clone().copy_(x)


def many_in_place(x):
    x = x.clone()
    x.clamp_(-1, 1).abs_().sqrt_().relu_().exp_()
    x.unsqueeze_(0).squeeze_(0).t_()
    return x.masked_fill_(x > 2, 0).index_fill_(0, torch.tensor([1]), 3).tril_()


def augmented(x, y):
    x = x.clone()
    x += y
    x -= 1
    x *= y
    x /= 2
    x **= 2
    x //= 1
    x %= 3
    return x


MUTATION = {
    "write_through_a_view": (write_through_a_view, (t(3, 4),)),
    "write_after_reading_a_view": (write_after_reading_a_view, (t(3, 4),)),
    "two_views_of_one": (two_views_of_one, (t(3, 4),)),
    "view_of_a_view": (view_of_a_view, (t(3, 4),)),
    "overlapping_reads": (overlapping_reads, (t(4, 2),)),
    "unbound_and_written": (unbound_and_written, (t(3, 4),)),
    "strided": (strided, (t(4, 4),)),
    "out_argument": (out_argument, (t(3), t(3, seed=1))),
    "out_into_a_view": (out_into_a_view, (t(3), t(3, seed=1))),
    "two_outs": (two_outs, (t(3, 4),)),
    "set_with_a_mask": (set_with_a_mask, (t(4, 3),)),
    "set_with_indices": (set_with_indices, (t(4, 4), torch.tensor([0, 1, 3]))),
    "copy_between_dtypes": (copy_between_dtypes, (t(3), ints(3))),
    "many_in_place": (many_in_place, (t(3, 3),)),
    "augmented": (augmented, (t(3), t(3, seed=1).abs() + 1)),
    "index_put_accumulate": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (t(5), torch.tensor([1, 1, 4, -1]), t(4))),
    "index_put_accumulate_2": (lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), (t(3, 4), torch.tensor([[1], [1]]), torch.tensor([0, 0, 3]), t(3))),
    "index_put_accumulate_gap": (lambda x, i, v: torch.ops.aten.index_put(x, [i, None, i], v, True), (t(3, 2, 3), torch.tensor([1, 1, -1]), t(3, 2))),
    "index_put_accumulate_int": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (ints(5), torch.tensor([2, 2, 2]), ints(3))),
    "index_put_accumulate_mask": (lambda x, m: x.index_put((m,), torch.tensor(2.0), accumulate=True), (t(5), torch.tensor([True, False, True, True, False]))),
    "index_put_accumulate_bool": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (torch.zeros(4, dtype=torch.bool), torch.tensor([1, 1]), torch.tensor([True, True]))),
    "put_accumulate": (lambda x, i, v: (x.put(i, v, accumulate=True), x.put(i[:2], v[:2])), (t(3, 2), torch.tensor([5, 0, 5, -1]), t(4))),
    "negative_dims": (lambda x: (x.transpose(-1, -3), x.sum(-2), x.flip(-1, 0), x.unsqueeze(-2), x.movedim(-1, 0), x.select(-1, -2), x.narrow(-2, -2, 2)), (t(2, 3, 4),)),
    "negative_slices": (lambda x: (x[-3:-1], x[..., -1:], x[:, -2], x[None, ..., 1], x[10:], x[:-10]), (t(5, 4),)),
    "flip": (lambda x: (x.flip(0), x.fliplr(), x.rot90(1), x.rot90(-1, [0, 1]), x.rot90(2)), (t(2, 3),)),
    "conj_views": (lambda x: (x.conj().mT, x.conj().imag, x.mH @ x, torch.view_as_real(x.conj().resolve_conj())), (t(2, 2, dtype=torch.complex64),)),
    "unfold": (lambda x: (x.unfold(0, 3, 2), x.unfold(-1, 2, 1)), (t(7, 4),)),
    "expand_views": (lambda x: (x.expand(2, -1, 3), x.expand_as(torch.zeros(4, 3, 3)), x.repeat(2, 1, 2), x.broadcast_to(2, 3, 3)), (t(3, 1),)),
    "view_dtype": (lambda x: (x.view(torch.int32), x.view(torch.int16), x.view(torch.uint8).sum(-1)), (t(2, 4),)),
}  # fmt: skip


# -- promotion, scalars ------------------------------------------------------------------------------

_i8, _u8, _i32, _f64, _f16, _bf, _b = (
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.bool,
)
NUMBERS = (True, 3, -2, 2.5, 1 + 2j)
KINDS = (_b, _u8, _i8, _i32, torch.int64, _f16, _bf, torch.float32, _f64, torch.complex64)


def with_numbers(x):
    numbers = NUMBERS[:-1] if x.dtype is torch.float16 else NUMBERS  # complex32 has no place in a graph
    return [x + n for n in numbers] + [n * x for n in numbers] + [x / 2, 3 / (x + 2), x == 1, x != 2.5]


def with_order(x):
    return (
        x > 1,
        x <= 2.5,
        x // 2,
        x % 3,
        7 // (x + 1),
        x**2,
        torch.maximum(x, torch.ones_like(x)),
        x.float() ** 0.5,
        torch.where(x > 1, x, 0.5),
        torch.clamp(x, 1, 2.5),
    )


def with_zero_dim(x, s):
    return x + s, s * x, x / s, torch.where(x > 1, x, s), torch.add(x, s, alpha=2), s - s, torch.stack([s, s])


PROMOTION = {
    **{f"numbers_{k}": (with_numbers, (torch.arange(4).to(k),)) for k in KINDS},
    **{f"order_{k}": (with_order, (torch.arange(4).to(k),)) for k in KINDS if k is not _b and not k.is_complex},
    **{f"zero_dim_{a}_{b}": (with_zero_dim, (torch.arange(4).to(a), torch.tensor(2).to(b))) for a, b in ((_i8, torch.int64), (torch.int64, _f16), (_f16, _f64), (torch.float32, _f64), (_u8, torch.int64), (_b, _u8), (_bf, torch.float32), (torch.float32, torch.int64))},
    "tensors": (lambda a, b, c, d: (a + b, b + c, c * d, a * d, torch.cat([a, b, c]), torch.stack([b, d]), torch.where(a > 1, b, c), a @ b.to(a.dtype), torch.atan2(b, c)), (ints(3), t(3).half(), t(3).double(), t(3).bfloat16())),
    "u8_wraps": (lambda x: (x + 250, x - 5, x * 200, -x, x << 3, ~x), (torch.arange(6, dtype=_u8),)),
    "i8_wraps": (lambda x: (x + 120, x * 100, -x, x << 5, x >> 1, abs(x)), (torch.tensor([-128, -1, 0, 5, 127], dtype=_i8),)),
    "integer_division": (lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), torch.div(x, y, rounding_mode="floor"), torch.remainder(x, y), x / y), (torch.tensor([7, -7, 7, -7, 6]), torch.tensor([2, 2, -2, -2, 3]))),
    "float_division": (lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")), (torch.tensor([7.5, -7.5, 7.5, -7.5, 0.0, 1.0]), torch.tensor([2.0, 2, -2, -2, 3, 0.0]))),
    "powers": (lambda x, i: (x**2, x**0.5, x**-1, 2**x, i**2, 2**i, 2.0**i, x**i, torch.float_power(i, 2), x.rsqrt(), i.sqrt()), (t(4).abs() + 0.5, ints(4))),
    "scalar_sums": (lambda x, i, m: (x.sum(), i.sum(), m.sum(), i.prod(), m.any(), i.float().mean(), x.sum(dtype=_f64), i.cumsum(0), m.cumsum(0), i.to(_i8).sum()), (t(4), ints(4), t(4, dtype=_b))),
    "zero_dim_all": (lambda s: (s.sum(0), s.max(0), s.sort(), s.softmax(-1), s.cumsum(0), s.flatten(), s.unsqueeze(-1), s.expand(3), s[None], s[...], s.argmax(), s.norm(), s.var(correction=0), s.squeeze(-1), torch.topk(s, 1), s.flip(0), s.roll(1), s.reshape(1, 1), s.index_select(0, torch.tensor([0])), s.gather(0, torch.tensor(0)), s.median(), s.t()), (torch.tensor(2.5),)),
    "constants": (lambda x: (x + torch.tensor(1), x + torch.tensor(1.0), torch.full((2,), 3), torch.full((2,), 3.0), torch.full((2,), True), torch.arange(3), torch.arange(0, 1, 0.25), torch.arange(5, 0, -2), torch.linspace(0, 1, 3), torch.ones(2, dtype=_u8), torch.eye(2, 3), torch.tril_indices(2, 3), torch.logspace(0, 2, 3), torch.empty(2).fill_(1), x.new_full((2,), 1)), (ints(2),)),
    "comparisons_of_nan": (lambda x, y: (x == y, x != y, x < y, torch.maximum(x, y), torch.fmax(x, y), torch.minimum(x, y), torch.fmin(x, y), x.clamp(0, 1), torch.isclose(x, y, equal_nan=True), x.sign(), x.relu(), torch.nan_to_num(x), x.isnan(), x.isfinite(), x.isposinf(), torch.heaviside(x, y), torch.sgn(x), torch.signbit(x), torch.copysign(x, y), torch.hypot(x, y)), (torch.tensor([nan, 1.0, inf, -inf, -0.0, 0.0]), torch.tensor([nan, nan, inf, inf, 0.0, -0.0]))),
    "casts": (lambda x: (x.int(), x.long(), x.bool(), x.half(), x.bfloat16(), x.double(), x.to(_i8), x.cfloat(), x.type(torch.int16), x.trunc(), x.round(), x.frac(), x.round(decimals=1)), (torch.tensor([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 1.25]),)),
}  # fmt: skip


# -- reductions, order, indices ----------------------------------------------------------------------

_mode = [(m, s) for m in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)]
_ties = torch.tensor([[2, 1, 2, 1], [3, 3, 3, 3], [0, 1, 1, 0]])
ORDER = {
    **{f"scatter_reduce_{m}_{s}": (lambda x, i, v, m=m, s=s: (x.scatter_reduce(0, i, v, m, include_self=s), x.scatter_reduce(-1, i % 3, v, m, include_self=s)), (t(4, 3), ints(4, 3, high=4), t(4, 3, seed=1))) for m, s in _mode},
    **{f"scatter_reduce_int_{m}_{s}": (lambda x, i, v, m=m, s=s: x.scatter_reduce(0, i, v, m, include_self=s), (ints(4), torch.tensor([0, 0, 1, 3, 3]), ints(5, seed=1) - 4)) for m, s in _mode},
    **{f"index_reduce_{m}_{s}": (lambda x, i, v, m=m, s=s: (x.index_reduce(0, i, v, m, include_self=s), x.T.index_reduce(1, i, v.T, m, include_self=s)), (t(4, 3), torch.tensor([0, 0, 3]), t(3, 3, seed=1))) for m, s in _mode if m != "sum"},
    "scatter_reduce_nan": (lambda x, i, v: tuple(x.scatter_reduce(0, i, v, m) for m in ("amax", "amin", "sum", "mean", "prod")), (torch.zeros(3), torch.tensor([0, 0, 1]), torch.tensor([nan, 1.0, inf]))),
    "scatter_add": (lambda x, i, v: (x.scatter_add(1, i, v), x.scatter(1, i[:, :1], v), x.scatter(0, i[:1] % 3, 2.0), x.scatter(1, i, v, reduce="add"), x.scatter(1, i, 2.0, reduce="multiply")), (t(3, 4), torch.tensor([[0, 0], [3, 1], [2, 2]]), t(3, 2))),
    "scatter_add_smaller": (lambda x, i, v: x.scatter_add(0, i, v), (t(5, 4), ints(2, 3, high=5), t(3, 4))),
    "index_add": (lambda x, i, v: (x.index_add(0, i, v), x.index_add(0, i, v, alpha=2), x.index_copy(0, i[:1], v[:1]), x.index_fill(1, i[:1], -1.0)), (t(4, 3), torch.tensor([1, 1, 0]), t(3, 3))),
    "arg_ties": (lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.argmin(0, keepdim=True), x.max(1), x.min(0), x.float().argmax(-1)), (_ties,)),
    "arg_nan": (lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.min(1), x.amax(), x.amin(1), torch.aminmax(x), x.cummax(1), x.cummin(1)), (torch.tensor([[1.0, nan, 2.0, nan], [inf, 3.0, -inf, 3.0]]),)),
    "sort_stable": (lambda x: (x.sort(stable=True), x.sort(stable=True, descending=True, dim=0), torch.argsort(x, stable=True), x.msort()), (_ties,)),
    "sort_nan": (lambda x: (x.sort(), x.sort(descending=True), x.sort(stable=True, descending=True), x.topk(2), x.topk(3, largest=False), x.kthvalue(2), x.median(), x.nanmedian()), (torch.tensor([1.0, nan, -inf, 2.0, inf, -0.5]),)),
    "median_ties": (lambda x: (x.median(), x.median(1).values, x.float().nanmedian(0).values, x.float().quantile(torch.tensor([0.0, 0.3, 1.0])), x.mode(1).values), (_ties,)),
    "quantiles": (lambda x: tuple(x.quantile(0.4, dim=1, interpolation=m) for m in ("linear", "lower", "higher", "midpoint", "nearest")) + (x.nanquantile(0.5, 0, keepdim=True),), (t(3, 5),)),
    "gather": (lambda x, i: (x.gather(1, i), x.gather(0, i[:1] % 3), torch.take_along_dim(x, i, 1), x.take(i), x.index_select(1, i[0])), (t(3, 4), ints(3, 2, high=4))),
    "advanced": (lambda x, i: (x[i], x[:, i], x[i, :, i], x[i[:, None], i], x[..., i, 0], x[i, None], x[1, i], x[i, 1:, -1]), (t(3, 3, 3), torch.tensor([0, 2, -1]))),
    "searching": (lambda s, v: (torch.searchsorted(s, v), torch.searchsorted(s, v, right=True), torch.bucketize(v, s), torch.bucketize(v, s, right=True, out_int32=True)), (torch.tensor([1.0, 2, 2, 5]), torch.tensor([[0.0, 2, 3], [5, 6, 2]]))),
    "searching_rows": (lambda s, v, o: (torch.searchsorted(s, v), torch.searchsorted(s, v, sorter=o, side="right")), (t(2, 5).sort().values, t(2, 3), torch.arange(5).expand(2, 5).clone())),
    "empty_reductions": (lambda x: (x.sum(0), x.prod(1), x.mean(0), x.var(0), x.any(0), x.all(1), x.logsumexp(0), x.norm(dim=0), x.std(0, correction=0), x.sum(), x.cumsum(0), x.softmax(0)), (t(0, 3),)),
    "reductions": (lambda x: (x.var((0, 1)), x.std(0), x.var(1, correction=2), torch.var_mean(x, 1, keepdim=True), torch.std_mean(x), x.norm(1), x.norm(inf), x.norm(-inf), x.norm(0), x.norm(3, dim=(0, 1)), x.count_nonzero(0), x.logcumsumexp(1), x.nansum(), x.nanmean(1), x.prod(), x.dist(x + 1, 3)), (t(3, 4),)),
    "cumulative": (lambda x: (x.cumsum(-1), x.cumprod(0), x.cummax(1), x.cummin(0), x.diff(), x.diff(n=2, dim=0, prepend=x[:1]), torch.trapezoid(x), torch.cumulative_trapezoid(x, dim=0), x.logcumsumexp(0)), (t(3, 4),)),
}  # fmt: skip


# -- layers ------------------------------------------------------------------------------------------


def _averages(average, sizes, ceil, padding):
    """All strides, with and without the padding counted."""

    def program(x):
        return [average(x, 3, stride, padding, ceil, count) for stride in (1, 2, 3) for count in (True, False)]

    return program, (t(2, 3, *sizes),)


def _maxima(maximum, sizes, ceil, padding):
    """All strides, with and without dilation; indices too."""

    def program(x):
        return [maximum(x, 2, s, padding, d, ceil, return_indices=d > 1) for s in (1, 2, 3) for d in (1, 2)]

    return program, (t(2, 3, *sizes),)


_corners = [(ceil, padding) for ceil in (False, True) for padding in (0, 1)]
_image = t(2, 3, 5, 6)
_grid = torch.cat([t(2, 4, 3, 2) * 0.8, torch.tensor([[[[-1.0, 1], [1.5, -2], [0, 3]]]]).expand(2, 1, 3, 2)], 1)
LAYERS = {
    **{f"avg{r}d_{c}_{p}": _averages(f, (7, 6)[:r], c, p) for r, f in ((1, F.avg_pool1d), (2, F.avg_pool2d)) for c, p in _corners},
    **{f"max{r}d_{c}_{p}": _maxima(f, (7, 6)[:r], c, p) for r, f in ((1, F.max_pool1d), (2, F.max_pool2d)) for c, p in _corners},
    "avg3d": (lambda x: (F.avg_pool3d(x, (2, 3, 2), (2, 1, 2), (1, 1, 0), True, False), F.avg_pool3d(x, 2, divisor_override=3)), (t(2, 3, 4, 5, 6),)),
    "max3d": (lambda x: F.max_pool3d(x, (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2), True, True), (t(2, 3, 4, 5, 6),)),
    "avg_divisor": (lambda x: (F.avg_pool2d(x, 2, divisor_override=5), F.avg_pool2d(x, 3, 2, 1, True, False, 7)), (_image,)),
    "unbatched_pools": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (2, 4)), F.adaptive_max_pool2d(x, (2, 4), return_indices=True), F.lp_pool2d(x, 2, 2)), (t(3, 5, 6),)),
    "adaptive": (lambda x: (F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (None, 7)), F.adaptive_max_pool2d(x, (3, 4)), F.adaptive_avg_pool1d(x[0], 4), F.adaptive_max_pool1d(x[0], 4, return_indices=True)), (_image,)),
    "adaptive3d": (lambda x: (F.adaptive_avg_pool3d(x, (2, 3, 5)), F.adaptive_max_pool3d(x, (2, 3, 5))), (t(1, 2, 4, 5, 6),)),
    "unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (t(1, 2, 4, 6),)),
    "fractional": (lambda x, u: F.fractional_max_pool2d(x, 2, output_size=(3, 3), _random_samples=u, return_indices=True), (_image, torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0)))),
    **{f"interpolate_{m}_{a}": (lambda x, m=m, a=a: tuple(F.interpolate(x, mode=m, align_corners=a, **k) for k in ({"size": (8, 3)}, {"scale_factor": 1.7}, {"scale_factor": (0.6, 2.3), "recompute_scale_factor": True}, {"size": (5, 1)})), (_image,)) for m, a in (("nearest", None), ("nearest-exact", None), ("area", None), ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True))},
    **{f"interpolate_aa_{m}_{a}": (lambda x, m=m, a=a: tuple(F.interpolate(x, mode=m, align_corners=a, antialias=True, **k) for k in ({"size": (3, 4)}, {"size": (8, 9)}, {"scale_factor": 0.4})), (t(1, 2, 7, 8),)) for m in ("bilinear", "bicubic") for a in (False, True)},
    "interpolate_1d": (lambda x: tuple(F.interpolate(x, size=n, mode=m) for n in (3, 11) for m in ("nearest", "linear", "area", "nearest-exact")), (t(2, 3, 7),)),
    "interpolate_3d": (lambda x: tuple(F.interpolate(x, size=(3, 5, 2), mode=m) for m in ("nearest", "trilinear", "area", "nearest-exact")) + (F.interpolate(x, scale_factor=1.5, mode="trilinear", align_corners=True),), (t(1, 2, 4, 3, 3),)),
    **{f"grid_sample_{m}_{p}": (lambda x, g, m=m, p=p: tuple(F.grid_sample(x, g, m, p, a) for a in (False, True)), (_image, _grid)) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection")},
    "grid_sample_3d": (lambda x, g: tuple(F.grid_sample(x, g, m, p, False) for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection")), (t(1, 2, 3, 4, 5), t(1, 2, 3, 2, 3))),
    "affine_grid": (lambda a: (F.affine_grid(a, (2, 3, 4, 5), align_corners=False), F.affine_grid(a, (2, 3, 4, 5), align_corners=True)), (t(2, 2, 3),)),
    "padding": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 2, -1, 1), value=3.0), F.pad(x, (2, 1, 1, 0), "reflect"), F.pad(x, (2, 1, 1, 3), "replicate"), F.pad(x, (2, 1, 1, 3), "circular")), (_image,)),
    "padding_3d": (lambda x: (F.pad(x, (1, 1, 0, 1, 2, 1), "reflect"), F.pad(x, (1, 1, 0, 1, 2, 1), "replicate"), F.pad(x, (1, 1, 0, 1, 2, 1), "circular")), (t(1, 2, 3, 4, 5),)),
    "fold": (lambda x: (F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=(1, 2)), F.fold(F.unfold(x, 2, stride=2, padding=(1, 0)), (5, 6), 2, stride=2, padding=(1, 0))), (_image,)),
    "convolutions": (lambda x, w: (F.conv2d(x, w, padding="same"), F.conv2d(x, w, padding="valid", stride=2), F.conv2d(x, w, dilation=2, padding=(2, 1)), F.conv2d(x[0], w), F.conv_transpose2d(x, w.transpose(0, 1), stride=2, output_padding=1, padding=1), F.conv_transpose2d(x, w.transpose(0, 1), dilation=2)), (_image, t(4, 3, 3, 2))),
    "convolution_same_even": (lambda x, w: (F.conv1d(x, w, padding="same"), F.conv1d(x, w, padding="same", dilation=3)), (t(2, 3, 9), t(4, 3, 4))),
    "convolutions_grouped": (lambda x, w, v: (F.conv2d(x, w, groups=3), F.conv_transpose2d(x, v, groups=3, stride=(2, 1)), F.conv_transpose1d(x[:, :, 0], v[:, :, 0], groups=3)), (_image, t(6, 1, 2, 2), t(3, 2, 2, 2))),
    "normalisation": (lambda x: (F.layer_norm(x, (5, 6)), F.instance_norm(x), F.group_norm(x, 3), F.local_response_norm(x, 2), F.normalize(x, 3, 2), F.rms_norm(x, (6,)), F.batch_norm(x, torch.zeros(3), torch.ones(3)), F.batch_norm(x, None, None, training=True)), (_image,)),
    "shuffles": (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), torch.channel_shuffle(x, 2)), (t(1, 4, 4, 6),)),
    "embedding_bag": (lambda w, i, o, s: tuple(F.embedding_bag(i, w, o, mode=m) for m in ("sum", "mean", "max")) + (F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s), F.embedding_bag(i, w, o, mode="mean", padding_idx=1), F.embedding_bag(i, w, torch.cat([o, o.new_full((1,), 7)]), include_last_offset=True, mode="sum"), F.embedding_bag(i, w, o, mode="max", padding_idx=0), F.embedding_bag(i[:6].view(2, 3), w)), (t(5, 3), torch.tensor([0, 1, 4, 4, 2, 1, 3]), torch.tensor([0, 2, 2, 6]), t(7))),
    "embedding": (lambda w, i: (F.embedding(i, w), F.embedding(i, w, padding_idx=1), F.one_hot(i, 6), F.embedding(i[0, 0], w)), (t(5, 3), ints(2, 3, high=5))),
    "attention": (lambda q, k, m: (F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(q, k, k, is_causal=True), F.scaled_dot_product_attention(q, k, k, m), F.scaled_dot_product_attention(q, k, k, m > 0, scale=0.3), F.scaled_dot_product_attention(q, k[:, :1], k[:, :1], enable_gqa=True)), (t(2, 2, 3, 4), t(2, 2, 5, 4), t(3, 5))),
    "attention_all_masked": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (t(1, 1, 3, 4), torch.tensor([[True, False, True], [False, False, False], [True, True, True]]))),
    "distances": (lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1), torch.cdist(x, y, p=inf), torch.cdist(x, y, p=0), F.pdist(x), F.pairwise_distance(x, x + 1, keepdim=True), F.cosine_similarity(x, y[:3], 1)), (t(3, 4), t(5, 4))),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), (t(2, 3), t(2, 4), t(5, 3, 4), t(5))),
}  # fmt: skip


# -- losses ------------------------------------------------------------------------------------------

_logits, _classes = t(4, 5), torch.tensor([0, 3, -100, 4])
_reductions = ("mean", "sum", "none")


def each(loss):
    return lambda *args: tuple(loss(*args, reduction=r) for r in _reductions)


_ctc = (
    t(6, 3, 5).log_softmax(-1),
    torch.tensor([[1, 2, 2], [3, 1, 0], [4, 4, 4]]),
    torch.tensor([6, 5, 6]),
    torch.tensor([3, 2, 3]),
)
LOSSES = {
    "cross_entropy": (each(lambda x, y, reduction: F.cross_entropy(x, y, reduction=reduction)), (_logits, _classes)),
    "cross_entropy_weighted": (each(lambda x, y, w, reduction: F.cross_entropy(x, y, w, ignore_index=3, label_smoothing=0.1, reduction=reduction)), (_logits, _classes.clamp(0), t(5).abs())),
    "cross_entropy_probabilities": (each(lambda x, y, reduction: F.cross_entropy(x, y.softmax(1), label_smoothing=0.2, reduction=reduction)), (_logits, t(4, 5, seed=1))),
    "cross_entropy_images": (each(lambda x, y, reduction: F.cross_entropy(x, y, reduction=reduction)), (t(2, 5, 3, 3), ints(2, 3, 3, high=5))),
    "cross_entropy_unbatched": (each(lambda x, y, reduction: F.cross_entropy(x, y, reduction=reduction)), (t(5), torch.tensor(2))),
    "nll": (each(lambda x, y, w, reduction: F.nll_loss(x.log_softmax(1), y, w, reduction=reduction)), (t(2, 5, 3, 3), ints(2, 3, 3, high=5), t(5).abs())),
    "bce": (each(lambda x, y, reduction: F.binary_cross_entropy(x.sigmoid(), y, reduction=reduction)), (t(4), torch.tensor([0.0, 1, 1, 0]))),
    "bce_corner": (each(lambda x, y, reduction: F.binary_cross_entropy(x, y, reduction=reduction)), (torch.tensor([0.0, 1, 1, 0]), torch.tensor([0.0, 1, 0, 1]))),
    "bce_logits": (each(lambda x, y, w, reduction: F.binary_cross_entropy_with_logits(x * 30, y, w, pos_weight=w, reduction=reduction)), (t(4), torch.tensor([0.0, 1, 1, 0]), t(4).abs())),
    "regression": (each(lambda x, y, reduction: (F.mse_loss(x, y, reduction=reduction), F.l1_loss(x, y, reduction=reduction), F.smooth_l1_loss(x, y, beta=0.3, reduction=reduction), F.smooth_l1_loss(x, y, beta=0.0, reduction=reduction), F.huber_loss(x, y, delta=0.5, reduction=reduction))), (t(3, 4), t(3, 4, seed=1))),
    "kl": (lambda x, y: (F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, reduction="sum"), F.kl_div(x.log_softmax(1), torch.zeros_like(y), reduction="none")), (t(3, 4), t(3, 4, seed=1))),
    "margins": (each(lambda x, y, z, reduction: (F.margin_ranking_loss(x, y, z, margin=0.2, reduction=reduction), F.hinge_embedding_loss(x, z, reduction=reduction), F.soft_margin_loss(x, z, reduction=reduction))), (t(4), t(4, seed=1), torch.tensor([1.0, -1, 1, -1]))),
    "triplet": (each(lambda x, y, z, reduction: (F.triplet_margin_loss(x, y, z, reduction=reduction, swap=True, p=1), F.triplet_margin_with_distance_loss(x, y, z, reduction=reduction))), (t(3, 4), t(3, 4, seed=1), t(3, 4, seed=2))),
    "cosine": (each(lambda x, y, z, reduction: F.cosine_embedding_loss(x, y, z, margin=0.1, reduction=reduction)), (t(3, 4), t(3, 4, seed=1), torch.tensor([1, -1, 1]))),
    "multilabel": (each(lambda x, y, z, reduction: (F.multilabel_soft_margin_loss(x, z, reduction=reduction), F.multi_margin_loss(x, y, p=2, margin=0.7, reduction=reduction))), (_logits, _classes.clamp(0), (t(4, 5) > 0).float())),
    "multilabel_margin": (each(lambda x, y, reduction: F.multilabel_margin_loss(x, y, reduction=reduction)), (_logits, torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [1, 2, 3, -1, 4], [0, 1, 2, 3, 4]]))),
    "poisson": (each(lambda x, y, reduction: (F.poisson_nll_loss(x, y, reduction=reduction), F.poisson_nll_loss(x.abs(), y, log_input=False, full=True, reduction=reduction))), (t(4), ints(4).float())),
    "gaussian": (each(lambda x, y, v, reduction: F.gaussian_nll_loss(x, y, v, full=True, reduction=reduction)), (t(4), t(4, seed=1), t(4).abs())),
    "ctc": (each(lambda p, y, n, m, reduction: F.ctc_loss(p, y, n, m, reduction=reduction)), _ctc),
    "ctc_blank": (each(lambda p, y, n, m, reduction: F.ctc_loss(p, y, n, m, blank=4, reduction=reduction)), (_ctc[0], torch.tensor([[1, 2, 2], [3, 1, 0], [0, 0, 3]]), *_ctc[2:])),
    "ctc_zero_infinity": (each(lambda p, y, n, m, reduction: F.ctc_loss(p, y, n, m, zero_infinity=True, reduction=reduction)), (_ctc[0], torch.tensor([[1, 1, 1], [3, 1, 0], [4, 4, 4]]), torch.tensor([4, 5, 6]), _ctc[3])),
}  # fmt: skip


# -- sizes that depend on values ---------------------------------------------------------------------

_repeats = torch.tensor([3, 1, 3, 3, 2, 1, 1])
VALUES = {
    "nonzero": (lambda x: (x.nonzero(), torch.nonzero(x, as_tuple=True), torch.argwhere(x > 1)), (torch.tensor([[0.0, 2, 0], [1, 0, 3]]),)),
    "masked_select": (lambda x: (x.masked_select(x > 0), x[x < 0].sum(), x[x > 100]), (t(3, 4),)),
    "select_rows": (lambda x, m: (x[m], x[m].mean(0), x[m, 1], x[:, :2][m]), (t(4, 3), torch.tensor([True, False, True, True]))),
    "unique": (lambda x: torch.unique(x), (_repeats,)),
    "unique_all": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (_repeats,)),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (_repeats,)),
    "unique_rows": (lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), (torch.tensor([[1, 2], [0, 5], [1, 2], [0, 4]]),)),
    "repeat_interleave": (lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, dim=0)), (t(2, 2),)),
    "isin": (lambda x: torch.isin(x, torch.tensor([1, 3])), (_repeats,)),
}  # fmt: skip


# -- linear algebra ----------------------------------------------------------------------------------

_square = t(2, 3, 3) + 3 * torch.eye(3)
_definite = _square @ _square.mT + torch.eye(3)
L = torch.linalg
LINALG = {
    "decompositions": (lambda x: (lambda q, s, h: (q.Q @ q.R, s.U @ torch.diag_embed(s.S) @ s.Vh, h[1] @ torch.diag_embed(h[0]) @ h[1].mT))(L.qr(x), L.svd(x, full_matrices=False), L.eigh(x + x.mT)), (_square,)),
    "values": (lambda x: (L.svdvals(x), L.eigvalsh(x + x.mT), L.det(x), L.slogdet(x), L.matrix_rank(x), L.cond(x), L.cond(x, 1), L.cond(x, "fro"), L.norm(x), L.matrix_norm(x, "nuc"), L.matrix_norm(x, 2), L.matrix_norm(x, -1), L.vector_norm(x, 3, (0, 1))), (_square,)),
    "solvers": (lambda x, y: (L.solve(x, y), L.inv(x), L.pinv(x), L.solve_triangular(x, y, upper=True), L.solve_triangular(x, y.mT, upper=False, left=False, unitriangular=True), L.lu_solve(*L.lu_factor(x), y), torch.cholesky_solve(y, L.cholesky(x @ x.mT)), L.tensorsolve(x[0], y[0, :, 0]), L.tensorinv(x[0], 1)), (_square, t(2, 3, 3))),
    "factors": (lambda x: (L.lu(x), L.lu_factor(x), L.cholesky(x), L.cholesky(x, upper=True), L.cholesky_ex(x), L.inv_ex(x), torch.cholesky_inverse(L.cholesky(x)), L.qr(x, "r").R.abs()), (_definite,)),
    "functions": (lambda x, y: (L.matrix_power(x, 3), L.matrix_power(x, -2), L.matrix_exp(x), L.multi_dot([x[0], y[0], x[1]]), L.cross(x, y), L.vander(x[0, 0]), L.vecdot(x, y), torch.trace(x[0]), torch.kron(x[0], y[0]), torch.block_diag(x[0], y[1]), L.householder_product(x * 0.1, y[..., 0])), (_square * 0.3, t(2, 3, 3))),
    "products": (lambda x, y: (torch.addmm(x[0], x[0], y[0], beta=0.5, alpha=2), torch.baddbmm(x, x, y, beta=0), torch.addbmm(x[0], x, y), torch.addr(x[0], x[0, 0], y[0, 0]), torch.addmv(x[0, 0], x[0], y[0, 0]), torch.einsum("bij,bkj->bik", x, y), torch.tensordot(x, y, dims=([0, 2], [0, 1])), torch.inner(x, y[0]), torch.outer(x[0, 0], y[0, 0]), torch.chain_matmul(x[0], y[0])), (t(2, 3, 3), t(2, 3, 3, seed=1))),
    "complex": (lambda x: (L.det(x), L.inv(x), L.svdvals(x), L.eigvalsh(x + x.mH), L.solve(x, x.mH), L.cholesky(x @ x.mH + 3 * torch.eye(3)), L.slogdet(x), L.matrix_exp(x)), (t(2, 3, 3, dtype=torch.complex64),)),
    "fft": (lambda x: (torch.fft.fft(x), torch.fft.rfft(x, norm="ortho"), torch.fft.irfft(torch.fft.rfft(x), n=5), torch.fft.hfft(x), torch.fft.fftn(x, s=(4, 2), norm="forward"), torch.fft.ihfft(x), torch.fft.fftshift(x), torch.fft.fftfreq(5), torch.fft.rfft2(x, dim=(1, 0))), (t(3, 5),)),
    "stft": (lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True), (t(2, 40),)),
    "istft": (lambda x: torch.istft(torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True), 8, 4, window=torch.hann_window(8)), (t(2, 40),)),
}  # fmt: skip

TABLES = {
    "mutation": MUTATION,
    "promotion": PROMOTION,
    "order": ORDER,
    "layers": LAYERS,
    "losses": LOSSES,
    "values": VALUES,
    "linalg": LINALG,
}
CASES = [(kind, name) for kind, table in TABLES.items() for name in table]
# XLA takes ten seconds over each of these; the other paddings stand for them.
NOT_JAX = ("grid_sample_bicubic_border", "grid_sample_bicubic_reflection")


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda x: x)
def test_program(kind, name):
    program, args = TABLES[kind][name]
    half = "float16" in name or "bfloat16" in name
    tolerance = 2e-3 if half else 1e-4 if kind == "linalg" else 2e-5
    check(program, args, tolerance, [e for e in ENGINES if e != "jax" or name not in NOT_JAX])
