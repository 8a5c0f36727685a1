"""Cost of a capture against the framework's own trace of the same program."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import unigraph as ug

from .table import Figures, medians

LIMIT = 1.5
ROUNDS = 5
LAYERS, WIDTH, HEADS, WORDS = 6, 384, 12, 30522  # MiniLM's size


def torch_pair() -> dict[str, Callable[[], Any]]:
    """MiniLM with free batch and length: torch.export with decompositions, and ug.from_torch."""
    import torch

    from examples.demo.minilm import encoder

    module = encoder()
    ids = torch.randint(5, 1000, (2, 9))
    kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq", max=512)
    shapes = {name: {0: batch, 1: seq} for name in kwargs}

    def own() -> Any:
        return torch.export.export(module, (), kwargs, dynamic_shapes=shapes).run_decompositions()

    def capture() -> Any:
        return ug.from_torch(module, kwargs=kwargs, dynamic={name: ("batch", "seq") for name in kwargs})

    return {"trace": own, "capture": capture}


def jax_encoder() -> tuple[Callable[..., Any], Any, Any]:
    """(function, parameters, token ids) of an encoder of MiniLM's size, in plain JAX."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32) * np.float32(0.02)

    def dense(n: int, m: int) -> Any:
        return {"w": weights(n, m), "b": np.zeros(m, np.float32)}

    def scale() -> Any:
        return {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    def layer() -> Any:
        parts = {name: dense(WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
        wide = {"up": dense(WIDTH, 4 * WIDTH), "down": dense(4 * WIDTH, WIDTH)}
        return {**parts, **wide, "norm1": scale(), "norm2": scale()}

    parameters = {"words": weights(WORDS, WIDTH), "places": weights(512, WIDTH), "norm": scale()}
    parameters["layers"] = [layer() for _ in range(LAYERS)]

    def linear(p: Any, x: Any) -> Any:
        return x @ p["w"] + p["b"]

    def norm(p: Any, x: Any) -> Any:
        return jax.nn.standardize(x, axis=-1) * p["scale"] + p["bias"]

    def attend(p: Any, x: Any, mask: Any) -> Any:
        q, k, v = (linear(p[n], x).reshape(*x.shape[:2], HEADS, -1) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH // HEADS).astype(np.float32)
        shares = jax.nn.softmax(jnp.where(mask[:, None, None, :], scores, jnp.finfo(x.dtype).min), axis=-1)
        return linear(p["out"], jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape))

    def apply(p: Any, ids: Any) -> Any:
        x = norm(p["norm"], p["words"][ids] + p["places"][jnp.arange(ids.shape[1])])
        for inner in p["layers"]:
            x = norm(inner["norm1"], x + attend(inner, x, ids != 0))
            x = norm(inner["norm2"], x + linear(inner["down"], jax.nn.gelu(linear(inner["up"], x), approximate=False)))
        return x

    return apply, parameters, np.ones((2, 9), np.int32)


def jax_pair() -> dict[str, Callable[[], Any]]:
    """The JAX encoder: jax.make_jaxpr, and ug.from_jax. Traces are not taken from JAX's cache."""
    import jax

    apply, parameters, ids = jax_encoder()

    def fresh() -> Callable[..., Any]:
        jax.clear_caches()
        return lambda p, x: apply(p, x)

    return {
        "trace": lambda: jax.make_jaxpr(fresh())(parameters, ids),
        "capture": lambda: ug.from_jax(fresh(), parameters, ids, weights=(0,)),
    }


def run() -> Figures:
    """Ratios of medians, the two taking turns."""
    figures = Figures(
        "Capture",
        "Median time of a capture over that of the framework's own trace of the same program, the two taking turns: "
        "MiniLM with free batch and length against `torch.export` with decompositions, and an encoder of MiniLM's "
        f"size in JAX against `jax.make_jaxpr`. The bar is {LIMIT:g}.",
        ("framework", "own trace", "capture", "ratio"),
    )
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, pair in (("torch", torch_pair), ("JAX", jax_pair)):
            found = medians(pair(), ROUNDS)
            ratio = found["capture"] / found["trace"]
            times = (f"{found[k] * 1e3:.0f} ms" for k in ("trace", "capture"))
            figures.rows.append((name, *times, f"{ratio:.2f}"))
            figures.bar(f"capture from {name}", ratio, LIMIT)
    logging.disable(logging.NOTSET)
    return figures


if __name__ == "__main__":
    print(run())
