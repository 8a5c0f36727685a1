"""``jax.scipy.stats``: the functions of each distribution, and statistics."""

from __future__ import annotations

from . import Table, call, rows

_P = "jax.scipy.stats"
_SERIES = "a series of many terms"
_DENSITY = "pdf logpdf cdf logcdf sf logsf"
_MASS = "pmf logpmf"

# Of each distribution: its functions of a value, those of a probability, and the shape parameters before
# location and scale, where it takes these.
_CONTINUOUS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "beta": (_DENSITY, "", ("f32[4]h", "f32[4]h"), "f32[3,4]u"),
    "cauchy": (_DENSITY, "ppf isf", (), "f32[3,4]"),
    "chi2": (_DENSITY, "", ("f32[4]h",), "f32[3,4]+"),
    "expon": (_DENSITY, "ppf", (), "f32[3,4]"),
    "gamma": (_DENSITY, "", ("f32[4]+",), "f32[3,4]+"),
    "gennorm": ("pdf logpdf cdf", "", ("f32[4]h",), "f32[3,4]"),
    "gumbel_l": (_DENSITY, "ppf", (), "f32[3,4]"),
    "gumbel_r": (_DENSITY, "ppf", (), "f32[3,4]"),
    "laplace": ("pdf logpdf cdf", "", (), "f32[3,4]"),
    "logistic": ("pdf logpdf cdf sf", "ppf isf", (), "f32[3,4]"),
    "norm": (_DENSITY, "ppf isf", (), "f32[3,4]"),
    "pareto": (_DENSITY, "ppf", ("f32[4]+",), "f32[3,4]h"),
    "t": ("pdf logpdf", "", ("f32[4]h",), "f32[3,4]"),
    "truncnorm": (_DENSITY, "", ("f32[4]u", "f32[4]h"), "f32[3,4]h"),
    "uniform": ("pdf logpdf cdf", "ppf", (), "f32[3,4]u"),
}
_PLACED = {"gennorm": ()}  # takes no location and scale
_DISCRETE: dict[str, tuple[str, tuple[str, ...]]] = {
    "bernoulli": (_MASS, ("f32[4]u",)),
    "betabinom": (_MASS, (8, "f32[4]+", "f32[4]+")),  # type: ignore[dict-item]
    "binom": (_MASS, (8, "f32[4]u")),  # type: ignore[dict-item]
    "geom": (_MASS, ("f32[4]u",)),
    "nbinom": (_MASS, (5, "f32[4]u")),  # type: ignore[dict-item]
    "poisson": (_MASS + " cdf", ("f32[4]+",)),
}

TABLE: Table = {
    **{
        name: calls
        for family, (of_value, of_probability, shape, domain) in _CONTINUOUS.items()
        for functions, x in ((of_value, domain), (of_probability, "f32[3,4]u"))
        for name, calls in rows(
            f"{_P}.{family}",
            functions,
            *(
                call(x, *shape, *place).scaled(10, _SERIES)
                for place in ((), _PLACED.get(family, ("f32[4]u", "f32[4]+")))
            ),
        ).items()
    },
    **{
        name: calls
        for family, (functions, shape) in _DISCRETE.items()
        for name, calls in rows(
            f"{_P}.{family}",
            functions,
            *(call("i32[3,4]<6", *shape, *place).scaled(10, _SERIES) for place in ((), (1,))),
        ).items()
    },
    **rows(f"{_P}.bernoulli", "cdf", call("f32[3,4]", "f32[4]u")),
    **rows(f"{_P}.bernoulli", "ppf", call("f32[3,4]u", "f32[4]u")),
    **rows(f"{_P}.poisson", "entropy", call("f32[4]+"), call("f32[3]h")),
    **rows(f"{_P}.dirichlet", "pdf logpdf", call("f32[3]u", "f32[3]+").through(lambda f, x, a: f(x / x.sum(), a))),
    **rows(f"{_P}.multinomial", _MASS, call("i32[3]<4", "f32[3]u").through(lambda f, x, p: f(x, x.sum(), p / p.sum()))),
    **rows(
        f"{_P}.multivariate_normal", "pdf logpdf", call("f32[5,3]", "f32[3]", "f32[3,3]m"), call("f32[3]", 0.5, 2.0)
    ),
    **rows(f"{_P}.vonmises", "pdf logpdf", call("f32[3,4]", "f32[4]+")),
    **rows(f"{_P}.wrapcauchy", "pdf logpdf", call("f32[3,4]+", "f32[4]u")),
    **rows(
        _P,
        "gaussian_kde",
        call("f32[2,9]", "f32[2,4]").through(lambda f, d, x: f(d)(x)),
        call("f32[9]", "f32[4]", weights="f32[9]+").through(lambda f, d, x, weights: f(d, weights=weights).logpdf(x)),
    ),
    **rows(
        _P, "mode", call("i32[12]<4"), call("f32[4,5]", axis=1, keepdims=True), call("f32[9]n", nan_policy="propagate")
    ),
    **rows(
        _P,
        "rankdata",
        *(call("i32[3,5]<3", m, axis=1) for m in ("average", "min", "max", "dense", "ordinal")),
        call("f32[6]"),
    ),
    **rows(_P, "sem", call("f32[3,4]"), call("f32[3,4]", axis=None, ddof=0)),
}
