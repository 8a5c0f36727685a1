"""ONNX files that are in use, on every engine against ONNX Runtime: Silero's voice detectors and QLKNN."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.errors import UnsupportedError

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

ENGINES = ("numpy", "torch", "jax", "onnx")
SILERO = ("silero_vad", "silero_vad_op18_ifless", "silero_vad_16k_op15", "silero_vad_half", "silero_vad_openvino_16k")


def shipped(package: str, path: str) -> Path:
    """A file of an installed package; the test is skipped without the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / path


def silero(name: str) -> Path:
    return shipped("silero_vad", f"data/{name}.onnx")


def speech(samples: int, rate: int) -> np.ndarray:
    """A voice as simple as it gets: harmonics of a wandering pitch, swelling four times a second, and some noise."""
    time = np.arange(samples) / rate
    phase = 2 * np.pi * np.cumsum(120 + 20 * np.sin(6 * np.pi * time)) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 12)) * (0.5 + 0.5 * np.sin(8 * np.pi * time))
    return (0.1 * voice + 0.005 * np.random.default_rng(0).standard_normal(samples)).astype(np.float32)


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@cache
def detector(name: str, rate: int) -> tuple[Any, ug.Graph]:
    """ONNX Runtime's session and our graph: batch free where the file leaves it free, the rate fixed."""
    theirs = session(silero(name))
    names = [i.name for i in theirs.get_inputs()]
    free = name != "silero_vad_openvino_16k"
    shapes: dict[str, Any] = {"input": ("batch", 576 * rate // 16000), "state": (2, "batch", 128)} if free else {}
    return theirs, ug.from_onnx(silero(name), shapes=shapes, values={"sr": rate} if "sr" in names else {})


CASES = [(name, 16000) for name in SILERO] + [(name, 8000) for name in SILERO[:2]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "rate"), CASES)
def test_voice_detectors(name: str, rate: int, engine: str) -> None:
    """Chunk after chunk with the state carried over; ours goes its own way, not reset to theirs."""
    theirs, graph = detector(name, rate)
    compiled = ug.compile(graph, engine)
    step, context, batch = 512 * rate // 16000, 64 * rate // 16000, 1 if "openvino" in name else 2
    audio = np.stack([speech(6 * step + context, rate) * gain for gain in (1.0, 0.1)[:batch]])
    state = own = np.zeros((2, batch, 128), np.float32)
    heard = []
    for k in range(4):
        chunk = audio[:, k * step : (k + 1) * step + context]
        feed = {"input": chunk, "state": state, "sr": np.array(rate)}
        expected, state = theirs.run(None, {i.name: feed[i.name] for i in theirs.get_inputs()})
        passed = {"input": chunk, "state": own}
        found, own = (np.asarray(x) for x in compiled(*(passed[i.name] for i in graph.inputs)))
        np.testing.assert_allclose(found, expected, atol=2e-5)
        np.testing.assert_allclose(own, state, atol=2e-5)
        heard.append(expected[0, 0])
    assert max(heard) - min(heard) > 0.05, "the audio leaves the detector cold"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_whole_recording_at_once(engine: str) -> None:
    """The LSTM runs over a number of chunks that only the call knows."""
    path = silero("silero_vad_16k_sequence")
    theirs, compiled = session(path), ug.compile(ug.from_onnx(path), engine)
    audio = speech(16000, 16000)
    expected = own = [np.zeros((1, 1, 128), np.float32)] * 2
    for count in (5, 1):
        chunks = np.stack([audio[512 * k : 512 * k + 576] for k in range(count)])
        want, *expected = theirs.run(None, dict(zip(("input", "h", "c"), (chunks, *expected))))
        found, *own = (np.asarray(x) for x in compiled(chunks, *own))
        for a, e in zip((found, *own), (want, *expected)):
            np.testing.assert_allclose(a, e, atol=2e-5)


def test_a_branch_that_the_shapes_rule_out_names_the_input() -> None:
    """At 576 samples the branch for 8 kHz has no meaning: the error says which input decides."""
    with pytest.raises(UnsupportedError, match=r"values=\{'sr': ...\}"):
        ug.from_onnx(silero("silero_vad"), shapes={"input": (1, 576), "state": (2, 1, 128)})


@pytest.mark.parametrize("engine", ENGINES)
def test_turbulent_transport(engine: str) -> None:
    path = shipped("fusion_surrogates", "qlknn/models/qlknn_7_11.onnx")
    graph = ug.from_onnx(path)
    compiled = ug.compile(graph, engine)
    for count in (1, 7):
        x = np.random.default_rng(count).uniform(0.1, 3, (count, 10)).astype(np.float32)
        for a, e in zip(compiled(x), session(path).run(None, {"input": x}), strict=True):
            np.testing.assert_allclose(np.asarray(a), e, rtol=1e-4, atol=1e-4 * float(np.abs(e).max()))
