"""Joins runs of one program into one FX graph with branches.

Steps are the nodes of all runs, those that stand for the same thing made one. Numbers and attributes are
not steps in order: they are written where they are used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from unigraph.errors import UnigraphError

from .rows_control import DECIDE
from .sizes import SYMBOLIC
from .trace import Trace


@dataclass(frozen=True)
class Path:
    """One run: its trace, and what was answered where in the program."""

    trace: Trace
    answers: tuple[bool, ...]
    places: tuple[str, ...]


@dataclass(eq=False)
class Step:
    """A node of the joined program; ``args`` and ``kwargs`` hold steps where a node holds nodes."""

    op: str
    target: Any
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()  # of a branch: if true, if false

    @property
    def value(self) -> Any:
        return self.meta.get("val")

    @property
    def floats(self) -> bool:
        """True for what is written where it is used: numbers, and attributes."""
        return self.op == "get_attr" or isinstance(self.value, SYMBOLIC)


@dataclass(eq=False)
class Body:
    """Steps in order and what they give."""

    steps: list[Step]
    results: list[Any]


class Joiner:
    """Joins ``paths``, which together hold each answer to each question; ``labels`` names what they return."""

    def __init__(self, paths: Sequence[Path], labels: Callable[[int], str]):
        self.paths = list(paths)
        self.labels = labels
        first = paths[0].trace
        self.inputs = [
            Step("placeholder", n.target, meta=dict(n.meta)) for n in first.graph.graph.nodes if n.op == "placeholder"
        ]
        self._floating: dict[Any, Step] = {}
        self._tensors: list[torch.Tensor] = []  # constants, told apart by their values
        self._readers = [_Reader(self, p) for p in self.paths]

    def trace(self) -> Trace:
        """The joined runs as one trace. Raises UnigraphError where they do not fit together."""
        first = self.paths[0].trace
        for path in self.paths[1:]:
            if path.trace.structure != first.structure:
                place = _parting(self.paths[0], path)
                raise UnigraphError(
                    f"the outcomes of the branch at {place} return different structures: "
                    f"{first.structure} and {path.trace.structure}"
                )
        body = self._join(self._readers, 0)
        graph = _Writer(self._tensors).module(self.inputs, body, list)
        return Trace(graph, first.structure, first.env)

    def _join(self, readers: list[_Reader], depth: int) -> Body:
        """The program of runs that had the same answers to the first ``depth`` questions."""
        first = readers[0]
        steps = list(first.segment())
        for other in readers[1:]:
            other.follow(steps, first)
        if len(first.path.answers) == depth:
            if len(readers) > 1:
                raise _differ(first.path.places[-1:] or ("its start",))
            return Body(steps, first.results())
        question = steps[-1]
        sides = [[r for r in readers if r.path.answers[depth] is wanted] for wanted in (True, False)]
        place = first.path.places[depth]
        if not all(sides):
            raise _differ((place,))
        yes, no = (self._join(side, depth + 1) for side in sides)
        labels = [self.labels(i) for i in range(len(yes.results))]
        return _Merge(question, yes, no, place, labels).body(steps)

    def constant(self, tensor: torch.Tensor) -> int:
        """The number of a tensor among those that the program holds."""
        for i, known in enumerate(self._tensors):
            if known is tensor or _equal(known, tensor):
                return i
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def floating(self, step: Step) -> Step:
        """One step for each number and attribute, however often runs make it."""
        leaves, tree = pytree.tree_flatten((step.args, step.kwargs))
        number = str(step.value.node.expr) if isinstance(step.value, SYMBOLIC) else ""
        key = step.op, step.target, number, str(tree), tuple(map(_key, leaves))
        return self._floating.setdefault(key, step)


def _key(x: Any) -> Any:
    return x if isinstance(x, Step) else (type(x), repr(x))


def _equal(a: Any, b: Any) -> bool:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return isinstance(a, fx.GraphModule) and isinstance(b, fx.GraphModule) and a.code == b.code
    return a.dtype is b.dtype and a.shape == b.shape and not a.is_meta and torch.equal(a, b)


def _parting(a: Path, b: Path) -> str:
    return next(p for p, x, y in zip(a.places, a.answers, b.answers) if x is not y)


def _differ(places: Sequence[str]) -> UnigraphError:
    return UnigraphError(
        f"the program cannot be explored: two runs with the same answers differ after {places[-1]}; it depends on "
        "something besides its inputs (Python's random numbers, time, a counter)"
    )


class _Reader:
    """Reads one run in order, as steps."""

    def __init__(self, joiner: Joiner, path: Path):
        self.joiner, self.path = joiner, path
        self.steps: dict[fx.Node, Step] = {}
        nodes = list(path.trace.graph.graph.nodes)
        held = [n for n in nodes if n.op == "placeholder"]
        self.steps.update(zip(held, joiner.inputs, strict=True))
        self._rest = iter(nodes[len(held) :])
        self._last: fx.Node | None = None

    def segment(self) -> Iterator[Step]:
        """The steps up to the next question and that itself, or to the end."""
        for node in self._ordered():
            step = self.steps[node] = self._made(node)
            yield step
            if _is_question(step):
                return

    def follow(self, steps: Sequence[Step], first: _Reader) -> None:
        """Read what must be the same steps as another run's. Raises UnigraphError when it is not."""
        places = first.path.places or ("its start",)
        for step in steps:
            node = next(self._ordered(), None)
            if node is None or not _alike(step, self._made(node)):
                raise _differ(places)
            self.steps[node] = step
            if _is_question(step):
                return

    def results(self) -> list[Any]:
        assert self._last is not None
        return list(self._resolved(self._last.args[0]))

    def _ordered(self) -> Iterator[fx.Node]:
        for node in self._rest:
            if node.op == "output":
                self._last = node
                return
            step = self._made(node)
            if step.floats:
                self.steps[node] = self.joiner.floating(step)
            else:
                yield node

    def _made(self, node: fx.Node) -> Step:
        if node.op == "get_attr":
            found: Any = self.path.trace.graph
            for part in str(node.target).split("."):
                found = getattr(found, part)
            return Step("get_attr", self.joiner.constant(found), meta=dict(node.meta))
        return Step(node.op, node.target, self._resolved(node.args), self._resolved(dict(node.kwargs)), dict(node.meta))

    def _resolved(self, x: Any) -> Any:
        return fx.map_arg(x, self.steps.__getitem__)  # type: ignore[arg-type, return-value]


