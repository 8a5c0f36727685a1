"""mlp, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from mlp_jax.safetensors.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

WEIGHTS = Path(__file__).with_name("mlp_jax.safetensors")
DTYPES = {"F32": np.float32}


def load_weights(path=WEIGHTS):
    """The arrays of a safetensors file by name."""
    data = np.asarray(np.memmap(path, np.uint8, "c"))
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    weights = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        array = data[start + begin : start + end].view(DTYPES[item["dtype"]]).reshape(item["shape"])
        weights[name] = jnp.asarray(array)
    return weights


def main(weights, x):
    """x: f32[batch,4]

    Gives f32[batch,2].
    """
    x = jnp.asarray(x)

    # hidden
    h = linear(x, weights["hidden.weight"], weights["hidden.bias"])
    gelu_out = gelu(h)

    # out
    h_2 = linear_2(gelu_out, weights["out.weight"], weights["out.bias"])
    return h_2


def linear(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    batch = x.shape[0]
    product = dot_general(x, weight, lhs_contracting=(1,), rhs_contracting=(1,))
    spread = lax.broadcast_in_dim(bias, shape=(batch, 8), broadcast_dimensions=(1,))
    add_out = add(product, spread)
    return add_out


def gelu(x):
    """x times the normal distribution function of x. Here approximate="none"."""
    batch = x.shape[0]
    spread = lax.broadcast_in_dim(jnp.array(0.5, jnp.float32), shape=(batch, 8), broadcast_dimensions=())
    mul_out = mul(x, spread)
    spread_2 = lax.broadcast_in_dim(jnp.array(-0.70710677, jnp.float32), shape=(batch, 8), broadcast_dimensions=())
    mul_out_2 = mul(x, spread_2)
    erfc_out = lax.erfc(mul_out_2)
    mul_out_3 = mul(mul_out, erfc_out)
    return mul_out_3


def linear_2(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    batch = x.shape[0]
    product = dot_general(x, weight, lhs_contracting=(1,), rhs_contracting=(1,))
    spread = lax.broadcast_in_dim(bias, shape=(batch, 2), broadcast_dimensions=(1,))
    add_out = add(product, spread)
    return add_out


_PRECISION = lax.Precision.HIGHEST


def to_jax(dtype):
    """The jax dtype: 64-bit types are narrowed where x64 is off."""
    return jax.dtypes.canonicalize_dtype(dtype.numpy)


def _numpy(dtype):
    return None if dtype is None else to_jax(dtype)


def dot_general(
    x,
    y,
    lhs_contracting,
    rhs_contracting,
    lhs_batch=(),
    rhs_batch=(),
    out_dtype=None,
):
    numbers = ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))
    return lax.dot_general(x, y, numbers, precision=_PRECISION, preferred_element_type=_numpy(out_dtype))


def add(x, y):
    return lax.bitwise_or(x, y) if x.dtype == jnp.bool_ else lax.add(x, y)


def mul(x, y):
    return lax.bitwise_and(x, y) if x.dtype == jnp.bool_ else lax.mul(x, y)
