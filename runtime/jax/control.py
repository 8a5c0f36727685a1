"""Control flow: regions arrive as functions that return tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import zero_from_primal

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


def _moves(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _named(name: str, body: Region) -> Region:
    """The function that JAX's own programs and messages call by ``name``."""

    def function(*operands: Any) -> tuple[Any, ...]:
        return tuple(body(*operands))

    function.__name__ = function.__qualname__ = name or "function"
    return function


def _custom_jvp(
    *operands: Any, body: Region, jvp: Region, vjp: Region, num_consts: int = 0, name: str = ""
) -> tuple[Any, ...]:
    function = jax.custom_jvp(_named(name, body))

    @function.defjvp
    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
        results = function(*primals)
        moving = [t for x, t in list(zip(primals, tangents))[num_consts:] if _moves(x)]
        moved = iter(jvp(*primals, *moving))
        return results, tuple(next(moved) if _moves(x) else zero_from_primal(x) for x in results)

    return tuple(function(*operands))


def _custom_vjp(
    *operands: Any, body: Region, fwd: Region, bwd: Region, num_residuals: int, num_consts: int = 0, name: str = ""
) -> tuple[Any, ...]:
    function = jax.custom_vjp(_named(name, body))
    moving = [i >= num_consts and _moves(x) for i, x in enumerate(operands)]

    def forward(*operands: Any) -> tuple[Any, ...]:
        found = tuple(fwd(*operands))
        count = len(found) - num_residuals
        return found[:count], (*operands[:num_consts], *found[count:])

    def backward(residuals: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        moved = iter(bwd(*residuals, *[c for c in cotangents if _moves(c)]))
        return tuple(next(moved) if moves else None for moves in moving)

    function.defvjp(forward, backward)
    return tuple(function(*operands))


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    c.cond: _cond,
    c.while_: _while,
    c.scan: _scan,
    c.call: _call,
    c.remat: _remat,
    c.custom_jvp: _custom_jvp,
    c.custom_vjp: _custom_vjp,
}
