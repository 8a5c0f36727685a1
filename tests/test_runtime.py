"""Calling graphs: conventions, arrays of every framework, keys, states, threads, errors, the choice of an engine."""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import unigraph as ug
from unigraph.dims import Constraint
from unigraph.graph import Graph
from unigraph.opdef import registry
from unigraph.runtime import call, keys
from unigraph.tree import Signature, Tree, flatten

ENGINES = ("numpy", "torch", "jax", "onnx")
PACKAGES = {"torch": "torch", "jax": "jax", "onnx": "onnxruntime"}
Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Batch:
    image: Any
    label: Any


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    return str(request.param)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "unigraph" / "auto.json"


def affine() -> Graph:
    """tanh(x @ w + b) with a free batch of at least 2, even, at most 8."""
    b = ug.GraphBuilder("affine", {"batch": Constraint(2, 8, 2)})
    x = b.input("x", "f32", ("batch", 3))
    y = b.input("y", "f32", ("batch", 2))
    w = b.weight("w", np.arange(6, dtype=np.float32).reshape(3, 2) / 10)
    with b.at("layer", "net.py:7"):
        hidden = b.label(b.matmul(x, w), "hidden")
        return b.build(b.tanh(b.add(hidden, y)))


X, Y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
WANTED = np.tanh(X @ (np.arange(6, dtype=np.float32).reshape(3, 2) / 10))


def structured(args: Any, kwargs: Any, out: Any = None, names: tuple[str, ...] = ()) -> Graph:
    """A graph of these nested scalars that returns each of them doubled, in the structure of ``out``."""
    leaves, tree = flatten((args, kwargs))
    b = ug.GraphBuilder("structured")
    values = [b.input(f"v{i}", "f32") for i in range(len(leaves))]
    results = tuple(b.add(v, v) for v in values)
    out_tree = flatten(out)[1] if out is not None else Tree("tuple", (Tree("leaf"),) * len(results))
    return b.build(results, Signature(tree.children[0], tree.children[1], out_tree, names))


def identity(dtype: str, shape: tuple[Any, ...] = ("n",)) -> Graph:
    b = ug.GraphBuilder("identity")
    return b.build(b.optimization_barrier(b.input("x", dtype, shape))[0])


# -- the calling convention ------------------------------------------------------------------------


def test_positions_and_names(engine: str) -> None:
    f = ug.compile(affine(), engine)
    for result in (f(X, Y), f(X, y=Y), f(y=Y, x=X)):
        np.testing.assert_allclose(result, WANTED, rtol=1e-5)


def test_nested_structures() -> None:
    one, two, three, four = (np.float32(i) for i in (1, 2, 3, 4))
    args = ({"a": one, "b": [two, None]}, Point(three, (four,)))
    g = structured(args, {"scale": one, "extra": Batch(two, None)}, out=args_out(args), names=("params", "point"))
    params, point, scale, extra, rest = ug.run(g, *args, scale=one, extra=Batch(two, None), engine="numpy")
    assert params == {"a": 2, "b": [4, None]} and point == Point(6, (8,)) and isinstance(point, Point)
    assert (scale, extra, rest) == (4, 2, None)
    named = ug.run(g, params=args[0], point=args[1], scale=one, extra=Batch(two, None), engine="numpy")
    assert named[0] == params
    by_value = ug.run(g, args[0], v2=three, v3=four, v4=two, v5=one, engine="numpy")
    assert by_value[1] == point


def args_out(args: Any) -> Any:
    return (*args, 0.0, 0.0, None)


ONE = np.float32(1)
TREES = [
    (([ONE],), {}, r"'0' must be a dict, got a list; give '0' in the structure"),
    (({"a": ONE, "b": [ONE, None], "c": ONE},), {}, r"'0' has an unexpected 'c'"),
    (({"a": ONE},), {}, r"'0' lacks 'b'"),
    (({"a": ONE, "b": [ONE, ONE]},), {}, r"'0.b.1' must be None, got an array"),
    (({"a": ONE, "b": [ONE]},), {}, r"'0.b' must hold 2 items, got 1"),
    (({"a": {"z": ONE}, "b": [ONE, None]},), {}, r"'0.a' must be an array, got a dict"),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), TREES)
def test_wrong_structure(args: Any, kwargs: Any, message: str) -> None:
    g = structured(({"a": ONE, "b": [ONE, None]},), {})
    with pytest.raises(ug.InputError, match=message):
        ug.run(g, *args, engine="numpy", **kwargs)


