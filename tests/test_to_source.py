"""Standalone source: runs without unigraph, gives the numbers of the engine, reads as it should."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unigraph as ug
from unigraph.errors import Unsupported
from unigraph.tree import flatten

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
jnp = jax.numpy

DOCUMENTED = ("mlp", "attention", "elman", "train_step")  # programs that stand in docs/examples
TARGETS = ("numpy", "jax", "torch")
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp() -> ug.Graph:
    """The graph of docs/examples/mlp_*.py."""
    b = ug.GraphBuilder("mlp")
    x = b.input("x", "f32", ("batch", 4))
    with b.at("hidden"):
        h = b.gelu(
            b.linear(x, b.weight("hidden.weight", f32(8, 4)), b.weight("hidden.bias", f32(8))), approximate="none"
        )
    with b.at("out"):
        y = b.linear(h, b.weight("out.weight", f32(2, 8)), b.weight("out.bias", f32(2)))
    return b.build(y)


def attention_block() -> ug.Graph:
    """The graph of docs/examples/attention_*.py."""
    b = ug.GraphBuilder("attention_block")
    x = b.input("x", "f32", ("batch", "seq", 8))
    batch, seq = x.type.shape[:2]

    def heads(name: str, h):
        y = b.linear(h, b.weight(f"{name}.weight", f32(8, 8, seed=len(name))))
        return b.transpose(b.reshape(y, shape=(batch, seq, 2, 4)), permutation=(0, 2, 1, 3))

    with b.at("norm"):
        h = b.layer_norm(
            x, b.weight("norm.weight", np.ones(8, np.float32)), b.weight("norm.bias", f32(8)), normalized_rank=1
        )
    with b.at("attention"):
        q, k, v = (heads(name, h) for name in ("query", "key", "value"))
        y = b.attention(q, k, v, is_causal=True)
        y = b.reshape(b.transpose(y, permutation=(0, 2, 1, 3)), shape=(batch, seq, 8))
    with b.at("out"):
        y = b.linear(y, b.weight("out.weight", f32(8, 8)), b.weight("out.bias", f32(8)))
    return b.build(b.add(x, y))


def conv_net() -> ug.Graph:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 4, 3, stride=2),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    ).eval()
    return ug.from_torch(net, (torch.randn(2, 3, 8, 8),))


def rnn() -> ug.Graph:
    def step(h, x):
        h = jnp.tanh(h * 0.5 + x)
        return h, h.sum()

    return ug.from_jax(lambda h, xs: {"h": jax.lax.scan(step, h, xs)}, jnp.ones(2), jnp.ones((5, 2)))


def elman() -> ug.Graph:
    """The graph of docs/examples/elman_*.py: a recurrent network over a sequence, and where it ends."""

    def network(weights, xs):
        def step(h, x):
            h = jnp.tanh(x @ weights["inner"] + h @ weights["hidden"] + weights["bias"])
            return h, h @ weights["out"]

        return jax.lax.scan(step, jnp.zeros(4), xs)

    weights = {"inner": f32(3, 4), "hidden": f32(4, 4) / 4, "bias": f32(4), "out": f32(4, 2)}
    return ug.from_jax(network, weights, f32(6, 3), weights=0, dynamic={"xs": ("time", None)})


def train_step() -> ug.Graph:
    """The graph of docs/examples/train_step_*.py: loss, gradients and momentum of a small network."""

    def loss(weights, x, y):
        with jax.named_scope("network"):
            h = jnp.tanh(x @ weights["hidden"] + weights["bias"])
            error = h @ weights["out"] - y
        with jax.named_scope("loss"):
            return (error**2).sum(axis=1).mean()

    def step(weights, speed, x, y):
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        with jax.named_scope("update"):
            speed = jax.tree.map(lambda v, g: 0.9 * v - 0.1 * g, speed, slopes)
            return value, jax.tree.map(jnp.add, weights, speed), speed

    weights = {"hidden": f32(3, 5), "bias": f32(5), "out": f32(5, 2)}
    speed = {name: np.zeros_like(w) for name, w in weights.items()}
    dynamic = {"x": ("batch", None), "y": ("batch", None)}
    return ug.optimize(ug.from_jax(step, weights, speed, f32(4, 3), f32(4, 2), dynamic=dynamic), level=1)


def gamble() -> ug.Graph:
    def program(key, x):
        return jax.lax.cond(jax.random.bernoulli(key), lambda: jax.nn.relu(x), lambda: jax.nn.sigmoid(x))

    return ug.from_jax(program, jax.random.key(0), jnp.ones(3))


def loop() -> ug.Graph:
    def program(n, x):
        return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, x))

    return ug.from_jax(program, jnp.int32(3), jnp.ones(3))


def reduction() -> ug.Graph:
    def program(x):
        return jax.lax.reduce(x, jnp.float32(0), lambda a, b: jnp.maximum(a, b * 1), (0,)), jax.lax.sort(x)

    return ug.from_jax(program, jnp.ones((4, 3)))


def bfloat() -> ug.Graph:
    def program(w, x):
        return jax.nn.softmax(x @ w) * jnp.asarray([1, 2, 3], jnp.bfloat16)

    return ug.from_jax(program, jnp.ones((4, 3), jnp.bfloat16), jnp.ones((2, 4), jnp.bfloat16), weights=(0,))


def counter() -> ug.Graph:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x * self.seen

    return ug.from_torch(Counter(), (torch.randn(4, 3),))


def nested() -> ug.Graph:
    table = jnp.asarray(f32(2, 30))  # too long for the text: goes to the weights file

    def program(d):
        return {"a": d["x"].sum(0), "b": [d["y"] @ table * d["x"].shape[0], None]}

    dynamic = ({"x": ("n", None), "y": (None,)},)
    return ug.from_jax(program, {"x": jnp.ones((3, 2)), "y": jnp.ones(2)}, dynamic=dynamic)


CASES = {
    "mlp": (mlp, (f32(3, 4),)),
    "attention": (attention_block, (f32(2, 5, 8),)),
    "conv": (conv_net, (f32(2, 3, 8, 8),)),
    "rnn": (rnn, (f32(2), f32(5, 2))),
    "elman": (elman, (f32(5, 3),)),
    "train_step": (
        train_step,
        (
            {"hidden": f32(3, 5), "bias": f32(5), "out": f32(5, 2)},
            {"hidden": f32(3, 5, seed=1), "bias": f32(5, seed=1), "out": f32(5, 2, seed=1)},
            f32(7, 3),
            f32(7, 2),
        ),
    ),
    "gamble": (gamble, (np.array([0, 7], np.uint32), f32(3))),
    "loop": (loop, (np.array(4, np.int32), f32(3))),
    "reduction": (reduction, (f32(4, 3),)),
    "bfloat": (bfloat, (np.ones((2, 4), ug.TensorType("bf16").dtype.numpy),)),
    "counter": (counter, (f32(4, 3),)),
    "nested": (nested, ({"x": f32(5, 2), "y": f32(2)},)),
}

# Imports every program with unigraph out of reach, calls it, and pickles what it gives as NumPy arrays.
DRIVER = """
import importlib.util, pickle, sys
import numpy as np

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "unigraph":
            raise ImportError("unigraph is out of reach")

