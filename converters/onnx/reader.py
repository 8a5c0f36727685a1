"""Reading ONNX models: files and protobufs checked, tensors as NumPy arrays, nothing executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from unigraph.errors import FormatError

from .dtypes import FROM_ONNX


def read(model: Any) -> tuple[onnx.ModelProto, str]:
    """A ModelProto from a proto, bytes or a path, and the folder its external data may lie in.

    Raises FormatError when it is not an ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        return model, ""
    if isinstance(model, bytes):
        return _parsed(model, "model"), ""
    path = Path(model)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None
    return _parsed(data, str(path)), str(path.resolve().parent)


def _parsed(data: bytes, where: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise FormatError("not an ONNX model (the protobuf does not parse)", where) from error
    if not model.opset_import or not model.HasField("graph"):
        raise FormatError("not an ONNX model (no opset or no graph)", where)
    return model


def array(tensor: onnx.TensorProto, folder: str) -> np.ndarray:
    """A tensor's data. External data is mapped, and must lie inside the model's folder.

    Raises FormatError for strings, wrong sizes, or a location outside.
    """
    where = f"tensor {tensor.name!r}"
    if tensor.data_type not in FROM_ONNX:
        raise FormatError(
            f"element type {onnx.TensorProto.DataType.Name(tensor.data_type)} has no numeric meaning", where
        )
    if any(d < 0 for d in tensor.dims):
        raise FormatError(f"negative size in {list(tensor.dims)}", where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, folder, where)
    try:
        found = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # onnx raises many kinds here for broken tensors
        raise FormatError(f"broken tensor data: {error}", where) from None
    return np.asarray(found).astype(FROM_ONNX[tensor.data_type].numpy, copy=False)


def _external(tensor: onnx.TensorProto, folder: str, where: str) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    root = Path(folder).resolve()
    path = (root / entries.get("location", "")).resolve()
    if not folder or root not in path.parents:
        raise FormatError(f"external data {entries.get('location')!r} lies outside the model's folder", where)
    kind = FROM_ONNX[tensor.data_type]
    shape = tuple(tensor.dims)
    need = int(np.prod(shape, dtype=np.int64)) * kind.numpy.itemsize
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", need))
        size = path.stat().st_size
    except (ValueError, OSError) as error:
        raise FormatError(f"external data cannot be read: {error}", where) from None
    if length != need or offset < 0 or offset + length > size:
        raise FormatError(f"external data holds {size} bytes, {need} are wanted from {offset}", where)
    if not need:
        return np.zeros(shape, kind.numpy)
    return np.memmap(path, mode="c", dtype=kind.numpy, shape=shape, offset=offset)


def attributes(node: onnx.NodeProto, folder: str) -> dict[str, Any]:
    """The attributes of a node as Python values; tensors as arrays, graphs as protos."""
    found: dict[str, Any] = {}
    kinds = onnx.AttributeProto
    for a in node.attribute:
        if a.type == kinds.TENSOR:
            found[a.name] = array(a.t, folder)
        elif a.type == kinds.STRINGS:
            found[a.name] = [s.decode(errors="replace") for s in a.strings]
        elif a.type in (
            kinds.INT,
            kinds.FLOAT,
            kinds.STRING,
            kinds.INTS,
            kinds.FLOATS,
            kinds.GRAPH,
            kinds.TYPE_PROTO,
            kinds.GRAPHS,
        ):
            value = onnx.helper.get_attribute_value(a)
            found[a.name] = list(value) if a.type in (kinds.INTS, kinds.FLOATS) else value
        elif a.type != kinds.UNDEFINED:
            found[a.name] = a
    return found
