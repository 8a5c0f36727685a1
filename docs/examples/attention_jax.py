"""attention_block, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from attention_jax.safetensors.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax

# Accelerators would otherwise multiply in a shorter format.
HIGHEST = lax.Precision.HIGHEST
WEIGHTS = Path(__file__).with_name("attention_jax.safetensors")
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
    """x: f32[batch,seq,8]

    Gives f32[batch,seq,8].
    """
    x = jnp.asarray(x)
    batch = x.shape[0]
    seq = x.shape[1]

    # norm
    layer_norm_out = layer_norm(x, weights["norm.weight"], weights["norm.bias"])

    # attention
    h = linear(layer_norm_out, weights["query.weight"])
    transpose_out = h.reshape(batch, seq, 2, 4).transpose(0, 2, 1, 3)
    h_2 = linear(layer_norm_out, weights["key.weight"])
    transpose_out_2 = h_2.reshape(batch, seq, 2, 4).transpose(0, 2, 1, 3)
    h_3 = linear(layer_norm_out, weights["value.weight"])
    transpose_out_3 = h_3.reshape(batch, seq, 2, 4).transpose(0, 2, 1, 3)
    attention_out = attention(transpose_out, transpose_out_2, transpose_out_3)
    reshape_out = attention_out.transpose(0, 2, 1, 3).reshape(batch, seq, 8)

    # out
    h_4 = linear_2(reshape_out, weights["out.weight"], weights["out.bias"])

    return x + h_4


def layer_norm(x, weight, bias):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the trailing axes. Here normalized_rank=1, epsilon=1e-05."""
    sub_out = x - (x.sum(axis=2) / 8.0)[..., None]
    mul_out = sub_out * lax.rsqrt((sub_out * sub_out).sum(axis=2) / 8.0 + 1e-05)[..., None]
    return mul_out * weight + bias


def linear(x, weight):
    """x weight^T + bias over the last axis of x."""
    return jnp.matmul(x, weight.T, precision=HIGHEST)


def attention(q, k, v):
    """softmax(q k^T * scale) v. Here is_causal=True."""
    seq = q.shape[2]
    ge_out = lax.broadcasted_iota(jnp.int32, (seq, seq), 0) >= lax.broadcasted_iota(jnp.int32, (seq, seq), 1)
    select_out = jnp.where(ge_out, jnp.einsum("abce,abde->abcd", q, k, precision=HIGHEST) * 0.5, -jnp.inf)
    reduce_max_out = lax.reduce_max(select_out, axes=(3,))
    sub_out = select_out - jnp.where(reduce_max_out == (-jnp.inf), 0.0, reduce_max_out)[..., None]
    exp_out = jnp.exp(sub_out)
    reduce_sum_out = exp_out.sum(axis=3)
    div_out = exp_out / jnp.where(reduce_sum_out == 0.0, 1.0, reduce_sum_out)[..., None]
    return jnp.einsum("abce,abed->abcd", div_out, v, precision=HIGHEST)


def linear_2(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    return jnp.matmul(x, weight.T, precision=HIGHEST) + bias
