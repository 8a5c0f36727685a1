"""Models of transformers (tests/zoo/torch): what a capture costs beside torch's own exporters, and what running a
graph costs beside eager torch."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import unigraph as ug

from .table import Figures, medians

MODELS = ("bert", "llama", "mixtral", "mamba", "t5", "vit", "resnet", "swin", "whisper", "clip")
ROUNDS, RUNS = 2, 15
CAPTURE, SMALL, LARGE = 1.0, 2.0, 1.1  # bars on ratios


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def exporters(name: str, folder: Path) -> Mapping[str, Callable[[], Any]]:
    """torch.export, the same with decompositions, unigraph's capture; torch.onnx, and unigraph to ONNX."""
    import onnx
    import torch

    from tests.zoo import torch as zoo

    module, given = zoo.model(name), zoo.inputs(name)
    path = folder / "model.onnx"

    def export() -> Any:
        return torch.export.export(module, (), given)

    def capture() -> Any:
        return ug.from_torch(module, kwargs=given)

    return {
        "export": export,
        "decomposed": lambda: export().run_decompositions(),
        "capture": capture,
        "onnx": lambda: torch.onnx.export(module, (), str(path), kwargs=given, dynamo=True, verbose=False),
        "to_onnx": lambda: onnx.save(ug.to_onnx(capture()), path),
    }


def _able(contestants: Mapping[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Those that do it at all: torch.onnx refuses some programs."""
    able = {}
    for name, function in contestants.items():
        try:
            function()
        except Exception:
            if name != "onnx":
                raise
        else:
            able[name] = function
    return able


def run() -> Figures:
    """Seconds of each exporter, taking turns, and the ratios."""
    figures = Figures(
        "Capture of real architectures",
        "Seconds, medians of interleaved rounds, for ten tiny models of the zoo at fixed sizes: `torch.export`, the "
        "same with `run_decompositions` (what a graph of core operators takes), `ug.from_torch` and its ratio to that; "
        "`torch.onnx.export` and `ug.to_onnx(ug.from_torch(...))`, both writing a file (fails: torch.onnx "
        f"raises). The bar on the ratio is {CAPTURE:g}.",
        ("model", "export", "export + decompositions", "capture", "ratio", "torch.onnx", "capture + to_onnx"),
    )
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            found = medians(_able(exporters(name, Path(folder))), ROUNDS)
            ratio = found["capture"] / found["decomposed"]
            first, second = (
                [f"{found[k]:.2f}" if k in found else "fails" for k in keys]
                for keys in (("export", "decomposed", "capture"), ("onnx", "to_onnx"))
            )
            figures.rows.append((name, *first, f"{ratio:.2f}", *second))
            figures.bar(f"capture of {name}", ratio, CAPTURE)
    return figures


def runs() -> Iterator[tuple[str, bool, Any, dict[str, Any]]]:
    """(what, whether it is large, module, arguments)."""
    import torch
    import transformers

    from tests.zoo import torch as zoo

    torch.manual_seed(0)
    layers = (16, 64), (64, 64), (64, 4)
    perceptron = torch.nn.Sequential(*(m for n in layers for m in (torch.nn.Linear(*n), torch.nn.ReLU()))).eval()
    yield "perceptron 16-64-64-4, 32 rows", False, perceptron, {"input": torch.randn(32, 16)}
    for name in ("bert", "llama", "resnet"):
        yield f"{name} of the zoo", False, zoo.model(name), zoo.inputs(name)
    mini = transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    ids = torch.randint(5, 1000, (8, 128))
    yield (
        "BERT of MiniLM's size, 8 x 128",
        True,
        transformers.BertModel(mini).eval(),
        {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
        },
    )
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).eval()
    yield "GPT-2 small, 1 x 128", True, gpt, {"input_ids": ids[:1]}
    resnet = transformers.ResNetForImageClassification(transformers.ResNetConfig()).eval()
    yield "ResNet-50, 4 x 224", True, resnet, {"pixel_values": torch.randn(4, 3, 224, 224)}


def overhead() -> Figures:
    """Milliseconds of one call of a graph on the torch engine and of eager torch, taking turns."""
    import torch

    figures = Figures(
        "Torch engine against eager torch",
        "Milliseconds of one call, medians of interleaved runs, one thread, without gradients, and their ratio. "
        f"The bars are {SMALL:g} for small models, where a call is all overhead, and {LARGE:g} for large ones.",
        ("model", "eager", "torch engine", "ratio"),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with _quiet(), torch.no_grad():
        for what, large, module, given in runs():
            engine = ug.compile(ug.from_torch(module, kwargs=given), "torch")
            contestants = {"eager": _bound(module, given, 1 if large else 20)}
            contestants["engine"] = _bound(engine, given, 1 if large else 20)
            found = medians(contestants, RUNS)
            ratio = found["engine"] / found["eager"]
            calls = 1 if large else 20
            figures.rows.append((what, *(_three(found[k] / calls * 1e3) for k in ("eager", "engine")), f"{ratio:.2f}"))
            figures.bar(what, ratio, LARGE if large else SMALL)
    torch.set_num_threads(threads)
    return figures


def _three(x: float) -> str:
    """Three figures, without an exponent."""
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def _bound(function: Callable[..., Any], given: Mapping[str, Any], calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            function(**given)

    return run


if __name__ == "__main__":
    print(run(), overhead(), sep="\n\n")
