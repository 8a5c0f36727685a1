"""Control flow on NumPy: plain Python branches and loops around regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import control as c

if TYPE_CHECKING:
    from .table import Region

Array = np.ndarray


def cond(which: Array, *operands: Array, branches: Sequence[Region]) -> tuple[Array, ...]:
    """One branch runs."""
    return branches[min(max(int(which), 0), len(branches) - 1)](*operands)


def while_(
    *operands: Array, cond_consts: int = 0, body_consts: int = 0, cond: Region, body: Region
) -> tuple[Array, ...]:
    """A Python loop."""
    for_cond = operands[:cond_consts]
    for_body = operands[cond_consts : cond_consts + body_consts]
    carry = operands[cond_consts + body_consts :]
    while bool(cond(*for_cond, *carry)[0]):
        carry = body(*for_body, *carry)
    return tuple(carry)


def scan(
    *operands: Array, length: int, num_consts: int, num_carry: int, reverse: bool = False, body: Region
) -> tuple[Array, ...]:
    """Results of the steps are written into arrays made at the first one."""
    consts, xs = operands[:num_consts], operands[num_consts + num_carry :]
    carry = operands[num_consts : num_consts + num_carry]
    ys: list[Array] = []
    for i in reversed(range(length)) if reverse else range(length):
        results = body(*consts, *carry, *(np.asarray(x[i]) for x in xs))
        carry = results[:num_carry]
        if not ys:
            ys = [np.empty((length, *np.shape(y)), y.dtype) for y in results[num_carry:]]
        for all_steps, y in zip(ys, results[num_carry:]):
            all_steps[i] = y
    return (*carry, *(ys if length else _no_steps(body, num_carry)))


def _no_steps(body: Region, num_carry: int) -> list[Array]:
    """Empty results, shaped as the types of the body say."""
    return [np.empty((0, *shape), kind) for shape, kind in body.results()[num_carry:]]


ROWS: Mapping[OpDef, Row] = {
    c.cond: cond,
    c.while_: while_,
    c.scan: scan,
    c.call: lambda *operands, name, body: body(*operands),
    c.remat: lambda *operands, body: body(*operands),
    c.custom_jvp: lambda *operands, body, **rules: body(*operands),
    c.custom_vjp: lambda *operands, body, **rules: body(*operands),
}
