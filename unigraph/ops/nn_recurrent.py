"""Recurrent layers, one direction and one layer each, as scans. Input products are made beforehand."""

from __future__ import annotations

from collections.abc import Callable

from .. import dims
from ..opdef import Attr, require
from .composite import op
from .idioms import GraphBuilder, Value, float_required, split

REVERSE = Attr("bool", False, "run from the last step to the first; results stay in the order of x")


def _check(
    name: str, gates: int, x: Value, states: tuple[Value, ...], w_ih: Value, w_hh: Value, *biases: Value | None
) -> None:
    """Refuse operands that do not have the shapes [T, N, I], [N, H], [gH, I], [gH, H], [gH]."""
    given = [v for v in (x, *states, w_ih, w_hh, *biases) if v is not None]
    float_required(name, *given)
    for v in given:
        require(
            v.type.dtype is x.type.dtype,
            f"{name}_dtype",
            f"operands must share a dtype: {x.type} and {v.type}; convert one",
        )
    ranks = x.type.rank == 3 and all(s.type.rank == 2 for s in states) and w_ih.type.rank == w_hh.type.rank == 2
    require(
        ranks,
        f"{name}_rank",
        f"needs x [T, N, I], states [N, H], weights [gH, I] and [gH, H], got {', '.join(str(v.type) for v in given)}",
    )
    n, h = states[0].type.shape
    rows = dims.normal(gates * h)
    wanted = [(x.type.shape[1], n), (w_ih.type.shape[1], x.type.shape[2]), (w_hh.type.shape[1], h)]
    wanted += [(w.type.shape[0], rows) for w in (w_ih, w_hh)]
    wanted += [(bias.type.shape[0] if bias.type.rank == 1 else -1, rows) for bias in biases if bias is not None]
    wanted += [pair for s in states for pair in zip(s.type.shape, (n, h))]
    for got, want in wanted:
        require(
            dims.compatible(got, want),
            f"{name}_size",
            f"size {got} must be {want} in {', '.join(str(v.type) for v in given)}",
        )


def _scan(
    b: GraphBuilder,
    x: Value,
    states: tuple[Value, ...],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
    reverse: bool,
    cell: Callable[..., tuple[Value, ...]],
) -> tuple[Value, ...]:
    """(ys, *final states). ``cell(b, from_x, from_h, *states)`` gives the new states, h first."""
    biases = () if b_hh is None else (b_hh,)

    def body(r: GraphBuilder, *values: Value) -> tuple[Value, ...]:
        weight, *rest = values
        bias = rest.pop(0) if biases else None
        *state, from_x = rest
        new = cell(r, from_x, r.linear(state[0], weight, bias), *state)
        return (*new, new[0])

    *final, ys = b.scan(
        w_hh,
        *biases,
        *states,
        b.linear(x, w_ih, b_ih),
        length=x.type.shape[0],
        num_consts=1 + len(biases),
        num_carry=len(states),
        reverse=reverse,
        body=body,
    )
    return (ys, *final)


@op(reverse=REVERSE)
def lstm(
    b: GraphBuilder,
    x: Value,
    h0: Value,
    c0: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
    *,
    reverse: bool,
) -> tuple[Value, ...]:
    """Long short-term memory (Hochreiter and Schmidhuber 1997) over x [T, N, I] with states h0, c0 [N, H]
    and weights [4H, I], [4H, H], whose rows are input, forget, cell and output gate (torch's order).
    Gives all h [T, N, H], the last h and the last c.
    """
    _check("lstm", 4, x, (h0, c0), w_ih, w_hh, b_ih, b_hh)

    def cell(r: GraphBuilder, from_x: Value, from_h: Value, h: Value, c: Value) -> tuple[Value, ...]:
        i, f, g, o = split(r, r.add(from_x, from_h), 1, 4)
        c = r.add(r.mul(r.logistic(f), c), r.mul(r.logistic(i), r.tanh(g)))
        return r.mul(r.logistic(o), r.tanh(c)), c

    return _scan(b, x, (h0, c0), w_ih, w_hh, b_ih, b_hh, reverse, cell)


@op(reverse=REVERSE)
def gru(
    b: GraphBuilder,
    x: Value,
    h0: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
    *,
    reverse: bool,
) -> tuple[Value, ...]:
    """Gated recurrent unit (Cho et al. 2014) over x [T, N, I] with state h0 [N, H] and weights [3H, I],
    [3H, H], whose rows are reset, update and new gate; the reset gate multiplies W_hn h + b_hn, as in
    torch. Gives all h [T, N, H] and the last h.
    """
    _check("gru", 3, x, (h0,), w_ih, w_hh, b_ih, b_hh)

    def cell(r: GraphBuilder, from_x: Value, from_h: Value, h: Value) -> tuple[Value, ...]:
        (xr, xz, xn), (hr, hz, hn) = split(r, from_x, 1, 3), split(r, from_h, 1, 3)
        reset, update = r.logistic(r.add(xr, hr)), r.logistic(r.add(xz, hz))
        new = r.tanh(r.add(xn, r.mul(reset, hn)))
        return (r.add(new, r.mul(update, r.sub(h, new))),)

    return _scan(b, x, (h0,), w_ih, w_hh, b_ih, b_hh, reverse, cell)


@op(nonlinearity=Attr("str", "tanh", "applied to each new state", ("tanh", "relu")), reverse=REVERSE)
def rnn(
    b: GraphBuilder,
    x: Value,
    h0: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
    *,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Value, ...]:
    """Simple recurrence h = tanh(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990) over x [T, N, I] with state h0
    [N, H] and weights [H, I], [H, H]. Gives all h [T, N, H] and the last h.
    """
    _check("rnn", 1, x, (h0,), w_ih, w_hh, b_ih, b_hh)

    def cell(r: GraphBuilder, from_x: Value, from_h: Value, h: Value) -> tuple[Value, ...]:
        total = r.add(from_x, from_h)
        return (r.tanh(total) if nonlinearity == "tanh" else r.relu(total),)

    return _scan(b, x, (h0,), w_ih, w_hh, b_ih, b_hh, reverse, cell)
