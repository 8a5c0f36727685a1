"""Control flow: regions arrive as functions that return tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from unigraph.opdef import OpDef
from unigraph.ops import control as c

Region = Callable[..., tuple[Any, ...]]


def _cond(which: Any, *operands: Any, branches: tuple[Region, ...]) -> tuple[Any, ...]:
    if len(branches) == 1:
        return branches[0](*operands)
    if which.dtype == jnp.bool_:
        which = which.astype(jnp.int32)
    return tuple(lax.switch(which, branches, *operands))


def _while(*operands: Any, cond_consts: int = 0, body_consts: int = 0, cond: Region, body: Region) -> tuple[Any, ...]:
    for_cond = operands[:cond_consts]
    for_body = operands[cond_consts : cond_consts + body_consts]
    carry = tuple(operands[cond_consts + body_consts :])
    return tuple(lax.while_loop(lambda c: cond(*for_cond, *c)[0], lambda c: tuple(body(*for_body, *c)), carry))


def _scan(
    *operands: Any, length: Any, num_consts: int, num_carry: int, reverse: bool = False, body: Region
) -> tuple[Any, ...]:
    consts = operands[:num_consts]
    carry = tuple(operands[num_consts : num_consts + num_carry])
    xs = tuple(operands[num_consts + num_carry :])

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        out = tuple(body(*consts, *carry, *x))
        return out[:num_carry], out[num_carry:]

    carry, ys = lax.scan(step, carry, xs, length=length, reverse=reverse)
    return (*carry, *ys)


def _call(*operands: Any, body: Region, name: str = "") -> tuple[Any, ...]:
    return body(*operands)


def _remat(*operands: Any, body: Region) -> tuple[Any, ...]:
    return tuple(jax.checkpoint(body)(*operands))


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    c.cond: _cond,
    c.while_: _while,
    c.scan: _scan,
    c.call: _call,
    c.remat: _remat,
}
