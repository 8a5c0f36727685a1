"""``ai.onnx.ml`` as far as tensors go: linear models, scalers, encoders of numbers, feature picking."""

from __future__ import annotations

from typing import Any

import numpy as np

from unigraph.dtypes import f32, f64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, cut, reshape

from .node import Node, RowBook

rows = RowBook()
DOMAIN = "ai.onnx.ml"


def matrix(n: Node) -> Value:
    """Input 0 as rows of floats."""
    x = n.value(0)
    x = x if x.type.dtype in (f32, f64) else n.b.convert(x, dtype="f32")
    return reshape(n.b, x, (1, *x.type.shape)) if x.type.rank == 1 else x


def floats(n: Node, name: str, default: Any = ()) -> np.ndarray:
    """A list of numbers in an attribute, as f32."""
    return np.asarray(n.attr(name, default), np.float32)


def transformed(n: Node, scores: Value) -> Value:
    """Scores under ``post_transform``."""
    name = n.attr("post_transform", "NONE")
    match name:
        case "NONE":
            return scores
        case "SOFTMAX":
            return n.b.softmax(scores, axis=1)
        case "LOGISTIC":
            return n.b.logistic(scores)
        case "SOFTMAX_ZERO":
            zero = n.b.eq(scores, 0.0)
            powers = n.b.select(zero, n.b.exp(scores), n.b.full_like(scores, 0.0))
            return n.b.div(powers, along(n.b, n.b.reduce_sum(powers, axes=(1,)), scores.type.shape, (0,)))
    raise Unsupported(f"{n.op_type} with post_transform {name}")


def labels(n: Node, best: Value) -> Value:
    """Class labels at positions; strings are refused."""
    known = n.attr("classlabels_int64s") or n.attr("classlabels_ints")
    if n.attr("classlabels_strings"):
        raise Unsupported(f"{n.op_type} with labels that are strings", "export it with integer labels")
    return n.b.take(n.b.constant(np.asarray(known, np.int64)), best, axis=0, mode="clip") if known else best


def _linear(n: Node, targets: int) -> Value:
    x = matrix(n)
    weight = floats(n, "coefficients").reshape(targets, -1)
    y = n.b.matmul(x, n.b.constant(weight.T.copy(), x.type.dtype))
    bias = floats(n, "intercepts")
    return n.b.add(y, along(n.b, n.b.constant(bias, x.type.dtype), y.type.shape, (1,))) if bias.size else y


@rows("LinearRegressor", domain=DOMAIN)
def linear_regressor(n: Node) -> Value:
    return transformed(n, _linear(n, n.attr("targets", 1)))


