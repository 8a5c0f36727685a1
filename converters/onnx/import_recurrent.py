"""ONNX RNN, GRU and LSTM with every option: composites where these have the meaning, else a scan of the cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unigraph.builder import GraphBuilder
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cut, reshape, split

from .node import Node, RowBook

rows = RowBook()

Activation = Callable[[GraphBuilder, Value], Value]

# Name -> (function of builder, x, alpha, beta; default alpha; default beta). None: it takes none.
_ACTIVATIONS: dict[str, tuple[Callable[..., Value], float | None, float | None]] = {
    "relu": (lambda b, x: b.max(x, 0.0), None, None),
    "tanh": (lambda b, x: b.tanh(x), None, None),
    "sigmoid": (lambda b, x: b.logistic(x), None, None),
    "softsign": (lambda b, x: b.softsign(x), None, None),
    "softplus": (lambda b, x: b.softplus(x), None, None),
    "leakyrelu": (lambda b, x, alpha: b.leaky_relu(x, negative_slope=alpha), 0.01, None),
    "elu": (lambda b, x, alpha: b.elu(x, alpha=alpha), 1.0, None),
    "thresholdedrelu": (lambda b, x, alpha: b.select(b.gt(x, alpha), b.full_like(x, 0.0), x), 1.0, None),
    "affine": (lambda b, x, alpha, beta: b.add(b.mul(x, alpha), beta), 1.0, 0.0),
    "scaledtanh": (lambda b, x, alpha, beta: b.mul(b.tanh(b.mul(x, beta)), alpha), 1.0, 1.0),
    "hardsigmoid": (lambda b, x, alpha, beta: b.hardsigmoid(x, alpha=alpha, beta=beta), 0.2, 0.5),
}


@dataclass
class Kind:
    """A kind of layer: gates in ONNX's order, states, default activations, and the composite that may stand for it."""

    gates: int
    states: int
    defaults: tuple[str, ...]
    composite: str
    order: tuple[int, ...]  # the composite's gates, as positions in ONNX's order


KINDS = {
    "RNN": Kind(1, 1, ("tanh",), "rnn", (0,)),
    "GRU": Kind(3, 1, ("sigmoid", "tanh"), "gru", (1, 0, 2)),
    "LSTM": Kind(4, 2, ("sigmoid", "tanh", "tanh"), "lstm", (0, 2, 3, 1)),
}


@dataclass
class Weights:
    """The operands of one direction."""

    w: Value
    r: Value
    bias_w: Value | None
    bias_r: Value | None
    states: list[Value]
    peephole: Value | None


@rows("RNN", "GRU", "LSTM")
def recurrent(n: Node) -> tuple[Value, ...]:
    """Y [T, D, N, H] and the last states [D, N, H]; with layout 1 the batch comes first."""
    kind = KINDS[n.op_type]
    batch_first = bool(n.attr("layout", 0))
    x = n.value(0)
    x = n.b.transpose(x, permutation=(1, 0, 2)) if batch_first else x
    direction = n.attr("direction", "forward")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    names = [a.lower() for a in n.attr("activations") or kind.defaults * len(backwards)]
    chosen = _chosen(n, names, len(kind.defaults))
    results = []
    for d, reverse in enumerate(backwards):
        own = names[d * len(kind.defaults) : (d + 1) * len(kind.defaults)]
        weights = _weights(n, kind, x, d, len(backwards), batch_first)
        if _is_plain(n, kind, own):
            results.append(_as_composite(n, kind, x, weights, own, reverse))
        else:
            results.append(_as_scan(n, kind, x, weights, chosen[d], reverse))
    joined = []
    for i, parts in enumerate(zip(*results)):
        axis = 1 if i == 0 else 0
        shape = parts[0].type.shape
        wide = [n.b.reshape(p, shape=(*shape[:axis], 1, *shape[axis:])) for p in parts]
        one = n.b.concatenate(*wide, axis=axis) if len(wide) > 1 else wide[0]
        if batch_first:
            one = n.b.transpose(one, permutation=(2, 0, 1, 3) if i == 0 else (1, 0, 2))
        joined.append(one)
    return tuple(joined[: n.outputs])


