"""Tied weights: one value under several names, through capture, file, text, binding, passes and back to torch."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.builder import GraphBuilder
from unigraph.errors import FormatError, GraphError, InputError, TextError, UnigraphError
from unigraph.graph import Graph
from unigraph.safetensors import load_file, save_file
from unigraph.schema import ugraph_pb2 as pb
from unigraph.serde import decode, encode

TABLE = np.arange(28, dtype=np.float32).reshape(7, 4)


def tied(array: Any = TABLE) -> Graph:
    b = GraphBuilder("tied")
    x = b.input("x", "i64", (2,))
    w = b.weight("embed.weight", array, None if array is not None else ug.TensorType("f32", (7, 4)))
    b.alias("head.weight", w)
    b.alias('an "odd" name', w)
    return b.build(b.linear(b.embedding(w, x), w))


ALIASES = {"head.weight": "embed.weight", 'an "odd" name': "embed.weight"}


def test_file_and_text_keep_the_names(tmp_path: Path) -> None:
    graph = tied()
    graph.save(tmp_path / "g.ugraph", weights="w.safetensors")
    assert list(load_file(tmp_path / "w.safetensors")) == ["embed.weight"]  # written once
    loaded = ug.load(tmp_path / "g.ugraph")
    assert loaded.aliases == ALIASES and len(loaded.data) == 1
    assert ug.parse(graph.text(full=True)).aliases == ALIASES
    assert str(ug.parse(str(graph))) == str(graph)


@pytest.mark.parametrize("names", (["embed.weight"], ["head.weight"], ["embed.weight", "head.weight"]))
def test_any_of_the_names_binds(names: list[str], tmp_path: Path) -> None:
    tied(None).save(tmp_path / "g.ugraph")
    save_file({n: TABLE for n in names}, tmp_path / "w.safetensors")
    loaded = ug.load(tmp_path / "g.ugraph", weights=tmp_path / "w.safetensors")
    assert np.array_equal(loaded.weights["embed.weight"], TABLE)


def test_two_values_for_one_weight_are_refused() -> None:
    odd = np.where(TABLE == 3, np.nan, TABLE)
    assert tied(None).bind({"embed.weight": odd, "head.weight": odd.copy()}).weights["embed.weight"] is not None
    with pytest.raises(InputError, match=r"conflicting: 'head\.weight' and 'embed\.weight' are one tied weight"):
        tied(None).bind({"embed.weight": TABLE, "head.weight": TABLE + 1})
    with pytest.raises(InputError, match=r"missing: 'embed\.weight'"):
        from unigraph.binding import bind

        bind(tied(None), {}, complete=True)


def test_passes_and_transforms_keep_the_names() -> None:
    graph = tied()
    for level in range(4):
        assert ug.optimize(graph, level=level).aliases == ALIASES
    assert ug.passes.specialize(ug.passes.cast(graph, weights=False), {}).aliases == ALIASES
    b = GraphBuilder()
    x = b.input("x", "f32", (4,))
    w, other = b.weight("w", np.ones(4, np.float32)), b.weight("v", np.ones(4, np.float32))
    b.alias("w2", w)
    b.alias("v2", other)
    whole = b.build(b.reduce_sum(b.mul(x, b.mul(w, w)), axes=(0,)))
    assert ug.passes.prune(whole).aliases == {"w2": "w"}  # those of a weight that is gone go with it


def test_jax_takes_any_name_and_sums_the_gradient() -> None:
    jax = pytest.importorskip("jax")
    b = GraphBuilder()
    x = b.input("x", "f32", (4,))
    w = b.weight("w", np.full(4, 3, np.float32))
    b.alias("w2", w)
    graph = b.build(b.reduce_sum(b.mul(x, b.mul(w, w)), axes=(0,)))
    fn, params = ug.to_jax(graph)
    assert list(params) == ["w"]
    ones = np.ones(4, np.float32)
    assert float(fn({"w2": params["w"]}, ones)) == float(fn(params, ones)) == 36
    assert np.allclose(jax.grad(lambda p: fn(p, ones))(params)["w"], 6)
    gradient = ug.grad(graph, "w2")
    assert gradient.aliases == {"w2": "w"}
    assert np.allclose(np.asarray(ug.run(gradient, ones)), 6)


def test_what_is_not_well_formed_is_refused() -> None:
    graph = tied()
    for aliases in ({"embed.weight": "embed.weight"}, {"x": "embed.weight"}, {"a": "nothing"}, {"": "embed.weight"}):
        with pytest.raises(GraphError, match="further name"):
            ug.check(graph.replace(aliases=aliases))
    b = GraphBuilder()
    w = b.weight("w", TABLE)
    with pytest.raises(GraphError, match="two inputs or weights"):
        b.alias("w", w)
    with pytest.raises(GraphError, match="is no weight"):
        b.alias("y", b.neg(w))
    for line in ("alias %w = %w", "alias %0 = %w", "alias %a = %b", "alias %a = %x"):
        with pytest.raises(TextError):
            ug.parse(f"input %x: f32[2]\nweight %w: f32[2]\n{line}\nreturn %w")


def test_files_are_not_trusted() -> None:
    model = pb.Model.FromString(encode(tied()).data)
    del model.graph.aliases[1:]
    model.graph.aliases.add(name="late", value="dropped by an older unigraph")
    assert decode(model.SerializeToString()).aliases == {"head.weight": "embed.weight"}
    model.graph.aliases.add(name="head.weight", value="embed.weight")
    with pytest.raises(FormatError, match="stands twice"):
        decode(model.SerializeToString())


def test_sharded_checkpoints(tmp_path: Path) -> None:
    b = GraphBuilder("sharded")
    names = [f"layers.{i}.weight" for i in range(5)]
    for name in names:
        b.weight(name, type=ug.TensorType("f32", (3,)))
    graph = b.build(())
    graph.save(tmp_path / "g.ugraph")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    arrays = {n: np.full(3, i, np.float32) for i, n in enumerate(names)}
    shards = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for file, held in shards.items():
        save_file({n: arrays[n] for n in held}, folder / file)
    index = folder / "model.safetensors.index.json"
    where = {n: file for file, held in shards.items() for n in held}
    index.write_text(json.dumps({"metadata": {"total_size": 60}, "weight_map": where}))
    for weights in (index, folder, str(folder / "model-*.safetensors"), [folder / f for f in shards]):
        loaded = ug.load(tmp_path / "g.ugraph", weights=weights)
        assert all(np.array_equal(loaded.weights[n], arrays[n]) for n in names)
    for broken, error, message in (
        ({"weight_map": {names[0]: "../model.safetensors"}}, FormatError, "same folder"),
        ({"weight_map": {names[0]: "gone.safetensors"}}, InputError, "not beside it"),
        ({"weight_map": {"other": "model-00001-of-00002.safetensors"}}, FormatError, "does not hold 'other'"),
        ({"weights": {}}, FormatError, "no weight_map"),
        ([], FormatError, "no weight_map"),
    ):
        index.write_text(json.dumps(broken))
        with pytest.raises(error, match=message):
            ug.load(tmp_path / "g.ugraph", weights=index)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no checkpoints"):
        ug.load(tmp_path / "g.ugraph", weights=tmp_path / "empty")


def _language_model() -> Any:
    torch: Any = pytest.importorskip("torch")

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight
            self.view = torch.nn.Parameter(self.embed.weight.data.view(7, 4))  # another object over the same memory
            self.register_buffer("scale", torch.ones(4))
            self.register_buffer("same", self.scale)
            self.register_buffer("passing", self.scale, persistent=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.embed(x) * self.scale + self.same * self.passing)

    torch.manual_seed(0)
    return Tied()


def test_torch_round_trip() -> None:
    torch: Any = pytest.importorskip("torch")
    model, x = _language_model(), torch.tensor([1, 2, 6])
    graph = ug.from_torch(model, (x,))
    assert {v.name for v in graph.data} - {""} == {"view", "scale"}
    module = ug.to_torch(graph)
    assert set(module.state_dict()) == set(model.state_dict())
    assert module.head.weight is module.embed.weight is module.view
    module.load_state_dict(_language_model().state_dict())
    twin = copy.deepcopy(module)
    assert twin.head.weight is twin.embed.weight is not module.embed.weight
    assert set(twin.state_dict()) == set(model.state_dict())
    # One step of training moves the one tensor, as in the original.
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (twin, model)]
    for m in (twin, model):
        m(x).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    torch.testing.assert_close(twin(x), model(x))
    checkpoint = {n: t.detach().numpy() for n, t in model.state_dict().items()}
    bound = graph.bind(checkpoint)
    torch.testing.assert_close(torch.as_tensor(ug.run(bound, x)), model(x).detach())


def test_torch_source_keeps_the_ties(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    model, x = _language_model(), torch.tensor([1, 2, 6])
    ug.to_source(ug.from_torch(model, (x,)), "torch", tmp_path / "tied.py")
    assert "head_weight" not in (tmp_path / "tied.py").read_text()  # what nothing reads is not read
    space: dict[str, Any] = {"__file__": str(tmp_path / "tied.py"), "__name__": "tied"}
    exec(compile((tmp_path / "tied.py").read_text(), "tied.py", "exec"), space)
    module = space["load"]()
    assert set(module.state_dict()) == set(model.state_dict())
    assert module.head.weight is module.embed.weight and module.same is module.scale
    torch.testing.assert_close(module(x), model(x))


def test_names_that_export_drops_are_kept() -> None:
    """Strict export and the trace merge tied tensors and leave out what nothing reads."""
    torch: Any = pytest.importorskip("torch")
    model, x = _language_model(), torch.tensor([1, 2, 6])
    model.register_buffer("unread", torch.ones(2))
    exported = torch.export.export(model, (x,), strict=True)
    assert set(ug.to_torch(ug.from_torch(exported)).state_dict()) == set(model.state_dict())


def test_a_written_buffer_with_two_names() -> None:
    torch: Any = pytest.importorskip("torch")

    class Counter(torch.nn.Module):
        def __init__(self, view: bool) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", self.a.view(3) if view else self.a)

        def forward(self, x: Any) -> Any:
            self.a.add_(x)
            return self.b * 2

    model, x = Counter(False), torch.ones(3)
    module = ug.to_torch(ug.from_torch(model, (x,)))
    for _ in range(3):
        assert torch.equal(module(x), model(x))
    assert torch.equal(module.a, model.a) and module.a is module.b
    with pytest.warns(UserWarning), pytest.raises(UnigraphError, match="shares memory with 'b'"):
        ug.from_torch(Counter(True), (x,))
