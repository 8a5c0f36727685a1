"""``jax.lax`` control flow, functions with rules of their own, and transformations of programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from . import Table, call, rows

_P = "jax.lax"
_ITERATION = "an iteration until it converges"


def _step(carry: Any, x: Any) -> Any:
    carry = jnp.tanh(carry + x)
    return carry, carry * 2


def _cube() -> Any:
    @jax.custom_jvp
    def cube(x: Any) -> Any:
        return x**3

    cube.defjvps(lambda t, ans, x: 7 * t * x)
    return cube


def _clipped() -> Any:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * jnp.cos(x),))
    return clipped


def _mapped(function: Any, x: Any) -> Any:
    return jax.vmap(function, axis_name="i")(x)


def _sharded(f: Any, x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("data",))
    return f(x * 2, jax.sharding.NamedSharding(mesh, PartitionSpec("data"))) + 1


TABLE: Table = {
    **rows(
        _P,
        "scan",
        call(_step, "f32[3]", "f32[6,3]"),
        call(_step, "f32[3]", "f32[6,3]", reverse=True),
        call(_step, "f32[3]", "f32[7,3]", unroll=3),
        call(_step, "f32[3]", "f32[6,3]", unroll=True),
        call(lambda c, x: (None, x**2), None, "f32[5]"),
        call(lambda c, _: (c * 0.5 + 1, c.sum()), "f32[4]", None, length=5),
        call(
            lambda c, x: ((c[0] + x["a"], c[1] * 2), {"b": x["n"] + c[1]}),
            ("f32[2]", "i32[]"),
            {"a": "f32[4,2]", "n": "i32[4]"},
        ),
        call(_step, "f32[3]", "f32[0,3]"),
        call("f32[3]", "f32[6,3]").through(lambda f, c, x: jax.grad(lambda c: f(_step, c, x)[1].sum())(c)),
        call("key", "f32[4]").through(
            lambda f, k, x: f(lambda k, v: (jax.random.split(k)[0], v + jax.random.normal(k)), k, x)[1]
        ),
    ),
    **rows(
        _P,
        "while_loop",
        call(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (0, "f32[3]")),
        call("f32[4]+").through(lambda f, x: jax.vmap(lambda v: f(lambda s: s < 10, lambda s: s * 2 + 0.5, v))(x)),
        call("f32[3]", "i32[]<6").through(
            lambda f, x, n: f(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + x), (np.int32(0), x))
        ),
        call(lambda s: False, lambda s: s + 1, "f32[3]"),
    ),
    **rows(
        _P,
        "fori_loop",
        call(0, 5, lambda i, s: s * 0.5 + i, "f32[3]"),
        call(0, "i32[]<7", lambda i, s: s + i, "f32[3]"),
        call(2, 8, lambda i, s: s.at[i].set(s[i - 1] + s[i - 2]), "f32[8]", unroll=2),
    ),
    **rows(
        _P,
        "cond",
        call("bool[]", jnp.sin, jnp.cos, "f32[3]"),
        call("bool[4]", "f32[4,3]").through(
            lambda f, p, x: jax.vmap(lambda q, v: f(q, jnp.sin, lambda u: u * 2, v))(p, x)
        ),
        call("f32[]", "f32[3]").through(
            lambda f, t, x: jax.grad(lambda v: f(t > 0, lambda u: (u**2).sum(), lambda u: jnp.exp(u).sum(), v))(x)
        ),
    ),
    **rows(
        _P,
        "switch",
        call("i32[]<3", [jnp.sin, jnp.cos, jnp.exp], "f32[3]"),
        call("i32[]", [jnp.sin, jnp.cos], "f32[3]"),
        call("i32[5]<3", "f32[5]").through(
            lambda f, i, x: jax.vmap(lambda j, v: f(j, [jnp.sin, jnp.cos, jnp.exp], v))(i, x)
        ),
    ),
    **rows(_P, "map", call(lambda x: jnp.dot(x, x), "f32[5,3]"), call(lambda x: x.sum() * x, "f32[7,3]", batch_size=3)),
    **rows(
        _P,
        "associative_scan",
        call(jnp.add, "f32[7]"),
        call(jnp.maximum, "f32[3,6]", axis=1, reverse=True),
        call(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), ("f32[9]u", "f32[9]")),
        call(jnp.matmul, "f32[5,2,2]"),
    ),
    **rows(
        _P,
        "custom_linear_solve",
        call("f32[4,4]m", "f32[4]").through(
            lambda f, a, b: f(lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b), symmetric=True)
        ),
        call("f32[4,4]m", "f32[4]").through(
            lambda f, a, b: jax.grad(
                lambda b: f(lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b), symmetric=True).sum()
            )(b)
        ),
    ),
    **rows(
        _P,
        "custom_root",
        call("f32[3]+").through(
            lambda f, y: f(
                lambda x: x**2 - y,
                jnp.ones_like(y),
                lambda g, x: lax.fori_loop(0, 30, lambda _, s: s - g(s) / (2 * s), x),
                lambda g, y: y / g(jnp.ones_like(y)),
            )
        ),
        call("f32[3]+").through(
            lambda f, y: jax.grad(
                lambda y: f(
                    lambda x: x**2 - y,
                    jnp.ones_like(y),
                    lambda g, x: lax.fori_loop(0, 30, lambda _, s: s - g(s) / (2 * s), x),
                    lambda g, y: y / g(jnp.ones_like(y)),
                ).sum()
            )(y)
        ),
    ),
    **rows(_P, "platform_dependent", call("f32[3]").through(lambda f, x: f(x, cpu=jnp.sin, default=jnp.cos))),
    **rows(_P, "composite", call("f32[3]").through(lambda f, x: f(lambda v: jnp.sin(v) * 2, "my.sine")(x))),
    **rows(_P, "with_sharding_constraint", call("f32[4,3]").through(_sharded)),
    **rows(_P, "dce_sink", call("f32[3]").through(lambda f, x: (f(x), x * 2)[1])),
    # -- collectives over the axis of a vmap, which traces to plain operations
    **rows(_P, "psum pmax pmin pmean", call("f32[4,3]").through(lambda f, x: _mapped(lambda v: v * f(v, "i"), x))),
    **rows(_P, "all_gather", call("f32[4,3]").through(lambda f, x: _mapped(lambda v: f(v, "i") + v, x))),
    **rows(_P, "all_to_all", call("f32[4,4]").through(lambda f, x: _mapped(lambda v: f(v, "i", 0, 0), x))),
    **rows(_P, "psum_scatter", call("f32[4,4]").through(lambda f, x: _mapped(lambda v: f(v, "i"), x))),
    **rows(
        _P, "ppermute", call("f32[3,4]").through(lambda f, x: _mapped(lambda v: f(v, "i", [(0, 1), (1, 2), (2, 0)]), x))
    ),
    **rows(_P, "pshuffle", call("f32[3,4]").through(lambda f, x: _mapped(lambda v: f(v, "i", [1, 2, 0]), x))),
    **rows(_P, "pswapaxes", call("f32[4,4]").through(lambda f, x: _mapped(lambda v: f(v, "i", 0), x))),
    **rows(_P, "axis_index axis_size", call("f32[4]").through(lambda f, x: _mapped(lambda v: v * f("i"), x))),
    # -- outside the namespaces that are enumerated
    "jax.custom_jvp": (
        call("f32[3]").through(lambda f, x: _cube()(x)),
        call("f32[3]").through(lambda f, x: jax.jvp(_cube(), (x,), (x + 1,))),
        call("f32[3]").through(lambda f, x: jax.vmap(jax.grad(_cube()))(x)),
    ),
    "jax.custom_vjp": (
        call("f32[3]").through(lambda f, x: _clipped()(x)),
        call("f32[3]").through(lambda f, x: jax.grad(lambda v: _clipped()(v).sum())(x)),
    ),
    "jax.checkpoint": (
        call("f32[3]").through(lambda f, x: f(jnp.sin)(x)),
        call("f32[3]").through(lambda f, x: jax.grad(lambda v: f(lambda u: jnp.sin(u) ** 2)(v).sum())(x)),
    ),
    "jax.grad": (call("f32[3,4]").through(lambda f, x: f(lambda v: (jnp.tanh(v) @ v.T).sum())(x)),),
    "jax.value_and_grad": (call("f32[3]").through(lambda f, x: f(lambda v: jnp.exp(v).sum())(x)),),
    "jax.jvp": (call("f32[3]", "f32[3]").through(lambda f, x, t: f(jnp.sin, (x,), (t,))),),
    "jax.vjp": (call("f32[3]", "f32[3]").through(lambda f, x, t: f(jnp.sin, x)[1](t)),),
    "jax.linearize": (call("f32[3]", "f32[3]").through(lambda f, x, t: f(jnp.sin, x)[1](t)),),
    "jax.hessian": (call("f32[3]").through(lambda f, x: f(lambda v: (v**3).sum() * v[0])(x)),),
    "jax.jacfwd": (call("f32[3]").through(lambda f, x: f(lambda v: jnp.outer(v, v))(x)),),
    "jax.jacrev": (call("f32[3]").through(lambda f, x: f(lambda v: jnp.outer(v, v))(x)),),
    "jax.vmap": (
        call("f32[5,3]", "f32[3]").through(lambda f, x, y: f(jnp.dot, in_axes=(0, None))(x, y)),
        call("f32[5,3]").through(lambda f, x: f(jax.grad(lambda v: jnp.sin(v).prod()))(x)),
    ),
    "jax.pure_callback": (
        call("f32[3]").through(lambda f, x: f(np.sin, jax.ShapeDtypeStruct((3,), np.float32), x)).refused("callback"),
    ),
}
