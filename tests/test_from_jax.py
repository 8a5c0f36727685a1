"""Captures from JAX: the graph, on the numpy and the jax table, gives what the jitted function gives."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from unigraph.converters.jaxpr import from_jax, lower_jax, to_jax
from unigraph.converters.jaxpr.compat import enable_x64
from unigraph.errors import InputError, UnsupportedError
from unigraph.graph import KEY, Graph
from unigraph.runtime.engines import compile
from unigraph.tolerances import difference

RNG = np.random.default_rng(0)


def arr(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def leaves(x: Any) -> list[np.ndarray]:
    found = jax.tree_util.tree_leaves(x)
    return [np.asarray(jax.random.key_data(v) if jnp.issubdtype(v.dtype, jax.dtypes.prng_key) else v) for v in found]


def agree(actual: Any, expected: Any, scale: float = 20.0) -> None:
    actual, expected = leaves(actual), leaves(expected)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        assert difference(a, e, scale) is None, difference(a, e, scale)


def check(fn: Any, *args: Any, scale: float = 20.0, **options: Any) -> Graph:
    """Capture; compare the numpy engine and the converted function with the jitted original."""
    graph = from_jax(fn, *args, **options)
    expected = jax.jit(fn)(*args)
    held = options.get("weights", ())
    held = (held,) if isinstance(held, int) else held
    given = [a for i, a in enumerate(args) if i not in held]
    plain = [jax.tree_util.tree_map(_numpy, a) for a in given]
    agree(compile(graph, "numpy")(*plain), expected, scale)
    back, params = to_jax(graph)
    agree(jax.jit(back)(params, *given), expected, scale)
    return graph


def _numpy(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float)) else np.asarray(jax.random.key_data(x) if _key(x) else x)


def _key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


MLP = {"dense": {"kernel": arr(4, 8), "bias": arr(8)}, "out": {"kernel": arr(8, 3)}}


def mlp(params: Any, x: Any) -> Any:
    h = jax.nn.relu(x @ params["dense"]["kernel"] + params["dense"]["bias"])
    return jax.nn.softmax(h @ params["out"]["kernel"])


def conv_net(w: Any, x: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(jax.nn.gelu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y.mean((1, 2))


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(mask, scores, -1e9), -1), v)


def rnn(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ w)
        return h, h.sum()

    return lax.scan(step, jnp.zeros(w.shape[0]), xs, reverse=True)


def newton(x: Any) -> Any:
    return lax.while_loop(
        lambda s: jnp.abs(s[0] * s[0] - x) > 1e-4, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0)
    )


def branch(x: Any) -> Any:
    a = lax.cond(x[0] > 0, lambda v: v * 2, lambda v: v - 1, x)
    return lax.switch(jnp.int32(x[1] * 10), [jnp.sin, jnp.cos, lambda v: v * v], a)


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 2


clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -1, 1) * x,))

CASES: dict[str, tuple[Any, ...]] = {
    "mlp": (mlp, MLP, arr(5, 4)),
    "conv_net": (conv_net, arr(3, 3, 2, 4), arr(2, 16, 16, 2)),
    "attention": (attention, arr(2, 5, 2, 4), arr(2, 5, 2, 4), arr(2, 5, 2, 4)),
    "rnn": (rnn, arr(4, 4), arr(6, 4)),
    "while": (newton, np.float32(7)),
    "cond": (branch, np.array([0.5, 0.11], np.float32)),
    "cond_other": (branch, np.array([-0.5, 3.0], np.float32)),
    "custom_vjp": (lambda x: clipped(x).sum(), arr(3)),
    "custom_vjp_grad": (jax.grad(lambda x: (clipped(x) ** 3).sum()), arr(3)),
    "remat": (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), arr(3)),
    "grad_mlp": (jax.grad(lambda p, x: (mlp(p, x)[:, 0] ** 2).sum()), MLP, arr(5, 4)),
    "grad_conv": (jax.grad(lambda w, x: (conv_net(w, x) ** 2).sum()), arr(3, 3, 2, 4), arr(2, 16, 16, 2)),
    "grad_rnn": (jax.grad(lambda w, xs: rnn(w, xs)[1].sum()), arr(4, 4), arr(6, 4)),
    "vmap": (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), arr(3, 6), np.array([0, 4, 9], np.int32)),
    "jvp": (lambda x, t: jax.jvp(lambda y: jnp.cumsum(jnp.exp(y)), (x,), (t,)), arr(4), arr(4)),
    "hessian": (jax.hessian(lambda x: jnp.prod(jnp.sin(x))), arr(3)),
    "indexing": (
        lambda x, i: (x[i], x.at[i].add(1.0), x.at[i, 0].set(2.0), jnp.take_along_axis(x, i[:, None], 1)),
        arr(3, 3),
        np.array([0, 2, 2], np.int32),
    ),
    "sorting": (
        lambda x: (jnp.sort(x, 0), jnp.argsort(-x, 1), lax.top_k(x, 2), jnp.median(x), jnp.unique(x, size=3)),
        arr(4, 5),
    ),
    "movement": (
        lambda x: (
            jnp.stack([x, x], 1),
            jnp.tile(x, (2, 3)),
            jnp.split(x, 2, 1),
            jnp.roll(x, 1),
            jnp.rot90(x),
            jnp.pad(x, 1, mode="reflect"),
            x[::-1, 1:3].T,
        ),
        arr(4, 4),
    ),
    "cumulative": (
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x), lax.cummax(x, reverse=True), lax.cumlogsumexp(x, 1)),
        arr(3, 4),
    ),
    "statistics": (
        lambda x: (x.mean(), x.var(0), jnp.argmax(x), jnp.linalg.norm(x), jnp.histogram(x, 4), jnp.percentile(x, 30)),
        arr(4, 5),
    ),
    "special": (
        lambda x: (
            jax.scipy.special.gammaln(x),
            jax.scipy.special.digamma(x),
            jax.lax.erf_inv(x / 10),
            jax.scipy.special.gammainc(x, x),
            jax.scipy.special.i0e(x),
        ),
        np.abs(arr(5)) + 0.5,
    ),
    "reduce": (
        lambda x: lax.reduce((x, -x), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
        arr(3, 4),
    ),
    "window": (lambda x: lax.reduce_window(x, np.float32(1), lambda a, b: a * b, (2, 2), (1, 2), "SAME"), arr(4, 4)),
    "pool_grad": (
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID") ** 2).sum()),
        arr(4, 4),
    ),
    "fft": (
        lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x, axis=0), axis=0), jnp.abs(jnp.fft.fft2(x))),
        arr(4, 4),
    ),
    "bits": (
        lambda x: (
            x & 3,
            x << 2,
            x >> 1,
            ~x,
            lax.population_count(x),
            lax.clz(x),
            lax.bitcast_convert_type(x, jnp.float32),
        ),
        np.arange(-3, 5, dtype=np.int32),
    ),
    "root": (
        lambda x: lax.custom_root(
            lambda y: y * y * y - x,
            1.0,
            lambda f, g: lax.fori_loop(0, 30, lambda i, y: y - f(y) / (3 * y * y), g),
            lambda g, y: y / g(1.0),
        ),
        np.float32(5),
    ),
    "map": (lambda x: lax.map(lambda r: jnp.outer(r, r).sum(), x), arr(4, 3)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), arr(9)),
    "relu_slope": (jax.grad(lambda x: jax.nn.relu(x).sum()), np.array([-1.0, 0.0, 2.0], np.float32)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    fn, *args = CASES[name]
    check(fn, *args, scale=100.0)


@pytest.mark.parametrize("name", ["mlp", "attention", "rnn", "cond", "indexing", "sorting", "statistics", "grad_mlp"])
def test_case_x64(name: str) -> None:
    fn, *args = CASES[name]
    wide = [jax.tree_util.tree_map(lambda x: x.astype("float64") if x.dtype == np.float32 else x, a) for a in args]
    with enable_x64():
        check(fn, *wide, scale=100.0)


def spd(n: int = 4) -> np.ndarray:
    a = arr(n, n)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


LINALG: dict[str, tuple[Any, ...]] = {
    "solve": (jnp.linalg.solve, spd(), arr(4, 2)),
    "inv_det": (lambda a: (jnp.linalg.inv(a), jnp.linalg.slogdet(a)), spd()),
    "cholesky": (
        lambda a: (jnp.linalg.cholesky(a), jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), a)),
        spd(),
    ),
    "eigvalsh": (jnp.linalg.eigvalsh, spd()),
    "svdvals": (lambda a: jnp.linalg.svd(a, compute_uv=False), arr(4, 3)),
    "lstsq": (lambda a, y: jnp.linalg.lstsq(a, y)[0], arr(6, 3), arr(6)),
    "pinv": (jnp.linalg.pinv, arr(5, 3)),
    "expm": (jax.scipy.linalg.expm, arr(3, 3)),
    "grad_logdet": (jax.grad(lambda a: jnp.linalg.slogdet(a)[1]), spd()),
    "triangular": (lambda a, y: jax.scipy.linalg.solve_triangular(a, y, lower=True), spd(), arr(4)),
}


@pytest.mark.parametrize("name", LINALG)
def test_linalg(name: str) -> None:
    fn, *args = LINALG[name]
    check(fn, *args, scale=200.0)


DRAWS: dict[str, Any] = {
    "uniform": lambda k: jax.random.uniform(k, (3, 4)),
    "normal": lambda k: jax.random.normal(k, (3, 4)),
    "split": lambda k: jax.random.split(k, 3),
    "fold_in": lambda k: jax.random.fold_in(k, 7),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (20,)),
    "randint": lambda k: jax.random.randint(k, (9,), 2, 50),
    "permutation": lambda k: jax.random.permutation(k, 10),
    "categorical": lambda k: jax.random.categorical(k, jnp.array([0.1, 2.0, 0.3]), shape=(6,)),
    "gumbel": lambda k: jax.random.gumbel(k, (5,)),
    "exponential": lambda k: jax.random.exponential(k, (5,)),
    "truncated": lambda k: jax.random.truncated_normal(k, -1.0, 2.0, (5,)),
    "laplace": lambda k: jax.random.laplace(k, (5,)),
    "choice": lambda k: jax.random.choice(k, 8, (4,), replace=False),
    "gamma": lambda k: jax.random.gamma(k, jnp.array([0.5, 3.0])),
    "poisson": lambda k: jax.random.poisson(k, 3.0, (4,)),
    "many": lambda k: jax.vmap(lambda s: jax.random.normal(s, (2,)))(jax.random.split(k, 4)),
    "moved": lambda k: jnp.concatenate([jax.random.split(k, 4)[::2], jax.random.split(k, 1)]).reshape(3, 1)[1],
    "scanned": lambda k: lax.scan(lambda c, s: (c, jax.random.uniform(s)), 0, jax.random.split(k, 4))[1],
    "carried": lambda k: lax.fori_loop(0, 3, lambda i, s: jax.random.split(s)[0], k),
    "chosen": lambda k: jnp.where(jnp.array([True, False]), jax.random.split(k), jax.random.split(jax.random.key(3))),
    "batched_fold": lambda k: jax.vmap(jax.random.fold_in, (None, 0))(k, jnp.arange(3)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random(name: str) -> None:
    graph = check(DRAWS[name], jax.random.key(42))
    assert graph.inputs[0].role == KEY


def test_raw_keys_stay_arrays() -> None:
    graph = check(lambda k: jax.random.normal(k, (3,)), jax.random.PRNGKey(1))
    assert graph.inputs[0].role == "input"
    assert str(graph.inputs[0].type) == "u32[2]"


def test_seed_inside() -> None:
    check(lambda s: jax.random.uniform(jax.random.key(s), (2,)), np.int32(5))


def test_rbg() -> None:
    graph = from_jax(lambda k: jax.random.uniform(k, (4,)), jax.random.key(3, impl="rbg"))
    fn, _ = to_jax(graph)
    key = jax.random.key(3, impl="rbg")
    agree(fn({}, key), jax.random.uniform(key, (4,)))


# -- calling conventions --------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@jax.tree_util.register_dataclass
@dataclass
class Batch:
    image: Any
    label: Any


def test_pytrees() -> None:
    def fn(pair: Pair, batch: Batch, extra: dict[str, Any]) -> Any:
        return (
            Pair(pair.left + batch.image, None),
            Batch(pair.right * 2, batch.label),
            {"x": [extra["a"][0] + extra["b"]]},
        )

    args = (Pair(arr(2), arr(2)), Batch(arr(2), arr(3)), {"b": arr(2), "a": (arr(2),)})
    graph = check(fn, *args)
    out = compile(graph, "numpy")(*args)
    assert isinstance(out[0], Pair) and isinstance(out[1], Batch) and out[0].right is None
    assert [v.name for v in graph.inputs] == [
        "pair.left",
        "pair.right",
        "batch.image",
        "batch.label",
        "extra.a.0",
        "extra.b",
    ]


def test_weights_are_named_by_path() -> None:
    graph = check(lambda params, x: mlp(params, x), MLP, arr(5, 4), weights=0)
    assert list(graph.weights) == ["params.dense.bias", "params.dense.kernel", "params.out.kernel"]
    assert [v.name for v in graph.inputs] == ["x"]


def test_closed_over_arrays_are_weights() -> None:
    w = jnp.asarray(arr(4, 4))
    step = jax.jit(lambda x: x @ w)
    graph = check(lambda x: lax.scan(lambda c, v: (step(c) + v, c @ w), x[0], x), arr(3, 4))
    assert list(graph.weights) == ["closure.0"]


def test_container_that_only_jax_knows() -> None:
    @jax.tree_util.register_pytree_with_keys_class
    class Box:
        def __init__(self, a: Any, b: Any):
            self.a, self.b = a, b

        def tree_flatten_with_keys(self) -> Any:
            return ((jax.tree_util.GetAttrKey("b"), self.b), (jax.tree_util.GetAttrKey("a"), self.a)), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(children[1], children[0])

    def fn(box: Any) -> Any:
        return Box(box.a + 1, [box.b])

    box = Box(arr(2), arr(3))
    graph = from_jax(fn, box)
    assert [v.name for v in graph.inputs] == ["box.b", "box.a"]
    out = compile(graph, "numpy")(box)
    agree((out["a"], out["b"][0]), (box.a + 1, box.b))
    agree(to_jax(graph)[0]({}, box)["a"], box.a + 1)


def test_odd_results() -> None:
    check(lambda x: (x, x, 3.0, None, [jnp.zeros(2), x + 1]), arr(3))
    check(lambda: {"a": jnp.arange(3)})


def test_keyword_arguments() -> None:
    graph = from_jax(lambda x, *, scale: x * scale, arr(3), scale=np.float32(2))
    x = arr(3)
    agree(compile(graph, "numpy")(x, scale=np.float32(3)), x * 3)


def test_static_leaves() -> None:
    def fn(x: Any, config: Any) -> Any:
        return jnp.tanh(x) if config["act"] == "tanh" else x

    graph = from_jax(fn, arr(3), {"act": "tanh"})
    x = arr(3)
    agree(compile(graph, "numpy")(x), np.tanh(x))


def test_callable_pytree() -> None:
    @jax.tree_util.register_pytree_with_keys_class
    class Affine:
        def __init__(self, w: Any, b: Any):
            self.w, self.b = w, b

        def tree_flatten_with_keys(self) -> Any:
            return ((jax.tree_util.GetAttrKey("w"), self.w), (jax.tree_util.GetAttrKey("b"), self.b)), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

        def __call__(self, x: Any) -> Any:
            return x @ self.w + self.b

    module = Affine(jnp.asarray(arr(3, 2)), jnp.asarray(arr(2)))
    graph = from_jax(module, arr(4, 3))
    assert list(graph.weights) == ["w", "b"]
    x = arr(4, 3)
    agree(compile(graph, "numpy")(x), module(x))


def test_keys_inside_weights_become_inputs() -> None:
    def fn(params: Any, x: Any) -> Any:
        return x * params["w"] + jax.random.normal(params["rng"], x.shape)

    params = {"w": arr(3), "rng": jax.random.key(4), "unused": jax.random.key(5)}
    graph = from_jax(fn, params, arr(3), weights=0)
    assert [(v.name, v.role) for v in graph.inputs] == [("x", "input"), ("params.rng", KEY)]
    x = arr(3)
    agree(compile(graph, "numpy")(x, **{"params.rng": 4}), fn(params, x))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.nn.softmax(x @ np.ones((4, 3), np.float32)).mean(),
        lambda x: jnp.concatenate([x, x * 2])[1:],
        lambda x: x.reshape(-1, 2).sum(1) / x.shape[0],
        lambda x: jnp.arange(x.shape[0]) * 2,
        lambda x: lax.scan(lambda c, r: (c + r, c), jnp.zeros(4), x),
        lambda x: jax.vmap(lambda r: jnp.sort(r)[:2])(x),
        lambda x: jax.grad(lambda y: (y**2).sum())(x),
    ],
)
def test_symbolic_batch(fn: Any) -> None:
    graph = from_jax(fn, arr(5, 4), dynamic={"x": ("batch", None)})
    assert graph.symbols["batch"].min == 1
    back, params = to_jax(graph)
    for n in (1, 3, 8):
        x = arr(n, 4)
        agree(compile(graph, "numpy")(x), fn(x))
        agree(back(params, x), fn(x))


def test_symbolic_sizes_in_structures() -> None:
    graph = from_jax(
        lambda d: d["a"] @ d["b"], {"a": arr(2, 3), "b": arr(3, 4)}, dynamic={"d": {"a": ("m", "k"), "b": ("k", None)}}
    )
    assert [str(v.type) for v in graph.inputs] == ["f32[m,k]", "f32[k,4]"]


def test_scopes_and_sources() -> None:
    def fn(x: Any) -> Any:
        with jax.named_scope("encoder"), jax.named_scope("layer"):
            return jnp.sin(x)

    edge = from_jax(fn, arr(2)).edges[0]
    assert edge.scope == "encoder.layer"
    assert edge.source.startswith("test_from_jax.py:")


# -- refusals and extension -------------------------------------------------------------------------


def test_callbacks_are_refused_all_at_once() -> None:
    def fn(x: Any) -> Any:
        y = jax.pure_callback(lambda v: v, x, x)
        return jax.pure_callback(lambda v: v, x, y) + lax.rng_uniform(0.0, 1.0, x.shape)

    with pytest.raises(UnsupportedError) as error:
        from_jax(fn, arr(3))
    found = {gap.op: gap for gap in error.value.gaps}
    assert found["pure_callback"].count == 2
    assert "test_from_jax.py:" in found["pure_callback"].where
    assert set(found) == {"pure_callback", "rng_uniform"}


def test_debug_prints_are_dropped() -> None:
    def fn(x: Any) -> Any:
        jax.debug.print("x = {}", x)
        return x + 1

    assert len(from_jax(fn, arr(3)).edges) == 2


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="weights=3"):
        from_jax(lambda x: x, arr(2), weights=3)
    with pytest.raises(InputError, match="does not fit"):
        from_jax(lambda x: x, arr(2), dynamic={"x": ("a", "b")})
    with pytest.raises(InputError, match="dynamic names"):
        from_jax(lambda x: x, arr(2), dynamic={"y": ("a",)})


def test_lower_jax() -> None:
    from jax.extend.core import Primitive

    twice_p = Primitive("test_twice")
    twice_p.def_abstract_eval(lambda x: x)
    with pytest.raises(UnsupportedError, match="lower_jax"):
        from_jax(lambda x: twice_p.bind(x), arr(2))

    @lower_jax(twice_p)
    def _(b: Any, eqn: Any, x: Any) -> Any:
        return b.add(x, x)

    graph = from_jax(lambda x: twice_p.bind(x), arr(2))
    x = arr(2)
    agree(compile(graph, "numpy")(x), x * 2)


def _chase(x: Any, limit: Any) -> Any:
    table = jnp.arange(3.0) + 1
    return lax.while_loop(lambda s: s[1] < limit, lambda s: (s[0] * 1.5 + table, s[1] + 1), (x, 0))


def test_loops_under_vmap_end_one_by_one() -> None:
    check(jax.vmap(_chase), arr(4, 3), np.array([0, 3, 1, 6], np.int32))
    check(jax.vmap(jax.vmap(_chase)), arr(2, 2, 3), np.array([[0, 3], [1, 6]], np.int32))


def test_keys_in_loops_under_vmap() -> None:
    def draw(n: Any) -> Any:
        step = lambda s: (jax.random.split(s[0])[0], s[1] + 1)
        return jax.random.uniform(lax.while_loop(lambda s: s[1] < n, step, (jax.random.key(3), 0))[0])

    check(jax.vmap(draw), np.array([0, 3, 1], np.int32))


def _posdef_solve(a: Any) -> Any:
    return jax.scipy.linalg.solve(a @ a.T + jnp.eye(4), a, assume_a="pos")


SOLVES = {
    "inv": jnp.linalg.inv,
    "solve": lambda a: jnp.linalg.solve(a, a.mT),
    "expm": lambda a: jax.scipy.linalg.expm(a / 10),
    "positive": jax.vmap(_posdef_solve),
    "factor_used_twice": lambda a: jnp.linalg.inv(a) + lax.stop_gradient(a) * a,
}


@pytest.mark.parametrize("name", SOLVES)
def test_solves_keep_their_gradient(name: str) -> None:
    """JAX stops the gradient of a factorisation and gives the solve a rule of its own, which a graph has not."""
    fn = SOLVES[name]
    a = np.stack([spd(), spd() + np.triu(np.ones((4, 4), np.float32))]).astype(np.float32)
    back, params = to_jax(from_jax(fn, a))
    loss = lambda f: jax.grad(lambda x: jnp.sin(f(x)).sum())(a)
    agree(loss(lambda x: back(params, x)), loss(fn), scale=200.0)
