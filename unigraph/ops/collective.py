"""Communication between the devices of a named axis.

On one device (axis_size 1) each is a plain reshaping of its operand, and engines run that; they
refuse larger axes. The records keep what a distributed program says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dims
from ..dtypes import i32
from ..opdef import Attr, Example, OpDef, array, define, example
from ..types import TensorType
from .shapes import no_key, one_axis, refuse

COMBINERS = ("add", "mul", "max", "min", "and", "or", "xor")
AXIS_NAME = Attr("str", doc="name of the axis of devices")
AXIS_SIZE = Attr("int", doc="number of devices along it")
TILED = Attr("bool", doc="split and join an axis (True), or remove and add one (False)")


def _op(
    name: str,
    operands: str,
    infer: Callable[..., Any],
    doc: str,
    attrs: dict[str, Attr],
    examples: Callable[[], list[Example]],
) -> OpDef:
    def checked(*types: TensorType, axis_name: str, axis_size: int, **rest: Any) -> TensorType:
        no_key(f"{name}_c1", *types)
        if axis_size < 1:
            refuse(f"{name}_c2", f"axis {axis_name!r} must have at least one device, not {axis_size}")
        result: TensorType = infer(*types, axis_size=axis_size, **rest)
        return result

    return define(
        name,
        operands,
        checked,
        doc,
        attrs={**attrs, "axis_name": AXIS_NAME, "axis_size": AXIS_SIZE},
        examples=examples,
        properties="collective",
        family="collective",
    )


def _split(label: str, x: TensorType, axis: int, parts: int, tiled: bool) -> list[Any]:
    """The shape of one of ``parts`` parts of x along the axis (which vanishes when not tiled)."""
    one_axis(label, axis, len(x.shape))
    shape = list(x.shape)
    if tiled:
        if type(shape[axis]) is int and shape[axis] % parts:
            refuse(label, f"axis {axis} of {x} must split into {parts} equal parts")
        shape[axis] = dims.floordiv(shape[axis], parts)
    elif not dims.compatible(shape.pop(axis), parts):
        refuse(label, f"axis {axis} of {x} must have the size of the device axis, {parts}")
    return shape


def _join(label: str, shape: list[Any], axis: int, parts: int, tiled: bool) -> list[Any]:
    one_axis(label, axis, len(shape) if tiled else len(shape) + 1)
    if tiled:
        shape[axis] = dims.normal(shape[axis] * parts)
    else:
        shape.insert(axis, parts)
    return shape


_X = array("f32", [[1, 2, 3]])
_ONE: dict[str, Any] = {"axis_name": "d", "axis_size": 1}

all_reduce = _op(
    "all_reduce",
    "x",
    lambda x, axis_size, combiner: x,
    "The operands of all devices of the axis, combined elementwise; every device gets the result.",
    {"combiner": Attr("str", doc="how two elements are combined", choices=COMBINERS)},
    lambda: [example(_X, out=_X, combiner=c, **_ONE) for c in ("add", "max", "min")],
)
all_gather = _op(
    "all_gather",
    "x",
    lambda x, axis_size, axis, tiled: x.with_(shape=_join("all_gather_c3", list(x.shape), axis, axis_size, tiled)),
    "The operands of all devices, in their order: joined along `axis` (tiled), or stacked along a new one.",
    {"axis": Attr("int", doc="axis of the result along which operands lie"), "tiled": TILED},
    lambda: [
        example(_X, out=_X, axis=0, tiled=True, **_ONE),
        example(_X, out=_X.reshape(1, 1, 3), axis=1, tiled=False, **_ONE),
        example(_X, out=_X.reshape(1, 3, 1), axis=2, tiled=False, note="a new last axis", **_ONE),
    ],
)
reduce_scatter = _op(
    "reduce_scatter",
    "x",
    lambda x, axis_size, axis, tiled: x.with_(shape=_split("reduce_scatter_c3", x, axis, axis_size, tiled)),
    "The sum over all devices, of which device i keeps part i along `axis` (tiled), or element i (not tiled).",
    {"axis": Attr("int", doc="axis of x that is shared out"), "tiled": TILED},
    lambda: [
        example(_X, out=_X, axis=1, tiled=True, **_ONE),
        example(_X, out=_X[0], axis=0, tiled=False, note="the axis vanishes", **_ONE),
    ],
)


def _all_to_all(x: TensorType, axis_size: int, split_axis: int, concat_axis: int, tiled: bool) -> TensorType:
    shape = _split("all_to_all_c3", x, split_axis, axis_size, tiled)
    return x.with_(shape=_join("all_to_all_c4", shape, concat_axis, axis_size, tiled))


all_to_all = _op(
    "all_to_all",
    "x",
    _all_to_all,
    "Each device splits its operand along split_axis and sends part i to device i; what a device gets lies along "
    "concat_axis in the order of the senders. Tiled: axes are cut and joined. Not tiled: split_axis (of the size of "
    "the device axis) vanishes and concat_axis is new.",
    {
        "split_axis": Attr("int", doc="axis of x that is shared out"),
        "concat_axis": Attr("int", doc="axis of the result along which parts lie"),
        "tiled": TILED,
    },
    lambda: [
        example(_X, out=_X, split_axis=1, concat_axis=0, tiled=True, **_ONE),
        example(_X, out=_X.reshape(3, 1), split_axis=0, concat_axis=1, tiled=False, **_ONE),
    ],
)


def _permute(x: TensorType, axis_size: int, sources: tuple[int, ...], targets: tuple[int, ...]) -> TensorType:
    if len(sources) != len(targets):
        refuse("collective_permute_c3", f"each source needs one target: {sources} and {targets}")
    for devices in (sources, targets):
        if len(set(devices)) != len(devices) or not all(0 <= d < axis_size for d in devices):
            refuse("collective_permute_c4", f"devices {devices} must be distinct and lie in 0..{axis_size - 1}")
    return x


collective_permute = _op(
    "collective_permute",
    "x",
    _permute,
    "Device sources[i] sends its operand to device targets[i]; a device that is sent nothing gets zeros.",
    {"sources": Attr("ints", doc="sending devices"), "targets": Attr("ints", doc="receiving devices")},
    lambda: [
        example(_X, out=_X, sources=(0,), targets=(0,), **_ONE),
        example(_X, out=0 * _X, sources=(), targets=(), note="nothing sent: zeros", **_ONE),
    ],
)
axis_index = _op(
    "axis_index",
    "",
    lambda axis_size: TensorType(i32, ()),
    "Number of this device along the axis, from 0.",
    {},
    lambda: [example(out=array("i32", 0), **_ONE)],
)