def test_wrong_class_name() -> None:
    Other = namedtuple("Other", ["x", "y"])
    g = structured((Point(ONE, ONE),), {}, names=("point",))
    with pytest.raises(ug.InputError, match="'point' must be a Point, got a Other"):
        ug.run(g, Other(ONE, ONE), engine="numpy")


WRONG = {
    "too many": ((X, Y, X), {}, r"3 positional inputs given, 2 expected; the graph takes x: f32\[batch,3\]"),
    "missing": ((X,), {}, r"input 'y' \(f32\[batch,2\]\) is missing; the graph takes x"),
    "all missing": ((), {}, r"input 'x' \(f32\[batch,3\]\), 'y' \(f32\[batch,2\]\) are missing"),
    "unknown": ((X, Y), {"z": X}, r"there is no input 'z'.*The graph takes x"),
    "misspelt": ((X,), {"yy": Y}, r"did you mean 'y'"),
    "twice": ((X, Y), {"x": X}, r"input 'x' is given twice"),
    "fixed size": ((X[:, :2], Y), {}, r"input 'x' must be f32\[batch,3\], got f32\[4,2\]: axis 1 must have size 3"),
    "rank": ((X[0], Y), {}, r"input 'x' must be f32\[batch,3\] \(rank 2\), got f32\[3\] \(rank 1\); reshape"),
    "dtype": ((X.astype(np.float64), Y), {}, r"'x' must be f32\[batch,3\], got f64\[4,3\]; convert it to f32 first"),
    "min": ((X[:0], Y[:0]), {}, r"size batch = 0 \(input 'x' axis 0\) must be at least 2"),
    "max": ((np.ones((10, 3), np.float32), np.ones((10, 2), np.float32)), {}, r"batch = 10 .*must be at most 8"),
    "multiple": ((X[:3], Y[:3]), {}, r"size batch = 3 .* must be a multiple of 2"),
    "inconsistent": ((X, Y[:2]), {}, r"input 'y' must be f32\[batch,2\], got \[2, 2\]: axis 0 must be batch = 4"),
    "text": (("abc", Y), {}, r"input 'x' must be f32\[batch,3\]: str is not an array"),
    "objects": ((np.array([object()]), Y), {}, r"input 'x' must be .*object have no place in a graph"),
    "ragged": (([[1.0], [2.0, 3.0]], Y), {}, r"input 'x' must be .*must form an array"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["numpy", "torch", "auto"])
def test_wrong_inputs(case: str, name: str) -> None:
    if name != "numpy":
        pytest.importorskip("torch")
    args, kwargs, message = WRONG[case]
    with pytest.raises(ug.InputError, match=message):
        ug.run(affine(), *args, engine=name, **kwargs)


def test_sizes_computed_from_others() -> None:
    b = ug.GraphBuilder("computed")
    x, y = b.input("x", "f32", ("n*n",)), b.input("y", "f32", ("n + 1",))
    z = b.input("z", "f32", ("n",))
    plan = call.Plan(b.build((x, y, z)))
    zeros = {n: np.zeros(n, np.float32) for n in (2, 3, 4, 5)}
    plan.inputs((zeros[4], zeros[3], zeros[2]), {})
    with pytest.raises(ug.InputError, match=r"input 'x' must be .* must be n\*n = 4 \(n=2\), got 5"):
        plan.inputs((zeros[5], zeros[3], zeros[2]), {})


def test_an_input_may_be_called_seed() -> None:
    b = ug.GraphBuilder("seeded")
    f = ug.compile(b.build(b.neg(b.input("seed", "f32"))), "numpy")
    assert f(seed=np.float32(2)) == -2


# -- arrays ------------------------------------------------------------------------------------------

KINDS = {
    "f32": np.array([1.5, -0.0, np.inf], np.float32),
    "f64": np.array([1 / 3, 1e300]),
    "f16": np.array([0.5, 65504], np.float16),
    "bf16": np.array([0.1, 3e38], ml_dtypes.bfloat16),
    "i64": np.array([2**62 + 1, -(2**63)], np.int64),
    "i32": np.array([-(2**31), 7], np.int32),
    "u8": np.array([255], np.uint8),
    "u32": np.array([2**32 - 1], np.uint32),
    "u64": np.array([2**64 - 1], np.uint64),
    "bool": np.array([True, False]),
    "c64": np.array([1 + 2j], np.complex64),
    "c128": np.array([1 - 1e-15j]),
}


def sample(kind: str, x: np.ndarray) -> Any:
    """The array in another framework."""
    if kind == "numpy":
        return x
    if kind == "torch":
        pytest.importorskip("torch")
        from unigraph.runtime.torch.dtypes import from_numpy

        return from_numpy(x)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.numpy.asarray(x)


def plain(x: Any) -> np.ndarray:
    from unigraph.runtime.arrays import to_numpy

    return to_numpy(x)


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", KINDS)
def test_same_kind_out(dtype: str, kind: str, engine: str) -> None:
    f = ug.compile(identity(dtype), engine)
    for data in (KINDS[dtype], KINDS[dtype][:0]):
        given = sample(kind, data)
        result = f(given)
        assert type(result) is type(given)
        assert result.dtype == given.dtype
        assert plain(result).tobytes() == data.tobytes() and plain(result).shape == data.shape


def test_scalars_and_numbers(engine: str) -> None:
    b = ug.GraphBuilder("numbers")
    x, n = b.input("x", "f32"), b.input("n", "i64")
    f = ug.compile(b.build({"x": b.neg(x), "n": b.neg(n)}), engine)
    result = f(2, 3)
    assert type(result["x"]) is np.ndarray and result["x"].shape == () and result["x"] == -2 and result["n"] == -3
    assert f(np.float32(0.5), np.int64(2**60))["n"] == -(2**60)
    for wrong in ((1j, 1), (1.0, 1.5), (1.0, 2**70)):
        with pytest.raises(ug.InputError, match="Python value"):
            f(*wrong)


def test_numbers_out_of_range() -> None:
    with pytest.raises(ug.InputError, match=r"'x' must be i8\[n\]: the Python value .* does not fit"):
        ug.run(identity("i8"), [1, 300], engine="numpy")
    assert ug.run(identity("i8"), [1, -3], engine="numpy").dtype == np.int8


def test_other_byte_order_and_strides(engine: str) -> None:
    data = np.arange(6, dtype=">f4")[::-2]
    np.testing.assert_array_equal(ug.run(identity("f32"), data, engine=engine), data)


def test_memory_is_shared_where_it_can_be() -> None:
    data = np.ones(3, np.float32)
    assert np.shares_memory(ug.run(identity("f32"), data, engine="numpy"), data)
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3)
    assert ug.run(identity("f32"), tensor, engine="torch").data_ptr() == tensor.data_ptr()