@rows("LinearClassifier", domain=DOMAIN)
def linear_classifier(n: Node) -> tuple[Value, Value]:
    """The label of the largest score, and all scores; one row of coefficients is a binary model."""
    known = n.attr("classlabels_ints") or n.attr("classlabels_strings") or []
    size = floats(n, "coefficients").size
    features = matrix(n).type.shape[1]
    scores = _linear(n, size // int(features))
    if scores.type.shape[1] == 1 and len(known) == 2:
        scores = n.b.concatenate(n.b.neg(scores), scores, axis=1)
        if n.attr("post_transform", "NONE") == "LOGISTIC":
            positive = n.b.logistic(cut(n.b, scores, 1, 1, 2))
            both = n.b.concatenate(n.b.sub(n.b.full_like(positive, 1.0), positive), positive, axis=1)
            return labels(n, n.b.argmax(scores, axis=1, index_dtype="i64")), both
    best = n.b.argmax(scores, axis=1, index_dtype="i64")
    return labels(n, best), transformed(n, scores)


@rows("Scaler", domain=DOMAIN)
def scaler(n: Node) -> Value:
    """(x - offset) * scale, one number each or one for each feature."""
    x = matrix(n)
    offset, scale = (
        along(n.b, n.b.constant(v.reshape(-1) if v.size > 1 else v.reshape(()), x.type.dtype), x.type.shape, axes)
        for v in (floats(n, "offset", [0.0]), floats(n, "scale", [1.0]))
        for axes in [(x.type.rank - 1,) if v.size > 1 else ()]
    )
    return cast(n.b, n.b.mul(n.b.sub(x, offset), scale), f32)


@rows("Normalizer", domain=DOMAIN)
def normalizer(n: Node) -> Value:
    """Rows divided by their largest value, their sum of magnitudes, or their length; zeros stay."""
    x = matrix(n)
    match n.attr("norm", "MAX"):
        case "L1":
            size = n.b.reduce_sum(n.b.abs(x), axes=(1,))
        case "L2":
            size = n.b.sqrt(n.b.reduce_sum(n.b.mul(x, x), axes=(1,)))
        case _:
            size = n.b.reduce_max(x, axes=(1,))
    safe = n.b.select(n.b.eq(size, 0.0), size, n.b.full_like(size, 1.0))
    return cast(n.b, n.b.div(x, along(n.b, safe, x.type.shape, (0,))), f32)


@rows("Binarizer", domain=DOMAIN)
def binarizer(n: Node) -> Value:
    x = n.value(0)
    return n.b.convert(n.b.gt(x, n.attr("threshold", 0.0)), dtype=x.type.dtype)


@rows("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(n: Node) -> Value:
    """Columns by index; a vector counts as one row."""
    x, index = n.value(0), n.value(1)
    index = reshape(n.b, index, (index.type.size,))
    y = n.b.take(x, index, axis=x.type.rank - 1, mode="clip")
    return reshape(n.b, y, (1, *y.type.shape)) if x.type.rank == 1 else y


@rows("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(n: Node) -> Value:
    parts = [n.b.convert(v, dtype="f32") if v.type.dtype is not f32 else v for v in n.values()]
    wide = [reshape(n.b, v, (*v.type.shape, 1)) if v.type.rank == 1 else v for v in parts]
    return n.b.concatenate(*wide, axis=1) if len(wide) > 1 else wide[0]


@rows("Imputer", domain=DOMAIN)
def imputer(n: Node) -> Value:
    """A value that stands for "missing" replaced, by one number or by one for each feature."""
    x = n.value(0)
    whole = x.type.dtype.is_integer
    fill = np.asarray(n.attr("imputed_value_int64s" if whole else "imputed_value_floats"))
    missing = n.attr("replaced_value_int64" if whole else "replaced_value_float", 0)
    new = n.b.constant(fill if fill.size > 1 else fill.reshape(()), x.type.dtype)
    gone = n.b.ne(x, x) if missing != missing else n.b.eq(x, missing)
    return n.b.select(gone, x, along(n.b, new, x.type.shape, (x.type.rank - 1,) if fill.size > 1 else ()))


@rows("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(n: Node) -> Value:
    """A new last axis with 1 at the category; unknown ones give zeros."""
    if n.attr("cats_strings"):
        raise Unsupported("OneHotEncoder over strings")
    x = n.value(0)
    known = np.asarray(n.attr("cats_int64s"), np.int64)
    shape = (*x.type.shape, len(known))
    spread = along(n.b, n.b.convert(x, dtype="i64"), shape, range(x.type.rank))
    return n.b.convert(n.b.eq(spread, along(n.b, n.b.constant(known), shape, (x.type.rank,))), dtype="f32")


@rows("LabelEncoder", domain=DOMAIN)
def label_encoder(n: Node) -> Value:
    """Numbers looked up in a table of numbers."""
    keys, values = _table(n, "keys"), _table(n, "values")
    if keys is None or values is None:
        raise Unsupported("LabelEncoder of strings has no place in a numeric graph")
    x = n.value(0)
    fallback = n.attr("default_tensor")
    if fallback is None:
        name = "default_float" if values.dtype.kind == "f" else "default_int64"
        fallback = n.attr(name, -0.0 if values.dtype.kind == "f" else -1)
    shape = (*x.type.shape, len(keys))
    own = along(n.b, n.b.constant(keys, x.type.dtype), shape, (x.type.rank,))
    spread = along(n.b, x, shape, range(x.type.rank))
    hit = n.b.eq(spread, own)
    if x.type.dtype.is_float:
        hit = n.b.or_(hit, n.b.and_(n.b.ne(spread, spread), n.b.ne(own, own)))
    found = n.b.take(n.b.constant(values), n.b.argmax(hit, axis=x.type.rank, index_dtype="i64"), axis=0, mode="clip")
    other = along(n.b, n.b.constant(np.asarray(fallback).reshape(()), found.type.dtype), found.type.shape, ())
    return n.b.select(n.b.reduce_or(hit, axes=(x.type.rank,)), other, found)


def _table(n: Node, what: str) -> np.ndarray | None:
    for kind, dtype in (("tensor", None), ("int64s", np.int64), ("floats", np.float32)):
        found = n.attr(f"{what}_{kind}")
        if found is not None:
            return np.asarray(found, dtype).reshape(-1)
    return None


@rows("ZipMap", domain=DOMAIN)
def zip_map(n: Node) -> Value:
    """The scores as the matrix they are: a list of dicts has no place among tensors."""
    return n.value(0)