sys.meta_path.insert(0, Refuse())
folder, target = sys.argv[1:]
cases = pickle.load(open(f"{folder}/inputs.pickle", "rb"))

def walk(x, leaf):
    if isinstance(x, dict):
        return {k: walk(v, leaf) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(walk(v, leaf) for v in x)
    return x if x is None else leaf(x)

def plain(x):
    if target == "torch":
        x = x.detach()
        x = x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy()
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x

def tensor(x):
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)

if target == "torch":
    import torch
results = {}
for name, args in cases.items():
    spec = importlib.util.spec_from_file_location(name, f"{folder}/{name}.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    if target == "torch":
        classes = [v for k, v in vars(program).items() if isinstance(v, type) and v.__module__ == name]
        module = program.load() if hasattr(program, "load") else classes[0]()
        out = module(*walk(args, tensor))
    else:
        held = [program.load_weights()] if hasattr(program, "load_weights") else []
        out = program.main(*held, *args)
    results[name] = walk(out, plain)
assert "unigraph" not in sys.modules
pickle.dump(results, open(f"{folder}/results.pickle", "wb"))
"""


@pytest.fixture(scope="module")
def graphs() -> dict[str, ug.Graph]:
    return {name: make() for name, (make, _) in CASES.items()}


@pytest.fixture(scope="module")
def results(graphs, tmp_path_factory):
    """What the programs of one target give, each target run once."""
    found: dict[str, dict] = {}

    def get(target: str) -> dict:
        if target not in found:
            folder = tmp_path_factory.mktemp(target)
            for name, graph in graphs.items():
                text = ug.to_source(graph, target, folder / f"{name}.py")
                assert text == (folder / f"{name}.py").read_text()
            with open(folder / "inputs.pickle", "wb") as file:
                pickle.dump({name: args for name, (_, args) in CASES.items()}, file)
            subprocess.run([sys.executable, "-c", DRIVER, str(folder), target], check=True, timeout=300)
            with open(folder / "results.pickle", "rb") as file:
                found[target] = pickle.load(file)
        return found[target]

    return get


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_program_runs_without_unigraph(results, graphs, name: str, target: str):
    _, args = CASES[name]
    given, wanted = results(target)[name], ug.run(graphs[name], *args, engine="numpy")
    if graphs[name].states and target != "torch":
        given, states = given
        assert np.allclose(states["seen"], args[0].sum(0), atol=1e-5)
    given, structure = flatten(given)
    wanted, expected = flatten(wanted)
    assert structure == expected
    for a, b in zip(given, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, np.asarray(b).astype(a.dtype), atol=1e-5, rtol=1e-5)


def _bundle(target: str):
    from unigraph.converters.source.arrays import dialect
    from unigraph.converters.source.bundle import Bundle

    words, bundle = dialect(target), Bundle()
    bundle.imports.update(words.imports)
    bundle.add(ug.TensorType("f32").dtype)
    marks = {op: bundle.add(row, op.name) for op, row in words.table.rows.items()}
    bundle.name_all()
    scope: dict = {}
    exec(compile("\n".join([*bundle.imports.values(), bundle.text()]), f"<{target}>", "exec"), scope)
    return words, {op: eval(bundle.render(mark), scope) for op, mark in marks.items()}, scope["dtype"]


@pytest.mark.parametrize("target", ["numpy", "jax"])
def test_every_row_can_be_bundled_and_means_the_same(target: str):
    """The bundled source of each row gives the very bits of the row on the examples of its op."""
    words, functions, own_dtype = _bundle(target)
    assert functions.keys() == words.table.rows.keys()
    compared = 0
    for op, row in words.table.rows.items():
        for example in op.examples[:4]:
            attrs = op.normalize(example.attrs)
            flat = [i for v in attrs.values() for i in (v if isinstance(v, tuple) else (v,))]
            if example.regions or any(hasattr(i, "free_symbols") for i in flat):
                continue
            if op in words.keyed:
                attrs["impl"] = example.key_impl or "threefry2x32"
            own = {k: own_dtype(v.name) if isinstance(v, ug.DType) else v for k, v in attrs.items()}
            try:
                args = [jnp.asarray(a) for a in example.inputs] if target == "jax" else example.inputs
                wanted = row(*args, **attrs)
            except (OverflowError, AssertionError):
                assert target == "jax" and op.name in ("dim_size", "rng_bit_generator"), op.name
                continue  # 64-bit numbers while JAX's 64-bit types are off
            given = functions[op](*args, **own)
            for a, b in zip(flatten(given)[0], flatten(wanted)[0], strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), op.name
            compared += 1
    assert compared > 300


def test_the_text_reads_well():
    text = ug.to_source(mlp(), "numpy")
    main = text[text.index("def main") :]
    assert "def main(weights, x):" in text
    assert 'h = linear(x, weights["hidden.weight"], weights["hidden.bias"])' in main
    assert "\n\n    # out\n" in main
    assert main.index("def main") < main.index("def linear") < main.index("def dot_general")
    assert "unigraph." not in text.split('"""', 2)[2]
    assert "batch = x.shape[0]" in text
    assert max(map(len, text.splitlines())) <= 140


def test_equal_composites_are_written_once():
    b = ug.GraphBuilder()
    x = b.input("x", "f32", (3, 4))
    w = b.weight("w", f32(4, 4))
    text = ug.to_source(b.build(b.linear(b.linear(x, w), w)), "jax")
    assert text.count("def linear") == 1


def test_names_from_a_file_cannot_become_code():
    b = ug.GraphBuilder('x"); import os  #')
    x = b.input('a"""\n\nimport os', "f32", (2,))
    w = b.weight('w"]; import os; a["', f32(2))
    graph = b.build(b.add(x, w))
    for target in TARGETS:
        text = ug.to_source(graph, target)
        compile(text, target, "exec")
        names = {n.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for n in node.names}
        assert "os" not in names


def test_errors_and_atomic_writing(tmp_path):
    with pytest.raises(ug.InputError, match="no source target 'fortran'"):
        ug.to_source(mlp(), "fortran")
    b = ug.GraphBuilder()
    x = b.input("x", "f32", (2,))
    unbound = b.build(b.add(x, b.weight("w", None, type=ug.TensorType("f32", (2,)))))
    with pytest.raises(ug.InputError, match="'w'"):
        ug.to_source(unbound, "numpy", tmp_path / "m.py")
    assert list(tmp_path.iterdir()) == []
    assert 'weights["w"]' in ug.to_source(unbound, "numpy")


def test_unsupported_ops_are_named_all_at_once(monkeypatch):
    def refuse(self, thing, wish=""):
        raise Unsupported(f"no source for {wish}")

    monkeypatch.setattr("unigraph.converters.source.program.Bundle.add", refuse)
    with pytest.raises(ug.UnsupportedError, match=r"(?s)add \(x1\).*mul \(x2\)|mul \(x2\).*add \(x1\)"):
        b = ug.GraphBuilder()
        x = b.input("x", "f32", (4,))
        ug.to_source(b.build(b.add(b.mul(x, x), b.mul(x, x))), "numpy")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_in_the_documentation_are_current(name: str, target: str, tmp_path):
    path = tmp_path / f"{name}_{target}.py"
    ug.to_source(CASES[name][0](), target, path)
    committed = EXAMPLES / path.name
    assert path.read_text() == committed.read_text(), (
        f"write it anew: python -m tests.test_to_source (changes {committed})"
    )


def write_examples() -> None:
    """Write docs/examples anew."""
    EXAMPLES.mkdir(exist_ok=True)
    for name in DOCUMENTED:
        for target in TARGETS:
            ug.to_source(CASES[name][0](), target, EXAMPLES / f"{name}_{target}.py")


if __name__ == "__main__":
    write_examples()