def _is_question(step: Step) -> bool:
    return step.target is DECIDE


# -- what two sides of a branch have in common --------------------------------------------------------


def _flat(x: Any) -> tuple[list[Any], Any]:
    return pytree.tree_flatten(x, is_leaf=lambda i: isinstance(i, Step))


def _type(x: Any) -> Any:
    """What must agree of two values that stand for one."""
    if isinstance(x, torch.Tensor):
        return x.dtype, tuple(map(str, x.shape))
    if isinstance(x, (tuple, list)):
        return tuple(map(_type, x))
    return type(x)


def _alike(a: Step, b: Step) -> bool:
    """True when two steps do the same to the same steps."""
    if not _same_kind(a, b):
        return False
    return all(_same_leaf(x, y) for x, y in zip(_flat((a.args, a.kwargs))[0], _flat((b.args, b.kwargs))[0]))


def _same_leaf(x: Any, y: Any) -> bool:
    return x is y or (not isinstance(x, Step) and _key(x) == _key(y))


def _same_kind(a: Step, b: Step) -> bool:
    """True when two steps do the same, whatever steps they do it to."""
    if a.op != b.op or a.target != b.target or _type(a.value) != _type(b.value) or len(a.bodies) != len(b.bodies):
        return False
    (x, x_tree), (y, y_tree) = _flat((a.args, a.kwargs)), _flat((b.args, b.kwargs))
    if x_tree != y_tree or not all(map(_same_place, x, y)):
        return False
    return all(
        len(c.steps) == len(d.steps)
        and len(c.results) == len(d.results)
        and all(map(_same_kind, c.steps, d.steps))
        and all(map(_same_place, c.results, d.results))
        for c, d in zip(a.bodies, b.bodies)
    )


def _same_place(x: Any, y: Any) -> bool:
    """True when both are steps, or one number."""
    return isinstance(y, Step) if isinstance(x, Step) else _key(x) == _key(y)


