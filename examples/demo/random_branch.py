"""Randomness and branches: one key, the same branch and the same numbers on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug

from .common import largest_difference, main, milliseconds, row, timed_load

SEEDS = range(6)


def branch(key: Any, x: Any, w1: Any, w2: Any) -> Any:
    """relu or sigmoid of a product, as a coin falls."""
    import jax

    coin = jax.random.bernoulli(key)
    return jax.lax.cond(coin, lambda: jax.nn.relu(x @ w1), lambda: jax.nn.sigmoid(x @ w2))


def two_layers(x: Any, w1: Any, w2: Any) -> Any:
    """A two-layer network."""
    import jax.numpy as jnp

    return jnp.tanh(jnp.tanh(x @ w1) @ w2)


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x f32[3, 4], w1 f32[4, 4], w2 f32[4, 4]."""
    rng = np.random.default_rng(7)
    x, w1, w2 = (rng.normal(size=s).astype(np.float32) for s in ((3, 4), (4, 4), (4, 4)))
    return x, w1, w2


def capture(folder: Path) -> None:
    """Capture the branch, the network and a dropout module in training mode."""
    import jax
    import torch

    x, w1, w2 = arrays()
    ug.from_jax(branch, jax.random.key(0), x, w1, w2, weights=(2, 3)).save(folder / "branch.ugraph")
    ug.from_jax(two_layers, x, w1, w2, weights=(1, 2)).save(folder / "layers.ugraph")
    original: Any = {str(s): np.asarray(branch(jax.random.key(s), x, w1, w2)) for s in SEEDS}
    relu = sum(bool(jax.random.bernoulli(jax.random.key(s))) for s in SEEDS)
    print(f"of {len(SEEDS)} keys, {relu} take the relu branch and {len(SEEDS) - relu} the sigmoid branch")
    assert 0 < relu < len(SEEDS), "the keys must reach both branches"
    np.savez(folder / "branch.npz", layers=np.asarray(two_layers(x, w1, w2)), **original)
    module = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)).train()
    torch.manual_seed(0)
    ug.from_torch(module, (torch.from_numpy(x),)).save(folder / "dropout.ugraph")


def replay(engine: str, folder: Path) -> None:
    """Each of the three on one engine: the first two against JAX, dropout against the first engine."""
    x = arrays()[0]
    expected = np.load(folder / "branch.npz")
    graph, file = timed_load(folder / "branch.ugraph")
    compiled = ug.compile(graph, engine)
    worst = max(largest_difference(np.asarray(compiled(seed, x)), expected[str(seed)]) for seed in SEEDS)
    row(
        model="random branch",
        source="jax",
        engine=engine,
        difference=worst,
        ms=milliseconds(lambda: compiled(0, x)),
        **file,
    )
    graph, file = timed_load(folder / "layers.ugraph")
    layers = ug.compile(graph, engine)
    worst = largest_difference(np.asarray(layers(x)), expected["layers"])
    row(model="two layers", source="jax", engine=engine, difference=worst, ms=milliseconds(lambda: layers(x)), **file)
    graph, file = timed_load(folder / "dropout.ugraph")
    dropout = ug.compile(graph, engine)
    result = np.stack([np.asarray(dropout(x, seed=seed)) for seed in SEEDS])
    assert len({r.tobytes() for r in result}) == len(SEEDS), "other keys must give other masks"
    first = folder / "dropout.npy"
    if not first.exists():
        np.save(first, result)
    worst = largest_difference(result, np.load(first))
    row(
        model="dropout, one key",
        source="torch",
        engine=engine,
        difference=worst,
        ms=milliseconds(lambda: dropout(x, seed=0)),
        **file,
    )


if __name__ == "__main__":
    main({"capture": capture, "replay": replay})