def views() -> Graph:
    """Results that lie in the graph's own data or repeat one element."""
    b = ug.GraphBuilder("views")
    x, w = b.input("x", "f32", (2,)), b.weight("w", np.arange(4, dtype=np.float32))
    wide = b.broadcast_in_dim(x, shape=(3, 2), broadcast_dimensions=(1,))
    return b.build((wide, w, b.reshape(w, shape=(2, 2)), b.constant(np.ones(2, np.float32))))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_results_belong_to_the_caller(kind: str, engine: str) -> None:
    f = ug.compile(views(), engine)
    data = np.ones(2, np.float32)
    data.setflags(write=False)
    first = [plain(r).copy() for r in f(sample(kind, data))]
    for result in f(sample(kind, data)):
        result[...] = 7
    assert (data == 1).all()
    for before, after in zip(first, f(sample(kind, data)), strict=True):
        np.testing.assert_array_equal(before, plain(after))


def test_read_only_inputs_stay_as_they_are(engine: str) -> None:
    data = np.ones(2, np.float32)
    data.setflags(write=False)
    result = ug.run(identity("f32"), data, engine=engine)
    result[0] = 5
    assert data[0] == 1


def test_tensors_with_gradients(engine: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.nn.Parameter(torch.ones(3))
    result = ug.run(identity("f32"), x, engine=engine)
    assert not result.requires_grad and type(result) is torch.Tensor
    with pytest.raises(ug.InputError, match=r"input 'x' must be .*sparse.*to_dense"):
        ug.run(identity("f32"), torch.ones(3).to_sparse(), engine=engine)


def test_traced_values() -> None:
    jax = pytest.importorskip("jax")
    f = ug.compile(identity("f32"), "numpy")
    with pytest.raises(ug.InputError, match=r"input 'x' .*to_jax|traced value"):
        jax.jit(f)(np.ones(3, np.float32))


# -- keys --------------------------------------------------------------------------------------------


def drawing(impl: str = "threefry2x32", shape: tuple[int, ...] = ()) -> Graph:
    b = ug.GraphBuilder("drawing")
    key = b.key(impl=impl, shape=shape)
    return b.build((b.rng_unwrap(key), b.random_uniform(key, shape=(4,), dtype="f32")))


SEEDS = [0, 1, -1, 2**31, 2**32 - 1, 2**32 + 7, -(2**33) - 1, 2**63 - 1, -(2**63), np.int32(-1), np.int64(-5)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("wide", [False, True])
def test_seeds_are_those_of_jax(seed: Any, impl: str, wide: bool) -> None:
    jax = pytest.importorskip("jax")
    b = ug.GraphBuilder("words")
    g = b.build(b.rng_unwrap(b.key(impl=impl)))
    with jax.enable_x64(wide):
        expected = np.asarray(jax.random.key_data(jax.random.key(seed, impl=impl)))
        np.testing.assert_array_equal(ug.run(g, seed, engine="numpy"), expected)
        np.testing.assert_array_equal(ug.run(g, key=seed, engine="numpy"), expected)
        if not isinstance(seed, np.integer):
            np.testing.assert_array_equal(ug.run(g, seed=seed, engine="numpy"), expected)


def test_forms_of_a_key(engine: str) -> None:
    jax = pytest.importorskip("jax")
    f = ug.compile(drawing(), engine)
    key = jax.random.key(3)
    words = np.asarray(jax.random.key_data(key))
    expected = np.asarray(jax.random.uniform(key, (4,)))
    forms = (key, words, jax.random.key_data(key), words.astype(np.int64), 3, np.int32(3), [0, 3])
    for form in forms:
        np.testing.assert_array_equal(plain(f(form)[1]), expected)
    np.testing.assert_array_equal(f(seed=3)[1], expected)
    assert isinstance(f(key)[1], jax.Array)


def test_fresh_keys() -> None:
    f = ug.compile(drawing(), "numpy")
    assert not np.array_equal(f()[0], f()[0])
    many = ug.compile(identity_key((2, 3)), "numpy")
    words = many()
    assert words.shape == (2, 3, 2) and len(np.unique(words)) > 6


def identity_key(shape: tuple[int, ...]) -> Graph:
    b = ug.GraphBuilder("keys")
    return b.build(b.rng_unwrap(b.key(shape=shape)))


def test_a_key_out_is_a_typed_key_for_jax() -> None:
    jax = pytest.importorskip("jax")
    b = ug.GraphBuilder("folding")
    g = b.build(b.rng_fold_in(b.key(), b.constant(1, "u32")))
    for name in ("numpy", "jax"):
        result = ug.run(g, jax.random.key(0), engine=name)
        assert result == jax.random.fold_in(jax.random.key(0), 1)
    assert ug.run(g, 0, engine="numpy").dtype == np.uint32


BAD_KEYS = {
    "shape": (np.zeros(3, np.uint32), r"random key key<threefry2x32>\[\].*not u32\[3\]"),
    "floats": (np.zeros(2, np.float32), r"integer seed, not f32\[2\]"),
    "range": (np.array([0, 2**40]), r"not i64\[2\]"),
    "huge": (2**64, r"does not fit 64 bits"),
    "bool": (True, r"integer seed, not bool"),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_bad_keys(case: str) -> None:
    x, message = BAD_KEYS[case]
    with pytest.raises(ug.InputError, match=message):
        ug.run(drawing(), x, engine="numpy")


def test_wrong_kind_of_key() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(
        ug.InputError, match=r"must be a key<threefry2x32>, got a key of kind rbg: .*impl='threefry2x32'"
    ):
        ug.run(drawing(), jax.random.key(0, impl="rbg"), engine="numpy")
    with pytest.raises(ug.InputError, match="an integer seed makes only one"):
        ug.run(identity_key((2,)), 1, engine="numpy")
    with pytest.raises(ug.InputError, match="axis 0 must have size 2, got 3"):
        ug.run(identity_key((2,)), jax.random.split(jax.random.key(0), 3), engine="numpy")


def test_seed_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert keys.seed_words(2**32 + 5, ug.TensorType("key<threefry2x32>").dtype).tolist() == [0, 5]


# -- keep, weights, states ---------------------------------------------------------------------------


def test_keep(engine: str) -> None:
    result, kept = ug.run(affine(), X, Y, engine=engine, keep=["hidden", "w", "x"])
    np.testing.assert_allclose(result, WANTED, rtol=1e-5)
    np.testing.assert_allclose(np.tanh(kept["hidden"]), WANTED, rtol=1e-5)
    np.testing.assert_array_equal(kept["x"], X)
    with pytest.raises(ug.InputError, match=r"no value is called 'hiden'; there are hidden"):
        ug.run(affine(), X, Y, engine=engine, keep=["hiden"])


def test_weights(tmp_path: Path) -> None:
    b = ug.GraphBuilder("unbound")
    names = ("w0", "w1")
    type_ = ug.TensorType("f32", (2,))
    g = b.build(b.add(*(b.weight(n, type=type_) for n in names)))
    with pytest.raises(ug.InputError, match=r"2 weight\(s\) hold no data: 'w0', 'w1'; load the graph with weights="):
        ug.run(g)
    arrays = {n: np.ones(2, np.float32) for n in names}
    assert ug.run(g, weights=arrays, engine="numpy").tolist() == [2, 2]
    g.save(tmp_path / "g.ugraph")
    assert ug.run(tmp_path / "g.ugraph", weights=arrays, engine="numpy").tolist() == [2, 2]
    assert ug.run(str(tmp_path / "g.ugraph"), weights=arrays, engine="numpy").tolist() == [2, 2]


def counter() -> Graph:
    b = ug.GraphBuilder("counter")
    x, count = b.input("x", "f32"), b.state("count", np.float32(1))
    b.update(count, b.add(count, x))
    return b.build(b.mul(x, count))


def test_states(engine: str) -> None:
    f = ug.compile(counter(), engine)
    out, states = f.step(np.float32(2))
    assert out == 2 and states == {"count": 3}
    assert f(np.float32(2)) == 2  # a call changes nothing
    out, states = f.step(np.float32(2), states=states)
    assert out == 6 and states == {"count": 5}
    assert f.step(np.float32(2))[0] == 2
    with pytest.raises(ug.InputError, match="there is no state 'n'; the graph has count"):
        f.step(np.float32(2), states={"n": np.float32(0)})


# -- threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
def test_threads_share_a_callable(name: str) -> None:
    for package in PACKAGES.values():
        pytest.importorskip(package)
    f = ug.compile(affine(), name)

    def work(i: int) -> bool:
        rows = 2 * (1 + i % 4)
        x, y = np.full((rows, 3), i / 10, np.float32), np.full((rows, 2), i, np.float32)
        expected = np.tanh(x @ (np.arange(6, dtype=np.float32).reshape(3, 2) / 10) + y)
        return np.allclose(f(x, y), expected, atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


# -- errors of engines -------------------------------------------------------------------------------


def test_unknown_engine_and_devices(engine: str) -> None:
    with pytest.raises(ug.EngineError, match="no engine 'tensorflow'; choose auto, numpy, torch, jax, onnx"):
        ug.compile(affine(), "tensorflow")
    for device in ("abacus", "cuda:99", "meta"):
        with pytest.raises(ug.EngineError, match=rf"(?s)(?=.*{device}).*cpu"):
            ug.compile(affine(), engine, device)


def test_missing_framework(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "numpy":
        return
    package = PACKAGES[engine]
    for name in [
        m for m in sys.modules if m.partition(".")[0] == package or m.endswith((f"{engine}.engine", "onnx.session"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    from unigraph.runtime.engines import ENGINES as known

    monkeypatch.delitem(sys.modules, known[engine], raising=False)
    with pytest.raises(
        ug.MissingPackageError, match=rf"the {engine} engine needs {package}.*pip install 'unigraph\[{engine}\]'"
    ):
        ug.compile(affine(), engine)


def test_a_failing_operation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from unigraph.runtime.numpy.table import TABLE

    op = registry()["tanh"]

    def fail(x: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setitem(TABLE.rows, op, fail)
    with pytest.raises(
        ug.EngineError, match=r"numpy engine failed on <tanh\(f32\[batch,2\]\).*layer \(net.py:7\).*no room"
    ):
        ug.run(affine(), X, Y, engine="numpy")
