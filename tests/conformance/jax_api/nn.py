"""``jax.nn`` and ``jax.nn.initializers``; ``jax.ops`` and ``jax.image``."""

from __future__ import annotations

from . import Table, call, rows

_P, _I = "jax.nn", "jax.nn.initializers"
_FLOAT = (call("f32[3,4]"), call("f64[5]"), call("bf16[8]"))


def _make(f, key, shape, *given, **options):  # type: ignore[no-untyped-def]
    return f(*given, **options)(key, shape)


TABLE: Table = {
    **rows(
        _P,
        "relu relu6 silu swish mish soft_sign hard_sigmoid hard_silu hard_swish hard_tanh log_sigmoid sigmoid "
        "softplus sparse_plus sparse_sigmoid squareplus selu tanh identity",
        *_FLOAT,
    ),
    **rows(_P, "log1mexp", call("f32[3,4]+"), call("f64[5]+")),
    **rows(_P, "gelu", *_FLOAT, call("f32[3,4]", approximate=False)),
    **rows(_P, "celu elu", *_FLOAT, call("f32[3,4]", alpha=0.5)),
    **rows(_P, "leaky_relu", *_FLOAT, call("f32[3,4]", negative_slope=0.3)),
    **rows(_P, "glu", call("f32[3,4]"), call("f32[4,3]", axis=0)),
    **rows(
        _P,
        "softmax log_softmax standardize",
        *_FLOAT[:2],
        call("f32[3,4]", axis=0),
        call("f32[3,4]", where="bool[3,4]"),
    ),
    **rows(_P, "softmax", *_FLOAT, call("f32[3,4]", axis=(0, 1)), call("f32[3,4]", where="bool[3,4]")),
    **rows(
        _P,
        "logsumexp",
        *_FLOAT,
        call("f32[3,4]", axis=1, keepdims=True),
        call("f32[3,4]", b="f32[3,4]+", axis=0),
        call("f32[5]", b="f32[5]", return_sign=True),
    ),
    **rows(_P, "logmeanexp", *_FLOAT[:2], call("f32[3,4]", axis=1, keepdims=True)),
    **rows(_P, "one_hot", call("i32[4]", 5), call("i32[2,3]<4", 4, axis=0, dtype="int32")),
    **rows(
        _P,
        "dot_product_attention",
        call("f32[2,5,4,8]", "f32[2,6,4,8]", "f32[2,6,4,8]"),
        call("f32[2,5,4,8]", "f32[2,5,2,8]", "f32[2,5,2,8]", is_causal=True, scale=0.5),
        call("f32[5,2,8]", "f32[6,2,8]", "f32[6,2,8]", bias="f32[2,5,6]", mask="bool[2,5,6]"),
        call("f32[2,6,2,8]", "f32[2,6,2,8]", "f32[2,6,2,8]", local_window_size=(2, 1)),
        call(
            "f32[2,5,2,8]",
            "f32[2,6,2,8]",
            "f32[2,6,2,8]",
            query_seq_lengths="i32[2]<5",
            key_value_seq_lengths="i32[2]<5",
        ).through(
            lambda f, q, k, v, query_seq_lengths, key_value_seq_lengths: f(
                q, k, v, query_seq_lengths=query_seq_lengths + 1, key_value_seq_lengths=key_value_seq_lengths + 1
            )
        ),
    ),
    **rows(_P, "scaled_matmul", call("f32[1,4,32]", "f32[1,3,32]").through(lambda f, a, b: f(*_operands(a, b)))),
    # -- initializers: each returns a function of a key and a shape
    **rows(
        _I, "uniform normal truncated_normal", call("key", (3, 4)).through(_make), call("key:rbg", (8,)).through(_make)
    ),
    **rows(_I, "constant", call("key", (3, 4), 2.5).through(_make)),
    **rows(_I, "zeros ones", call("key", (3, 4))),
    **rows(_I, "orthogonal", call("key", (4, 3)).through(_make), call("key", (3, 4), 0.5).through(_make)),
    **rows(_I, "delta_orthogonal", call("key", (3, 3, 4)).through(lambda f, k, s: f()(k, (*s, 5)))),
    **rows(
        _I,
        "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal lecun_uniform "
        "xavier_normal xavier_uniform",
        call("key", (3, 4)).through(_make),
        call("key", (3, 3, 4, 5), dtype="float32").through(_make),
    ),
    **rows(
        _I,
        "variance_scaling",
        *(
            call("key", (6, 4), 2.0, m, d).through(_make)
            for m in ("fan_in", "fan_avg")
            for d in ("normal", "uniform", "truncated_normal")
        ),
    ),
    # -- ops and image
    **rows(
        "jax.ops",
        "segment_sum segment_max segment_min segment_prod",
        call("f32[8]", "i32[8]<4", 4),
        call("f32[8,3]", "i32[8]<4", num_segments=5),
        call("f32[8]", "i32[8]<4", 4, mode="drop"),
        call("i32[8]", "i32[8]<4", 4),
    ),
    **rows(
        "jax.image",
        "resize",
        *(call("f32[1,6,7,2]", (1, 9, 4, 2), m) for m in ("nearest", "linear", "cubic", "lanczos3", "lanczos5")),
        call("f32[6,7]", (3, 5), "linear", antialias=False),
    ),
    **rows("jax.image", "scale_and_translate", call("f32[6,7]", (8, 5), (0, 1), "f32[2]+", "f32[2]", "linear")),
}


def _operands(a, b):  # type: ignore[no-untyped-def]
    import jax.numpy as jnp

    narrow = jnp.float8_e4m3fn
    ones = jnp.ones((1, 4, 1), jnp.float8_e8m0fnu)
    return a.astype(narrow), b.astype(narrow), ones, ones[:, :3]