def _chosen(n: Node, names: Sequence[str], each: int) -> list[list[Activation]]:
    """The activations of each direction, with the parameters that belong to them."""
    alphas, betas = iter(n.attr("activation_alpha") or ()), iter(n.attr("activation_beta") or ())
    made = [_activation(n, name, alphas, betas) for name in names]
    return [made[i : i + each] for i in range(0, len(made), each)]


def _activation(n: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    if name not in _ACTIVATIONS:
        raise Unsupported(f"{n.op_type} with activation {name}")
    f, alpha, beta = _ACTIVATIONS[name]
    given = []
    if alpha is not None:
        given.append(next(alphas, alpha))
    if beta is not None:
        given.append(next(betas, beta))
    return lambda b, x: f(b, x, *given)


def _weights(n: Node, kind: Kind, x: Value, d: int, directions: int, batch_first: bool) -> Weights:
    r = n.value(2)
    hidden = r.type.shape[-1]
    states = []
    for i in range(kind.states):
        if not n.has(5 + i):
            states.append(n.b.full(0.0, x.type.dtype, (x.type.shape[1], hidden)))
            continue
        first = n.value(5 + i)
        first = n.b.transpose(first, permutation=(1, 0, 2)) if batch_first else first
        states.append(_direction(n, first, d))
    biases: list[Value | None] = [None, None]
    if n.has(3):
        biases = list(split(n.b, _direction(n, n.value(3), d), 0, 2))
    peephole = _direction(n, n.value(7), d) if n.op_type == "LSTM" and n.has(7) else None
    return Weights(_direction(n, n.value(1), d), _direction(n, r, d), biases[0], biases[1], states, peephole)


def _direction(n: Node, x: Value, d: int) -> Value:
    return reshape(n.b, cut(n.b, x, 0, d, d + 1), x.type.shape[1:])


def _is_plain(n: Node, kind: Kind, names: Sequence[str]) -> bool:
    """Whether the composite has exactly this meaning."""
    special = n.has(4) or n.attr("clip") or n.attr("input_forget", 0) or (n.op_type == "LSTM" and n.has(7))
    usual = tuple(names) == kind.defaults or (n.op_type == "RNN" and names[0] in ("tanh", "relu"))
    return not special and usual and (n.op_type != "GRU" or bool(n.attr("linear_before_reset", 0)))


def _as_composite(
    n: Node, kind: Kind, x: Value, weights: Weights, names: Sequence[str], reverse: bool
) -> tuple[Value, ...]:
    parts = [weights.w, weights.r, *(v for v in (weights.bias_w, weights.bias_r) if v is not None)]
    ordered = [_reordered(n, v, kind) for v in parts]
    extra: dict[str, Any] = {"nonlinearity": names[0]} if n.op_type == "RNN" else {}
    return tuple(getattr(n.b, kind.composite)(x, *weights.states, *ordered, **extra, reverse=reverse))


def _reordered(n: Node, x: Value, kind: Kind) -> Value:
    if kind.order == tuple(range(kind.gates)):
        return x
    gates = split(n.b, x, 0, kind.gates)
    return n.b.concatenate(*(gates[g] for g in kind.order), axis=0)


# -- the cells ---------------------------------------------------------------------------------------


class Cell:
    """One step inside a scan: ``b`` is the region's builder, ``f`` the activations after the clip."""

    def __init__(self, n: Node, b: GraphBuilder, activations: Sequence[Activation], consts: dict[str, Value]):
        self.n, self.b, self.consts = n, b, consts
        bound = n.attr("clip")
        clipped = lambda x: b.clip(x, low=-bound, high=bound) if bound else x
        self.f = [lambda x, a=a: a(b, clipped(x)) for a in activations]  # type: ignore[misc]

    def rnn(self, from_x: Value, h: Value) -> tuple[Value, ...]:
        return (self.f[0](self.b.add(from_x, self._linear(h, "r", "bias_r"))),)

    def gru(self, from_x: Value, h: Value) -> tuple[Value, ...]:
        b = self.b
        zr, candidate = self._cut(from_x, 0, 2), self._cut(from_x, 2, 3)
        gates = b.add(zr, self._linear(h, "r_gates", "bias_gates"))
        update, reset = (self.f[0](g) for g in split(b, gates, 1, 2))
        if self.n.attr("linear_before_reset", 0):
            inner = b.mul(reset, self._linear(h, "r_new", "bias_new"))
        else:
            inner = self._linear(b.mul(reset, h), "r_new", "bias_new")
        new = self.f[1](b.add(candidate, inner))
        return (b.add(b.mul(b.sub(b.full_like(update, 1.0), update), new), b.mul(update, h)),)

    def lstm(self, from_x: Value, h: Value, c: Value) -> tuple[Value, ...]:
        b = self.b
        i, o, f, g = split(b, b.add(from_x, self._linear(h, "r", "bias_r")), 1, 4)
        i = self.f[0](self._peep(i, c, 0))
        f = b.sub(b.full_like(i, 1.0), i) if self.n.attr("input_forget", 0) else self.f[0](self._peep(f, c, 2))
        c = b.add(b.mul(f, c), b.mul(i, self.f[1](g)))
        o = self.f[0](self._peep(o, c, 1))
        return b.mul(o, self.f[2](c)), c

    def _linear(self, h: Value, weight: str, bias: str) -> Value:
        return self.b.linear(h, self.consts[weight], self.consts.get(bias))

    def _cut(self, x: Value, start: int, stop: int) -> Value:
        hidden = x.type.shape[1] // 3
        return cut(self.b, x, 1, start * hidden, stop * hidden)

    def _peep(self, gate: Value, c: Value, which: int) -> Value:
        peephole = self.consts.get("peephole")
        if peephole is None:
            return gate
        own = split(self.b, peephole, 0, 3)[which]
        return self.b.add(gate, self.b.mul(along(self.b, own, c.type.shape, (1,)), c))


def _as_scan(
    n: Node, kind: Kind, x: Value, weights: Weights, activations: Sequence[Activation], reverse: bool
) -> tuple[Value, ...]:
    """The cell over all steps; past the end of a sequence states stay and results are 0."""
    consts = _consts(n, weights)
    lengths = n.optional(4)
    names = list(consts)
    operands = [*consts.values(), *([n.b.convert(lengths, dtype="i64")] if lengths is not None else [])]
    steps, batch = x.type.shape[:2]
    xs = [n.b.linear(x, weights.w, weights.bias_w)]
    if lengths is not None:
        xs.append(n.b.iota(dtype="i64", shape=(steps,), axis=0))

    def body(b: GraphBuilder, *values: Value) -> tuple[Value, ...]:
        known, rest = dict(zip(names, values)), list(values[len(names) :])
        limit = rest.pop(0) if lengths is not None else None
        states, seen = rest[: kind.states], rest[kind.states :]
        cell = Cell(n, b, activations, known)
        new = getattr(cell, kind.composite)(seen[0], *states)
        if limit is None:
            return (*new, new[0])
        live = b.lt(along(b, seen[1], (batch,), ()), limit)
        live = along(b, live, new[0].type.shape, (0,))
        kept = tuple(b.select(live, old, fresh) for old, fresh in zip(states, new))
        return (*kept, b.select(live, b.full_like(new[0], 0.0), new[0]))

    *final, ys = n.b.scan(
        *operands,
        *weights.states,
        *xs,
        length=steps,
        num_consts=len(operands),
        num_carry=kind.states,
        reverse=reverse,
        body=body,
    )
    return (ys, *final)


def _consts(n: Node, weights: Weights) -> dict[str, Value]:
    """What every step reads, by the names that the cells use."""
    found: dict[str, Value | None] = {"r": weights.r, "bias_r": weights.bias_r, "peephole": weights.peephole}
    if n.op_type == "GRU":
        hidden = weights.r.type.shape[1]
        pieces: dict[str, Value | None] = {}
        for name, v in (("r", weights.r), ("bias", weights.bias_r)):
            pieces[f"{name}_gates"] = None if v is None else cut(n.b, v, 0, 0, 2 * hidden)
            pieces[f"{name}_new"] = None if v is None else cut(n.b, v, 0, 2 * hidden, 3 * hidden)
        found = pieces
    return {k: v for k, v in found.items() if v is not None}
