"""``jax.random``: keys, and each distribution with keys of each kind."""

from __future__ import annotations

from . import Call, Table, call, rows

_P = "jax.random"
_KEYS = ("key", "key:rbg", "key:unsafe_rbg", "raw")


def _each(*arguments: object, **options: object) -> tuple[Call, ...]:
    """The call with a key of each kind in front."""
    return tuple(call(key, *arguments, **options) for key in _KEYS)


_S = (3, 4)

TABLE: Table = {
    **rows(_P, "PRNGKey key", call("i32[]"), call(7), call("i32[]", impl="rbg"), call("u32[]", impl="unsafe_rbg")),
    **rows(_P, "key_data clone", call("key"), call("key:rbg[3]")),
    **rows(_P, "wrap_key_data", call("u32[2]").through(lambda f, d: f(d)), call("u32[3,4]", impl="rbg")),
    **rows(_P, "split", *_each(), *_each(5), call("key", (2, 3))),
    **rows(_P, "fold_in", *_each(7), *_each("i32[]+"), call("key", "u32[]")),
    **rows(_P, "bits", *_each(_S), *(call("key", (7,), dtype=d) for d in ("uint8", "uint16")), call("key", ())),
    **rows(
        _P,
        "uniform",
        *_each(_S),
        *_each(_S, minval=-2.0, maxval=3.0),
        call("key", (5,), "bfloat16"),
        call("key", (5,), "float16", -1, 1),
        call("key", _S, minval="f32[4]u", maxval="f32[3,1]h"),
    ),
    **rows(_P, "normal", *_each(_S), call("key", (5,), "bfloat16"), call("key", (5,), "complex64")),
    **rows(_P, "truncated_normal", *_each(-2.0, 1.0, _S), call("key", "f32[4]u", "f32[3,1]h")),
    **rows(
        _P, "bernoulli", *_each(), *_each(0.3, _S), call("key", "f32[4]u", _S), call("key", "f32[4]u", _S, mode="high")
    ),
    **rows(
        _P,
        "randint",
        *_each(_S, 0, 10),
        *_each(_S, -5, 1000),
        call("key", (7,), 0, 200, "uint8"),
        call("key", _S, "i32[4]", 20),
        call("key", (5,), -100, 100, "int16"),
    ),
    **rows(_P, "exponential gumbel laplace logistic cauchy rayleigh maxwell", *_each(_S)[:2]),
    **rows(_P, "exponential laplace logistic cauchy", *_each(_S), call("key", (5,), "float16")),
    **rows(_P, "gumbel", *_each(_S), call("key", _S, mode="high")),
    **rows(_P, "rayleigh", *_each(2.0, _S)),
    **rows(_P, "maxwell rademacher", *_each(_S)),
    **rows(_P, "double_sided_maxwell", *_each(0.5, 2.0, _S)),
    **rows(_P, "gamma loggamma", *_each(2.5, _S), call("key", "f32[4]+", _S), call("key", "f32[4]u")),
    **rows(_P, "beta", *_each(2.0, 0.7, _S), call("key", "f32[4]+", "f32[4]+")),
    **rows(_P, "dirichlet", *_each("f32[4]+", (3,))),
    **rows(_P, "chisquare t", *_each(4.0, _S), call("key", "f32[4]h")),
    **rows(_P, "f", *_each(4.0, 6.0, _S)),
    **rows(_P, "pareto", *_each(2.0, _S), call("key", "f32[4]+")),
    **rows(_P, "poisson", *_each(3.0, _S), call("key", "f32[4]+"), call("key", 40.0, (5,))),
    **rows(_P, "binomial", *_each(10, 0.3, _S), call("key", "f32[4]h", "f32[4]u"), call("key", 100, 0.4, (5,))),
    **rows(_P, "geometric", *_each(0.3, _S)),
    **rows(_P, "multinomial", *(c.through(lambda f, k, n, p: f(k, n, p / p.sum())) for c in _each(10.0, "f32[4]u"))),
    **rows(_P, "triangular", *_each(0.0, 0.4, 1.0, _S)),
    **rows(_P, "wald weibull_min", call("key", 1.5, shape=_S)),
    **rows(_P, "wald", *_each(1.5, _S)),
    **rows(_P, "weibull_min", *_each(1.5, 2.0, _S)),
    **rows(_P, "lognormal", *_each(0.5, _S)),
    **rows(_P, "generalized_normal", *_each(1.5, _S)),
    **rows(_P, "ball", *_each(3, 2.0, (4,)), call("key", 2, 1.0)),
    **rows(_P, "orthogonal", *_each(3), call("key", 3, (2,), dtype="complex64"), call("key", 3, m=4)),
    **rows(
        _P,
        "multivariate_normal",
        *_each("f32[3]", "f32[3,3]m"),
        *(call("key", "f32[3]", "f32[3,3]m", (2,), method=m) for m in ("cholesky", "eigh", "svd")),
    ),
    **rows(
        _P,
        "categorical",
        *_each("f32[3,4]"),
        call("key", "f32[4]", shape=(5,)),
        call("key", "f32[3,4]", axis=0),
        call("key", "f32[6]", shape=(3,), replace=False),
        call("key", "f32[4]", mode="high"),
    ),
    **rows(
        _P,
        "choice",
        *_each(7, _S),
        call("key", "f32[5]", (3,), replace=False),
        call("key", "f32[5,2]", (4,)),
        call("key", "f32[5]", (4,), p="f32[5]u").through(lambda f, k, a, s, p: f(k, a, s, p=p / p.sum())),
        call("key", 6, (3,), replace=False, p="f32[6]u").through(
            lambda f, k, a, s, p, replace: f(k, a, s, replace, p / p.sum())
        ),
    ),
    **rows(_P, "permutation", *_each(8), *_each("f32[5,3]"), call("key", "f32[5,3]", axis=1, independent=True)),
}