def _pairs(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """The places of two steps (or structures) of one kind at which steps are read."""
    if isinstance(a, Step) and isinstance(b, Step):
        yield from _pairs((a.args, a.kwargs), (b.args, b.kwargs))
        for c, d in zip(a.bodies, b.bodies):
            for x, y in zip(c.steps, d.steps):
                yield from _pairs(x, y)
            for x, y in zip(c.results, d.results):
                if isinstance(x, Step):
                    yield x, y
        return
    for x, y in zip(_flat(a)[0], _flat(b)[0]):
        if isinstance(x, Step):
            yield x, y


def _inner(a: Step, b: Step) -> Iterator[tuple[Step, Step]]:
    yield a, b
    for c, d in zip(a.bodies, b.bodies):
        for x, y in zip(c.steps, d.steps):
            yield from _inner(x, y)


class _Merge:
    """Two sides of one branch: what they end alike in goes behind it, over what the branch gives."""

    def __init__(self, question: Step, yes: Body, no: Body, place: str, labels: Sequence[str]):
        self.question, self.yes, self.no, self.place, self.labels = question, yes, no, place, labels
        meta = {k: v for k, v in question.meta.items() if k != "val"}
        self.fork = Step("call_function", torch.ops.higher_order.cond, meta=meta)
        self._given: dict[tuple[int, int], Step] = {}  # a step of each side -> what the branch gives for them
        self._crossing: list[tuple[Step, Step]] = []
        self._twin: dict[int, Step] = {}  # steps behind the branch, of the side that stays -> of the other
        self._back: dict[int, Step] = {}

    def body(self, before: list[Step]) -> Body:
        """The steps before the branch, the branch, and the steps behind it."""
        count = self._common()
        y, n = len(self.yes.steps) - count, len(self.no.steps) - count
        tail, other = self.yes.steps[y:], self.no.steps[n:]
        self.yes.steps, self.no.steps = self.yes.steps[:y], self.no.steps[:n]
        for a, b in zip(tail, other):
            self._join_step(a, b)
        pairs = zip(self.labels, self.yes.results, self.no.results)
        results = [self._result(label, a, b) for label, a, b in pairs]
        if not self._crossing:  # both sides give the same
            return Body([*before, *tail], results)
        self.fork.args = (self.question,)
        self.fork.bodies = (
            Body(self.yes.steps, [a for a, _ in self._crossing]),
            Body(self.no.steps, [b for _, b in self._crossing]),
        )
        self.fork.meta["val"] = tuple(a.value for a, _ in self._crossing)
        return Body([*before, self.fork, *self._given.values(), *tail], results)

    def _common(self) -> int:
        """How many steps at the end of both sides are one."""
        y, n = self.yes.steps, self.no.steps
        count = 0
        while count < min(len(y), len(n)) and _same_kind(y[-1 - count], n[-1 - count]):
            count += 1
        while True:
            tails = list(zip(y[len(y) - count :], n[len(n) - count :]))
            twins = [pair for a, b in tails for pair in _inner(a, b)]
            self._twin, self._back = {id(a): b for a, b in twins}, {id(b): a for a, b in twins}
            bad = [i for i, (a, b) in enumerate(tails) if not all(self._fits(*pair) for pair in _pairs(a, b))]
            if not bad:
                return count
            count -= bad[-1] + 1

    def _fits(self, a: Step, b: Step) -> bool:
        """True when a place may read ``a`` on one side and ``b`` on the other."""
        if id(a) in self._twin or id(b) in self._back:
            return self._twin.get(id(a)) is b
        if a is b:
            return True
        if a.floats or b.floats:  # a number does not leave a branch: only what it is read from does
            return a.floats and b.floats and _same_kind(a, b) and all(self._fits(*pair) for pair in _pairs(a, b))
        return isinstance(a.value, torch.Tensor) and _type(a.value) == _type(b.value)

    def _one(self, a: Any, b: Any) -> Any:
        """What stands for ``a`` and ``b``, which fit, behind the branch."""
        if not isinstance(a, Step) or a is b or id(a) in self._twin:
            return a
        if a.floats:
            return Step(a.op, a.target, *self._arguments(a, b), meta=a.meta)
        if (id(a), id(b)) not in self._given:
            args = (self.fork, len(self._crossing))
            self._given[id(a), id(b)] = Step("call_function", operator.getitem, args, meta={"val": a.value})
            self._crossing.append((a, b))
        return self._given[id(a), id(b)]

    def _arguments(self, a: Step, b: Step) -> tuple[Any, Any]:
        (x, tree), (y, _) = _flat((a.args, a.kwargs)), _flat((b.args, b.kwargs))
        args, kwargs = pytree.tree_unflatten([self._one(i, j) for i, j in zip(x, y)], tree)
        return args, kwargs

    def _join_step(self, a: Step, b: Step) -> None:
        a.args, a.kwargs = self._arguments(a, b)
        for c, d in zip(a.bodies, b.bodies):
            for x, y in zip(c.steps, d.steps):
                self._join_step(x, y)
            c.results = [self._one(x, y) for x, y in zip(c.results, d.results)]

    def _result(self, label: str, a: Any, b: Any) -> Any:
        """One output of both sides. Raises UnigraphError when they are of different types."""
        if not isinstance(a, Step) and not isinstance(b, Step):
            if _key(a) == _key(b):
                return a
            if type(a) is type(b):
                a, b = self._number(self.yes, a), self._number(self.no, b)
        elif not isinstance(a, Step):
            a = self._number(self.yes, a)
        elif not isinstance(b, Step):
            b = self._number(self.no, b)
        if isinstance(a, Step) and isinstance(b, Step) and self._fits(a, b):
            return self._one(a, b)
        raise UnigraphError(
            f"the outcomes of the branch at {self.place} give different types for {label}: "
            f"{_described(a)} and {_described(b)}; both must give one"
        )

    def _number(self, side: Body, x: Any) -> Any:
        """A number that one side returns, as a tensor; other things stay."""
        if not isinstance(x, (bool, int, float, complex)):
            return x
        dtype = torch.tensor(x).dtype
        meta = {"val": self.question.value.new_empty((), dtype=dtype)}
        side.steps.append(Step("call_function", torch.ops.aten.full.default, ([], x), {"dtype": dtype}, meta))
        return side.steps[-1]


def _described(x: Any) -> str:
    value = x.value if isinstance(x, Step) else x
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return f"a {type(value).__name__}"


# -- steps back to nodes -----------------------------------------------------------------------------


class _Writer:
    """Writes one body as an FX graph; the bodies of branches become modules over all that they read."""

    def __init__(self, constants: Sequence[Any]):
        self.constants = constants
        self.graph, self.root = fx.Graph(), torch.nn.Module()
        self.nodes: dict[Step, fx.Node] = {}

    def module(self, inputs: Sequence[Step], body: Body, finish: Callable[[list[Any]], Any]) -> fx.GraphModule:
        for step in inputs:
            name = step.target if step.op == "placeholder" else f"x{len(self.nodes)}"
            self.nodes[step] = self.graph.placeholder(name)
            self.nodes[step].meta.update(step.meta)
        for step in body.steps:
            self._write(step)
        self.graph.output(finish([self._nodes_of(r) for r in body.results]))
        return fx.GraphModule(self.root, self.graph)

    def _nodes_of(self, x: Any) -> Any:
        return pytree.tree_map_only(Step, self._node, x, is_leaf=lambda i: isinstance(i, Step))

    def _node(self, step: Step) -> fx.Node:
        if step not in self.nodes:
            assert step.floats, f"{step.target} is read before it is there"
            self._write(step)
        return self.nodes[step]

    def _write(self, step: Step) -> None:
        if step.op == "get_attr":
            node = self._attribute(f"_tensor_constant{step.target}", self.constants[step.target])
        elif step.bodies:
            node = self._branch(step)
        else:
            node = self.graph.create_node(step.op, step.target, self._nodes_of(step.args), self._nodes_of(step.kwargs))
        node.meta.update(step.meta)
        self.nodes[step] = node

    def _branch(self, step: Step) -> fx.Node:
        operands = list(dict.fromkeys(s for body in step.bodies for s in self._read_by(body)))
        sides = []
        for i, body in enumerate(step.bodies):
            module = _Writer(self.constants).module(operands, body, tuple)
            sides.append(self._attribute(f"branch_{len(self.nodes)}_{i}", module))
        return self.graph.call_function(
            step.target, (self._node(step.args[0]), *sides, tuple(map(self._node, operands)))
        )

    def _attribute(self, name: str, held: Any) -> fx.Node:
        if not hasattr(self.root, name):
            setattr(self.root, name, held)
        return self.graph.get_attr(name)

    def _read_by(self, body: Body) -> Iterator[Step]:
        """Tensors from around a body that it reads."""
        inside = {s for step in body.steps for s in _all_steps(step)}
        reads = [s for step in body.steps for s in _all_reads(step)] + [r for r in body.results if isinstance(r, Step)]
        while reads:
            step = reads.pop(0)
            if step in inside:
                continue
            if step.op == "get_attr" and isinstance(self.constants[step.target], torch.Tensor):
                yield step
            elif step.floats:
                reads += _flat((step.args, step.kwargs))[0] if step.op != "get_attr" else []
                reads = [r for r in reads if isinstance(r, Step)]
            else:
                yield step


def _all_steps(step: Step) -> Iterator[Step]:
    yield step
    for body in step.bodies:
        for inner in body.steps:
            yield from _all_steps(inner)


def _all_reads(step: Step) -> Iterator[Step]:
    yield from (s for s in _flat((step.args, step.kwargs))[0] if isinstance(s, Step))
    for body in step.bodies:
        for inner in body.steps:
            yield from _all_reads(inner)
        yield from (r for r in body.results if isinstance(r, Step))
