"""mlp, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from mlp_jax.safetensors.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax

# Accelerators would otherwise multiply in a shorter format.
HIGHEST = lax.Precision.HIGHEST
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
    return linear(gelu_out, weights["out.weight"], weights["out.bias"])


def linear(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    return jnp.matmul(x, weight.T, precision=HIGHEST) + bias


def gelu(x):
    """x times the normal distribution function of x. Here approximate="none"."""
    return x * 0.5 * lax.erfc(x * -0.70710677)
