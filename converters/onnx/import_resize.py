"""ONNX Resize and Upsample in every mode.

What the composite ``resize`` says becomes one; other modes get their neighbours and weights computed
here, which needs static sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.dtypes import dtype
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, wide_dtype

from .node import Node, RowBook, axis_of

rows = RowBook()

_FREE = "fix the shapes with from_onnx(path, shapes={...})"


@dataclass
class Plan:
    """A resize: for each axis the new size, the scale that was given (None: the ratio of sizes), the region."""

    mode: str
    coordinates: str
    nearest: str
    sizes: list[Dim]
    scales: list[float | None]
    regions: list[tuple[float, float]]
    coefficient: float = -0.75
    exclude: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


@rows("Upsample")
def upsample(n: Node) -> Value:
    """Scales from attributes, or since opset 9 from input 1."""
    shape = n.value(0).type.shape
    if n.opset >= 9:
        scales = [float(s) for s in n.array(1)]
    elif n.attr("scales") is not None:
        scales = list(n.attr("scales"))
    else:
        scales = [1.0, 1.0, n.attr("height_scale"), n.attr("width_scale")]
    mode = {"bilinear": "linear"}.get(n.attr("mode", "nearest"), n.attr("mode", "nearest"))
    return _resample(n, _by_scales(shape, scales, mode, "asymmetric", "floor"))


@rows("Resize")
def resize_10(n: Node) -> Value:
    return _resample(
        n, _by_scales(n.value(0).type.shape, n.array(1).tolist(), n.attr("mode", "nearest"), "asymmetric", "floor")
    )


def _by_scales(shape: Sequence[Dim], scales: Sequence[float], mode: str, coordinates: str, nearest: str) -> Plan:
    whole = [(0.0, 1.0)] * len(shape)
    sizes = [_scaled(d, s) for d, s in zip(shape, scales)]
    return Plan(mode, coordinates, nearest, sizes, list(scales), whole)


def _scaled(size: Dim, scale: float) -> Dim:
    if dims.is_static(size):
        return math.floor(size * scale)
    if scale == int(scale):
        return dims.normal(size * int(scale))
    if 1 / scale == int(1 / scale):
        return dims.floordiv(size, int(1 / scale))
    raise Unsupported(f"Resize of a symbolic size by {scale}", _FREE)


@rows("Resize", since=11)
def resize(n: Node) -> Value:
    """Scales or sizes, for all axes or (since opset 18) for some."""
    shape = n.value(0).type.shape
    rank = len(shape)
    axes = [axis_of(a, rank) for a in n.attr("axes") or range(rank)]
    sizes, regions = list(shape), [(0.0, 1.0)] * rank
    scales: list[float | None] = [1.0] * rank
    if n.has(3) and n.known_sizes(3) != ():
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        wanted = n.known_sizes(3)
        if wanted is None:
            raise n.depends(3)
        ratio = _ratio(n, [shape[a] for a in axes], wanted, policy)
        for a, size in zip(axes, wanted):
            sizes[a] = size if ratio is None else math.floor(ratio * shape[a] + 0.5)
            scales[a] = ratio
    else:
        for a, scale in zip(axes, n.array(2).tolist()):
            sizes[a], scales[a] = _scaled(shape[a], scale), scale
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize":
        region = n.array(1).tolist()
        for i, a in enumerate(axes):
            regions[a] = (region[i], region[len(axes) + i])
        if not (n.has(3) and n.known_sizes(3) != ()):
            for a in axes:
                first, last = regions[a]
                sizes[a] = math.floor(shape[a] * (last - first) * scales[a])
    plan = Plan(
        n.attr("mode", "nearest"),
        coordinates,
        n.attr("nearest_mode", "round_prefer_floor"),
        sizes,
        list(scales),
        regions,
        n.attr("cubic_coeff_a", -0.75),
        bool(n.attr("exclude_outside", 0)),
        bool(n.attr("antialias", 0)),
        n.attr("extrapolation_value", 0.0),
    )
    return _resample(n, plan)


def _ratio(n: Node, old: Sequence[Dim], wanted: Sequence[Dim], policy: str) -> float | None:
    if policy == "stretch":
        return None
    if not all(map(dims.is_static, (*old, *wanted))):
        raise Unsupported(f"Resize with policy {policy} of symbolic sizes", _FREE)
    return (min if policy == "not_larger" else max)(w / o for w, o in zip(wanted, old))


def _resample(n: Node, plan: Plan) -> Value:
    x = n.value(0)
    if plan.mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"{n.op_type} in mode {plan.mode}")
    fitting = _as_composite(x, plan)
    if fitting is not None:
        return n.b.resize(x, **fitting)
    if not x.type.is_static or not all(map(dims.is_static, plan.sizes)):
        raise Unsupported(f"{n.op_type} with {plan.coordinates} coordinates of a symbolic size", _FREE)
    return _by_tables(n, x, plan)


def _as_composite(x: Value, plan: Plan) -> dict[str, Any] | None:
    """Attributes of the composite when it has this meaning, else None."""
    shape, coordinates = x.type.shape, plan.coordinates
    spatial = range(2, len(shape))
    plain = all(
        dims.equal(shape[a], plan.sizes[a]) and plan.scales[a] in (None, 1.0) for a in range(min(2, len(shape)))
    )
    if (
        len(shape) < 3
        or not plain
        or plan.exclude
        or plan.antialias
        or (plan.mode != "nearest" and not x.type.dtype.is_float)
    ):
        return None
    scales = [plan.scales[a] for a in spatial]
    whole = all(
        s is None or (dims.is_static(shape[a]) and shape[a] * s == plan.sizes[a]) for a, s in zip(spatial, scales)
    )
    if coordinates == "half_pixel_symmetric" and whole:
        coordinates = "half_pixel"
    if coordinates == "pytorch_half_pixel" and all(plan.sizes[a] != 1 for a in spatial):
        coordinates = "half_pixel"
    if coordinates not in ("half_pixel", "align_corners", "asymmetric") or (
        coordinates == "align_corners" and not whole
    ):
        return None
    if any(s is None for s in scales) and not whole:
        return None
    if plan.mode == "nearest" and any(_is_delicate(plan, a, shape[a]) for a in spatial):
        return None
    return {
        "shape": tuple(plan.sizes[2:]),
        "mode": plan.mode,
        "coordinates": coordinates,
        "nearest": plan.nearest,
        "cubic_coeff": plan.coefficient,
        "scales": None if any(s is None for s in scales) else tuple(scales),
    }


def _is_delicate(plan: Plan, axis: int, old: Dim) -> bool:
    """Whether an engine's rounding may decide which neighbour is nearest: positions on the border between two
    that f32 does not hold exactly."""
    new, given = plan.sizes[axis], plan.scales[axis]
    if not dims.is_static(old) or not dims.is_static(new) or not old or not new:
        return False
    scale = new / old if given is None else given
    if math.frexp(scale)[0] == 0.5:
        return False
    place = _positions(plan, axis, old, new, scale)
    border = place if plan.nearest in ("floor", "ceil") else place + 0.5
    return bool(np.any((np.abs(border - np.round(border)) < 1e-4) & (place > 0)))


# -- neighbours and weights computed here ------------------------------------------------------------


def _by_tables(n: Node, x: Value, plan: Plan) -> Value:
    kind = x.type.dtype
    y = x if plan.mode == "nearest" else cast(n.b, x, wide_dtype(kind) if kind.is_float else dtype("f32"))
    outside: Value | None = None
    for axis, (old, new) in enumerate(zip(x.type.shape, plan.sizes)):
        given = plan.scales[axis]
        scale = new / old if given is None else given
        if old == new and scale == 1.0 and plan.coordinates != "tf_crop_and_resize":
            continue
        place = _positions(plan, axis, old, new, scale)
        if plan.mode == "nearest":
            index = np.clip(_rounded(place, plan.nearest), 0, old - 1).astype(np.int64)
            y = n.b.take(y, n.b.constant(index), axis=axis, mode="clip")
        else:
            y = _weighted(n, y, axis, *_taps(plan, place, old, scale))
        if plan.coordinates == "tf_crop_and_resize":
            beyond = n.b.constant((place < 0) | (place > old - 1))
            wide = along(n.b, beyond, plan.sizes, (axis,))
            outside = wide if outside is None else n.b.or_(outside, wide)
    if outside is not None:
        y = n.b.select(outside, y, n.b.full_like(y, plan.extrapolation))
    if not kind.is_float and plan.mode != "nearest":
        y = n.b.round(y, mode="even")
    return cast(n.b, y, kind)


def _positions(plan: Plan, axis: int, old: int, new: int, scale: float) -> np.ndarray:
    """Where each new element lies among the old ones, by ONNX's formulas."""
    count, width = np.arange(new, dtype=np.float64), scale * old
    first, last = plan.regions[axis]
    match plan.coordinates:
        case "asymmetric":
            return count / scale
        case "align_corners":
            return count * 0.0 if width == 1 else count * (old - 1) / (width - 1)
        case "tf_crop_and_resize":
            if new == 1:
                return count + (first + last) * (old - 1) / 2
            return count * (last - first) * (old - 1) / (new - 1) + first * (old - 1)
        case "pytorch_half_pixel" if new == 1:
            return count * 0.0
        case "half_pixel" | "pytorch_half_pixel":
            return (count + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return old / 2 * (1 - new / width) + (count + 0.5) / scale - 0.5
    raise Unsupported(f"Resize with coordinates {plan.coordinates}")


def _rounded(place: np.ndarray, rounding: str) -> np.ndarray:
    match rounding:
        case "floor":
            return np.floor(place)
        case "ceil":
            return np.ceil(place)
        case "round_prefer_ceil":
            return np.floor(place + 0.5)
    return np.ceil(place - 0.5)


def _taps(plan: Plan, place: np.ndarray, old: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(indices, weights), both [new, k]."""
    below = np.floor(place)
    t = (place - below)[:, None]
    reach = 1 if plan.mode == "linear" else 2
    shrink = min(scale, 1.0) if plan.antialias else 1.0
    start = math.floor(-reach / shrink) + 1
    offsets = np.arange(start, 2 - start)[None, :]
    weights = _kernel((offsets - t) * shrink, plan)
    index = below[:, None] + offsets
    if plan.exclude:
        weights = np.where((index < 0) | (index >= old), 0.0, weights)
    if plan.exclude or plan.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(index, 0, old - 1).astype(np.int64), weights


def _kernel(d: np.ndarray, plan: Plan) -> np.ndarray:
    """The linear or Keys' cubic kernel at signed distances."""
    d, a = np.abs(d), plan.coefficient
    if plan.mode == "linear":
        return np.clip(1 - d, 0, 1)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weighted(n: Node, x: Value, axis: int, index: np.ndarray, weights: np.ndarray) -> Value:
    taken = n.b.take(x, n.b.constant(index), axis=axis, mode="clip")
    wide = along(n.b, n.b.constant(weights, x.type.dtype), taken.type.shape, (axis, axis + 1))
    return n.b.reduce_sum(n.b.mul(taken, wide), axes=(axis + 1,))
