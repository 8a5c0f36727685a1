"""Run time of JAX programs on the torch and ONNX engines, against ``jax.jit`` of the program itself."""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import unigraph as ug

from .table import Figures, medians

ROUNDS = 15
LEAST = 0.02  # seconds that one measurement lasts at least
ENGINES = ("jax", "torch", "onnx")


def programs() -> Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Ten programs of different kinds: a function and its arguments."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(0)

    def f32(*shape: int, scale: float = 1.0) -> Any:
        return rng.standard_normal(shape, np.float32) * np.float32(scale)

    def mlp(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.nn.gelu(x @ w)
        return x

    def convolutions(w1: Any, w2: Any, x: Any) -> Any:
        for w in (w1, w2):
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return x.mean((2, 3))

    def attention(w: Any, x: Any) -> Any:
        q, k, v = jnp.split((x @ w).reshape(*x.shape[:2], 4, -1), 3, axis=-1)
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8, axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", scores, v)

    def recurrent(w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            z, r, n = jnp.split(x @ w + h @ u, 3, axis=-1)
            z, n = jax.nn.sigmoid(z), jnp.tanh(n * jax.nn.sigmoid(r))
            h = z * h + (1 - z) * n
            return h, h

        return lax.scan(step, jnp.zeros((xs.shape[1], u.shape[0])), xs)[1]

    def routing(gate: Any, experts: Any, x: Any) -> Any:
        scores, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        return jnp.einsum("tk,tkd->td", scores, jnp.einsum("td,tkde->tke", x, experts[chosen]))

    def gaussian_process(x: Any, y: Any) -> Any:
        def kernel(a: Any, b: Any) -> Any:
            return jnp.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2)

        factor = jnp.linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(len(x)))
        half = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return half @ half / 2 + jnp.log(jnp.diag(factor)).sum()

    def conjugate_gradient(a: Any, b: Any) -> Any:
        def step(state: Any) -> Any:
            i, x, r, p, rr = state
            ap = a @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return i + 1, x, r, r + new / rr * p, new

        start = (jnp.int32(0), jnp.zeros_like(b), b, b, b @ b)
        return lax.while_loop(lambda s: (s[0] < 50) & (s[4] > 1e-6), step, start)[1]

    def heat(u: Any) -> Any:
        k = jnp.fft.rfftfreq(u.shape[-1]) * 2 * np.pi
        return jnp.fft.irfft(jnp.fft.rfft(u) * jnp.exp(-0.1 * k**2))

    def bodies(x: Any, v: Any) -> Any:
        def force(x: Any) -> Any:
            d = x[None] - x[:, None]
            return (d / ((d**2).sum(-1, keepdims=True) + 0.1) ** 1.5).sum(1)

        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = v + 0.01 * force(x)
            return (x + 0.01 * v, v), None

        return lax.scan(step, (x, v), None, length=20)[0]

    def loss(ws: Any, x: Any) -> Any:
        return (mlp(ws, x) ** 2).mean()

    layers = [f32(256, 256, scale=0.06) for _ in range(4)]
    matrix = f32(128, 128)
    return {
        "MLP": (mlp, (layers, f32(64, 256))),
        "MLP, gradients": (jax.grad(loss), (layers, f32(64, 256))),
        "convolutions": (convolutions, (f32(16, 3, 3, 3), f32(32, 16, 3, 3, scale=0.1), f32(4, 3, 32, 32))),
        "attention": (attention, (f32(256, 768, scale=0.06), f32(4, 64, 256))),
        "GRU by scan": (recurrent, (f32(64, 192, scale=0.1), f32(64, 192, scale=0.1), f32(50, 8, 64))),
        "mixture of experts": (routing, (f32(64, 8), f32(8, 64, 64, scale=0.1), f32(128, 64))),
        "Gaussian process": (gaussian_process, (f32(200, 3), f32(200))),
        "conjugate gradient": (conjugate_gradient, (matrix @ matrix.T / 128 + np.eye(128, dtype=np.float32), f32(128))),
        "heat equation by FFT": (heat, (f32(64, 1024),)),
        "N bodies": (bodies, (f32(64, 3), f32(64, 3, scale=0.1))),
    }


def contestants(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """``jax.jit`` of the program and the engines on its graph, each on arrays of its own, waited for."""
    import jax
    import torch

    graph = ug.optimize(ug.from_jax(fn, *args))
    own = jax.jit(fn)
    made = jax.tree.map(jax.numpy.asarray, args)
    inputs = {"jax": made, "torch": jax.tree.map(torch.from_numpy, args), "onnx": args}
    runs: dict[str, Callable[[], Any]] = {"jit": lambda: jax.block_until_ready(own(*made))}
    for engine in ENGINES:
        runs[engine] = partial(_waited, ug.compile(graph, engine=engine), inputs[engine])
    return runs


def _waited(call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    import jax

    return jax.block_until_ready(call(*given))


def seconds_each(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of one call; the contestants take turns, each long enough for the clock."""
    counts = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        counts[name] = max(1, round(LEAST / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(found) for name, found in times.items()}


def run() -> Figures:
    """One row for each program."""
    figures = Figures(
        "JAX programs on other engines",
        "Median time of one call on the CPU over that of `jax.jit` of the program itself, the four taking turns in one "
        "process on one thread; arrays are the engine's own. The torch engine runs loops from Python.",
        ("program", "jax.jit", *(f"{engine} engine" for engine in ENGINES)),
    )
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (fn, args) in programs().items():
            found = seconds_each(contestants(fn, args))
            ratios = (f"{found[engine] / found['jit']:.2f}" for engine in ENGINES)
            figures.rows.append((name, f"{found['jit'] * 1e6:.0f} µs", *ratios))
    logging.disable(logging.NOTSET)
    return figures


def equations(jaxpr: Any) -> int:
    """How many equations a jaxpr holds, those inside others included."""
    plain = getattr(jaxpr, "jaxpr", jaxpr)
    total = len(plain.eqns)
    for eqn in plain.eqns:
        for param in eqn.params.values():
            parts = param if isinstance(param, (tuple, list)) else (param,)
            total += sum(equations(part) for part in parts if hasattr(getattr(part, "jaxpr", part), "eqns"))
    return total


def conversion() -> Figures:
    """What a capture costs for each equation, beside the trace alone."""
    import jax

    figures = Figures(
        "Conversion from JAX, by equation",
        "Median time of `from_jax` and of `jax.make_jaxpr` over the number of equations of the program, in "
        "microseconds. JAX traces from the start each time.",
        ("program", "equations", "jax.make_jaxpr", "from_jax", "ratio"),
    )

    def fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
        jax.clear_caches()
        return lambda *args: fn(*args)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (fn, args) in programs().items():
            count = equations(jax.make_jaxpr(fn)(*args))
            runs = {"trace": partial(_traced, fresh, fn, args), "capture": partial(_captured, fresh, fn, args)}
            found = medians(runs, ROUNDS // 2)
            per = [f"{found[kind] / count * 1e6:.0f}" for kind in ("trace", "capture")]
            figures.rows.append((name, str(count), *per, f"{found['capture'] / found['trace']:.2f}"))
    return figures


def _traced(fresh: Callable[..., Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    import jax

    return jax.make_jaxpr(fresh(fn))(*args)


def _captured(fresh: Callable[..., Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return ug.from_jax(fresh(fn), *args)


if __name__ == "__main__":
    print(run(), conversion(), sep="\n\n")
