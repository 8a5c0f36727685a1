"""Python branches on tensor values, explored: every outcome agrees with eager torch on every engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unigraph as ug

ENGINES = ("numpy", "torch", "jax")


def one(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x - 1


def nested(x: Any) -> Any:
    y = x.abs()
    if x[0] > 0:
        if x[1] > 0:
            y = y + 1
        else:
            y = y * x
    elif x[2] > 0:
        return y.exp()
    return y.sin()


def early(x: Any) -> Any:
    y = x + 1
    if (y < 0).any():
        return torch.zeros_like(x), y
    return y.sqrt(), y


def both(x: Any) -> Any:
    return x if x[0] > 0 and x[1] > 0 or x[2] < 0 else -x


def steps(x: Any) -> Any:
    """Halves until it is small: three times at most."""
    for _ in range(3):
        if x.abs().max() < 1:
            break
        x = x / 2
    return x


def converted(x: Any) -> Any:
    return x + 1 if bool(x.mean() > 0) else x


PROGRAMS = {f.__name__: f for f in (one, nested, early, both, steps, converted)}
INPUTS = [torch.tensor(signs) * 3 for signs in itertools.product((-1.0, 0.2, 1.0), repeat=3)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_outcome_agrees(name: str, tmp_path: Any) -> None:
    program = PROGRAMS[name]
    ug.from_torch(program, (INPUTS[0],), branches="explore").save(tmp_path / "g.ugraph")
    graph = ug.load(tmp_path / "g.ugraph")
    ug.check(graph)
    for engine in ENGINES:
        f = ug.compile(graph, engine)
        for x in INPUTS:
            for found, wanted in zip(flat(f(x)), flat(program(x)), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6, err_msg=f"{engine}, {x}")


def flat(result: Any) -> list[Any]:
    return [r.numpy() for r in (result if isinstance(result, tuple) else (result,))]


def test_a_module_with_a_free_batch() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.a(x) if x.mean() > 0 else self.b(x).relu()

    torch.manual_seed(0)
    net = Net()
    graph = ug.from_torch(net, (torch.ones(4, 3),), dynamic=(("batch", None),), branches="explore")
    assert set(graph.weights) == set(net.state_dict())
    for x in (torch.ones(5, 3), -torch.ones(2, 3)):
        for engine in ENGINES:
            np.testing.assert_allclose(ug.run(graph, x, engine=engine), net(x).detach(), rtol=1e-5, atol=1e-6)
    module = ug.to_torch(graph)
    x = torch.randn(4, 3)
    module(x).sum().backward()
    net(x).sum().backward()
    for key, p in net.named_parameters():
        found = dict(module.named_parameters())[key].grad
        expected = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(torch.zeros_like(p) if found is None else found, expected)


def test_random_numbers_decide() -> None:
    def f(x: Any) -> Any:
        if torch.rand(()) < 0.5:
            return x + 1
        return x - 1

    graph = ug.from_torch(f, (torch.zeros(2),), branches="explore")
    for engine in ENGINES:
        run = ug.compile(graph, engine)
        drawn = [float(run(torch.zeros(2), seed=s)[0]) for s in range(40)]
        assert set(drawn) == {1.0, -1.0} and 8 <= drawn.count(1.0) <= 32
        assert drawn == [float(ug.compile(graph, "numpy")(torch.zeros(2), seed=s)[0]) for s in range(40)]


def test_what_stands_before_and_behind_a_branch_stands_once() -> None:
    def f(x: Any) -> Any:
        y = x.exp()
        y = y + 1 if y.sum() > 9 else y - 1
        return y.tanh()

    graph = ug.from_torch(f, (torch.ones(3),), branches="explore")
    names = [op.op.name for op in graph.all_edges()]
    assert names.count("exp") == names.count("tanh") == names.count("cond") == 1


def test_the_default_refuses_and_names_the_line_and_the_option() -> None:
    with pytest.raises(ug.UnigraphError, match=r'test_from_torch_branches.py:\d+: if x.sum\(\).*branches="explore"'):
        ug.from_torch(one, (torch.ones(3),))


def test_too_many_outcomes() -> None:
    def f(x: Any) -> Any:
        for i in range(6):
            if x[i] > 0:
                x = x + 1
        return x

    with pytest.raises(ug.UnigraphError, match=r"more than 8 ways.*test_from_torch_branches.py:\d+.*raise max_paths"):
        ug.from_torch(f, (torch.zeros(6),), branches="explore", max_paths=8)
    graph = ug.from_torch(f, (torch.zeros(6),), branches="explore")
    x = torch.tensor([-3.0, 1, -1, 0.5, -9, 0])
    np.testing.assert_allclose(ug.run(graph, x, engine="numpy"), f(x))


def test_runs_that_differ_for_another_reason() -> None:
    count = itertools.count()

    def f(x: Any) -> Any:
        x = x.sin() if next(count) % 2 else x.cos()
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(ug.UnigraphError, match=r"differ|depends on something besides"):
        ug.from_torch(f, (torch.ones(3),), branches="explore")


@pytest.mark.parametrize(
    ("other", "message"),
    [(lambda x: x.long(), "int64"), (lambda x: x[:1], r"\[1\]"), (lambda x: (x, x), "structure")],
)
def test_outcomes_of_different_types(other: Any, message: str) -> None:
    with pytest.raises(ug.UnigraphError, match=f"(?s)output.*{message}|{message}"):
        ug.from_torch(lambda x: x if x.sum() > 0 else other(x), (torch.ones(3),), branches="explore")


def test_numbers_are_refused() -> None:
    with pytest.raises(ug.UnigraphError, match="exploring follows conditions only"):
        ug.from_torch(lambda x: x[: int(x.sum())] * 2, (torch.ones(3),), branches="explore")


def test_wrong_options() -> None:
    with pytest.raises(ug.InputError, match='branches is "refuse" or "explore", not \'guess\''):
        ug.from_torch(one, (torch.ones(3),), branches="guess")
    with pytest.raises(ug.InputError, match="max_paths is at least 1"):
        ug.from_torch(one, (torch.ones(3),), branches="explore", max_paths=0)
