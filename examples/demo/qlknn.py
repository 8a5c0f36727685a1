"""The QLKNN fusion surrogate: JAX -> file -> every engine, a torch module, ONNX; and its ONNX twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug

from .common import largest_difference, main, milliseconds, row, timed_load


def _package() -> Path:
    import fusion_surrogates.qlknn.models as models

    return Path(models.__path__[0])


def reference() -> tuple[np.ndarray, np.ndarray]:
    """The packaged reference: inputs f64[25, 10] and targets f64[25, 8]."""
    data = np.load(_package() / "qlknn_7_11_test_data.npz")
    return data["inputs"], data["outputs"]


def capture(folder: Path) -> None:
    """Capture targets and fluxes in f64 with a free batch; the fluxes of the reference are kept for the twin."""
    import jax
    from fusion_surrogates.qlknn.qlknn_model import QLKNNModel

    jax.config.update("jax_enable_x64", True)
    model = QLKNNModel.load_default_model()

    def surrogate(params: Any, x: Any) -> dict[str, Any]:
        model.params = params
        return {"targets": model.predict_targets(x), "fluxes": model.predict(x)}

    params, (inputs, targets) = model.params, reference()
    graph = ug.from_jax(surrogate, params, inputs, weights=(0,), dynamic={"x": ("batch", None)})
    graph.save(folder / "qlknn.ugraph")
    print(repr(graph))
    model.params = params
    fluxes: Any = {k: np.asarray(model.get_flux_from_targets(targets, k)) for k in model.config.flux_map}
    np.savez(folder / "qlknn.npz", **fluxes)


def _check(result: dict[str, Any], folder: Path) -> float:
    """Largest difference from the reference, relative to the largest value where that is above 1."""
    targets, fluxes = reference()[1], np.load(folder / "qlknn.npz")
    pairs = [(result["targets"], targets), *((result["fluxes"][k], fluxes[k]) for k in fluxes.files)]
    return max(_scaled(np.asarray(a), b) for a, b in pairs)


def _scaled(a: np.ndarray, b: np.ndarray) -> float:
    return largest_difference(a, b) / max(1.0, float(np.abs(b).max()))


def replay(engine: str, folder: Path) -> None:
    """The file on one engine against the packaged reference."""
    graph, file = timed_load(folder / "qlknn.ugraph")
    compiled = ug.compile(graph, engine)
    x = reference()[0]
    ms = milliseconds(lambda: compiled(x))
    row(model="QLKNN", source="jax", engine=engine, difference=_check(compiled(x), folder), ms=ms, **file)


def to_torch(folder: Path) -> None:
    """The JAX program as a torch module, run without unigraph's engines."""
    import torch

    graph, file = timed_load(folder / "qlknn.ugraph")
    module, x = ug.to_torch(graph), torch.from_numpy(reference()[0])
    with torch.no_grad():
        result = module(x)
        ms = milliseconds(lambda: module(x))
    plain = {"targets": result["targets"].numpy(), "fluxes": {k: v.numpy() for k, v in result["fluxes"].items()}}
    row(model="QLKNN", source="jax", engine="to_torch", difference=_check(plain, folder), ms=ms, **file)


def to_onnx(folder: Path) -> None:
    """The JAX program as an ONNX model, run by ONNX Runtime directly."""
    import onnx
    import onnxruntime

    graph, _ = timed_load(folder / "qlknn.ugraph")
    path = folder / "qlknn.onnx"
    onnx.save(ug.to_onnx(graph), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: reference()[0]}
    results = session.run(None, feed)
    assert graph.signature is not None
    named = dict(zip(graph.signature.out.paths(), results))
    fluxes = {k.removeprefix("fluxes."): v for k, v in named.items() if k.startswith("fluxes.")}
    difference = _check({"targets": named["targets"], "fluxes": fluxes}, folder)
    ms = milliseconds(lambda: session.run(None, feed))
    row(model="QLKNN", source="jax", engine="to_onnx", difference=difference, ms=ms, size=path.stat().st_size / 1e6)


def twin(folder: Path) -> None:
    """The ONNX file of the same network (f32), imported."""
    graph = ug.from_onnx(_package() / "qlknn_7_11.onnx")
    graph.save(folder / "qlknn_twin.ugraph")
    print(repr(graph))


def replay_twin(engine: str, folder: Path) -> None:
    """The twin on one engine against the reference's fluxes, in f32."""
    graph, file = timed_load(folder / "qlknn_twin.ugraph")
    compiled = ug.compile(graph, engine)
    x, fluxes = reference()[0].astype(np.float32), np.load(folder / "qlknn.npz")
    assert graph.signature is not None
    result = dict(zip([v.name for v in graph.outputs], compiled(x)))
    worst = max(_scaled(np.asarray(result[k]), fluxes[k].astype(np.float32)) for k in fluxes.files)
    ms = milliseconds(lambda: compiled(x))
    row(model="QLKNN twin", source="onnx", engine=engine, difference=worst, ms=ms, **file)


if __name__ == "__main__":
    main(
        {
            "capture": capture,
            "replay": replay,
            "to_torch": to_torch,
            "to_onnx": to_onnx,
            "twin": twin,
            "replay_twin": replay_twin,
        }
    )
