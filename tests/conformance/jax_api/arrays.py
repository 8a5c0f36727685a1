"""Arguments from their descriptions: ``DTYPE[SHAPE]DOMAIN`` or ``KEY[SHAPE]``.

Domains: none for both signs, ``+`` positive, ``u`` inside (0, 1), ``h`` above 1, ``s`` sorted, ``n`` with NaN,
``m`` positive definite matrices, ``d`` matrices with a strong diagonal, ``l`` the same but lower triangular,
``<N`` integers in [0, N), ``p`` a permutation. Keys: ``key`` (threefry), ``key:rbg``, ``key:unsafe_rbg`` and, as
plain words, ``raw`` and ``raw:rbg``.
"""

from __future__ import annotations

import re
from typing import Any

import jax
import ml_dtypes
import numpy as np

_DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}
_ARRAY = re.compile(rf"({'|'.join(_DTYPES)})\[([\d,]*)\](.*)")
_KEY = re.compile(r"(key|raw)(?::(rbg|unsafe_rbg))?(?:\[(\d+)\])?")
_WIDE = re.compile(r"(?:[iuf]64|c128)\[")


def is_array(leaf: Any) -> bool:
    """Whether an argument describes an array or a key."""
    return isinstance(leaf, str) and bool(_ARRAY.fullmatch(leaf) or _KEY.fullmatch(leaf))


def is_wide(leaf: Any) -> bool:
    """Whether an argument needs 64 bits."""
    return isinstance(leaf, str) and bool(_WIDE.match(leaf))


def make(description: str, random: np.random.RandomState) -> Any:
    """The array or key that a description stands for."""
    found = _KEY.fullmatch(description)
    if found:
        kind, implementation, count = found.groups()
        key = jax.random.key(random.randint(1 << 30), impl=implementation or "threefry2x32")
        key = jax.random.split(key, int(count)) if count else key
        return jax.random.key_data(key) if kind == "raw" else key
    name, dims, domain = _ARRAY.fullmatch(description).groups()  # type: ignore[union-attr]
    shape = tuple(int(d) for d in dims.split(",") if d)
    dtype = np.dtype(_DTYPES[name])
    return np.asarray(_values(dtype, shape, domain, random)).astype(dtype)


def _values(dtype: np.dtype[Any], shape: tuple[int, ...], domain: str, random: np.random.RandomState) -> Any:
    if dtype.kind == "b":
        return random.rand(*shape) < 0.5
    if dtype.kind in "iu":
        if domain.startswith("<"):
            return random.randint(int(domain[1:]), size=shape)
        if domain == "p":
            return random.permutation(shape[0])
        values = random.randint(0 if dtype.kind == "u" else -9, 10, size=shape)
        return _DOMAINS[domain](values, random) if domain != "+" else random.randint(1, 10, size=shape)
    values = random.randn(*shape) * 1.5
    if dtype.kind == "c":
        values = values + 1j * random.randn(*shape)
    return _DOMAINS[domain](values, random)


def _strong(x: Any, random: np.random.RandomState) -> Any:
    return x + 4 * x.shape[-1] * np.eye(*x.shape[-2:])


_DOMAINS: dict[str, Any] = {
    "": lambda x, random: x,
    "+": lambda x, random: random.uniform(0.1, 3, np.shape(x)),
    "u": lambda x, random: random.uniform(0.05, 0.95, np.shape(x)),
    "h": lambda x, random: 1 + np.abs(x),
    "s": lambda x, random: np.sort(x, -1),
    "n": lambda x, random: np.where(random.rand(*np.shape(x)) < 0.3, np.nan, x),
    "m": lambda x, random: x @ np.conj(np.swapaxes(x, -1, -2)) + x.shape[-1] * np.eye(x.shape[-1]),
    "d": _strong,
    "l": lambda x, random: np.tril(_strong(x, random)),
}
