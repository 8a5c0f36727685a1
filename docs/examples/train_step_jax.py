"""step, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(...)``.
"""

import jax.numpy as jnp
from jax import lax

# Accelerators would otherwise multiply in a shorter format.
HIGHEST = lax.Precision.HIGHEST


def main(weights, speed, x, y):
    """weights_bias: f32[5], weights_hidden: f32[3,5], weights_out: f32[5,2], speed_bias: f32[5], speed_hidden:
    f32[3,5], speed_out: f32[5,2], x: f32[batch,3], y: f32[batch,2]

    Gives f32[], f32[5], f32[3,5], f32[5,2], f32[5], f32[3,5], f32[5,2].
    """
    weights_bias = jnp.asarray(weights["bias"])
    weights_hidden = jnp.asarray(weights["hidden"])
    weights_out = jnp.asarray(weights["out"])
    speed_bias = jnp.asarray(speed["bias"])
    speed_hidden = jnp.asarray(speed["hidden"])
    speed_out = jnp.asarray(speed["out"])
    x = jnp.asarray(x)
    y = jnp.asarray(y)
    batch = x.shape[0]

    # jvp(network)
    add_out = jnp.matmul(x, weights_hidden, precision=HIGHEST) + weights_bias
    tanh_out = jnp.tanh(add_out)
    sub_out = 1.0 - tanh_out
    sub_out_2 = jnp.matmul(tanh_out, weights_out, precision=HIGHEST) - y

    # jvp(loss)
    mul_out = 2.0 * sub_out_2
    converted = jnp.asarray(batch, jnp.int32).astype(jnp.float32)
    div_out = jnp.square(sub_out_2).sum(axis=1).sum() / converted

    # transpose(jvp(loss))
    mul_out_2 = (1.0 / converted) * mul_out

    # transpose(jvp(network))
    product = jnp.einsum("ca,cb->ab", mul_out_2, tanh_out, precision=HIGHEST)
    transpose_out = product.T
    mul_out_3 = jnp.matmul(mul_out_2, weights_out.T, precision=HIGHEST) * sub_out
    add_out_2 = mul_out_3 + mul_out_3 * tanh_out
    reduce_sum_out = add_out_2.sum(axis=0).reshape(1, 5).sum(axis=0)
    transpose_out_2 = jnp.einsum("ca,cb->ab", add_out_2, x, precision=HIGHEST).T

    # update
    sub_out_3 = 0.9 * speed_bias - 0.1 * reduce_sum_out
    sub_out_4 = 0.9 * speed_hidden - 0.1 * transpose_out_2
    sub_out_5 = 0.9 * speed_out - 0.1 * transpose_out
    add_out_3 = weights_bias + sub_out_3
    add_out_4 = weights_hidden + sub_out_4
    add_out_5 = weights_out + sub_out_5
    return (
        div_out,
        {"bias": add_out_3, "hidden": add_out_4, "out": add_out_5},
        {"bias": sub_out_3, "hidden": sub_out_4, "out": sub_out_5},
    )
