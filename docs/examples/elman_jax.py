"""network, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from elman_jax.safetensors.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax

# Accelerators would otherwise multiply in a shorter format.
HIGHEST = lax.Precision.HIGHEST
WEIGHTS = Path(__file__).with_name("elman_jax.safetensors")
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


def main(weights, xs):
    """xs: f32[time,3]

    Gives f32[4], f32[time,2].
    """
    xs = jnp.asarray(xs)
    spread = jnp.full((4,), 0.0, jnp.float32)

    def step(carry, x):
        product = jnp.matmul(carry, weights["weights.hidden"], precision=HIGHEST)
        add_out = jnp.matmul(x, weights["weights.inner"], precision=HIGHEST) + product
        tanh_out = jnp.tanh(add_out + weights["weights.bias"])
        product_2 = jnp.matmul(tanh_out, weights["weights.out"], precision=HIGHEST)
        return tanh_out, product_2

    carry, ys = lax.scan(step, spread, xs)
    return (carry, ys)
