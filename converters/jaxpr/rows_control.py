"""Lowering rows of calls, branches, loops, devices and effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops import control as ops

from . import compat
from .lower import JaxprBuilder, Row


def _scope_name(name: Any) -> str:
    """A call's name as a scope, unless it is nobody's name (``<lambda>``, ``_where``)."""
    return name if isinstance(name, str) and name.isidentifier() and not name.startswith("_") else ""


def _inlined(param: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
        return b.inline(eqn.params[param], values, _scope_name(eqn.params.get("name", "")))

    return row


def _remat(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    jaxpr = eqn.params["jaxpr"]
    arrays = b.nested_arrays(jaxpr)
    operands = (*map(b.closed_over, arrays), *values)
    return b.run(ops.remat, operands, [b.subgraph(jaxpr, arrays)])


def _cond(b: JaxprBuilder, eqn: Any, which: Value, *values: Value) -> tuple[Value, ...]:
    branches = eqn.params["branches"]
    arrays = b.nested_arrays(*branches)
    operands = (which, *map(b.closed_over, arrays), *values)
    return b.run(ops.cond, operands, [b.subgraph(j, arrays) for j in branches])


def _while(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    p = eqn.params
    if b.type_of(compat.unclosed(p["cond_jaxpr"])[0].outvars[0]).shape:
        return _batched_while(b, eqn, *values)
    m, n = p["cond_nconsts"], p["body_nconsts"]
    in_cond, in_body = b.nested_arrays(p["cond_jaxpr"]), b.nested_arrays(p["body_jaxpr"])
    cond_consts = [*map(b.closed_over, in_cond), *values[:m]]
    body_consts = [*map(b.closed_over, in_body), *values[m : m + n]]
    return b.run(
        ops.while_,
        (*cond_consts, *body_consts, *values[m + n :]),
        [b.subgraph(p["cond_jaxpr"], in_cond), b.subgraph(p["body_jaxpr"], in_body)],
        cond_consts=len(cond_consts),
        body_consts=len(body_consts),
    )


def _scan(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    p = eqn.params
    arrays = b.nested_arrays(p["jaxpr"])
    num_consts, num_carry = compat.scan_counts(p)
    return b.run(
        ops.scan,
        (*map(b.closed_over, arrays), *values),
        [b.subgraph(p["jaxpr"], arrays)],
        length=compat.dim(p["length"]),
        num_consts=len(arrays) + num_consts,
        num_carry=num_carry,
        reverse=bool(p["reverse"]),
    )


def _batched_while(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    """Loops run as one, as vmap leaves them: while any of them runs, those that ended keep their values.

    Which loops still run is carried, so that the condition is worked out once a round.
    """
    p = eqn.params
    m, n = p["cond_nconsts"], p["body_nconsts"]
    cond, body = p["cond_jaxpr"], p["body_jaxpr"]
    arrays = b.nested_arrays(cond, body)
    consts = [*map(b.closed_over, arrays), *values[: m + n]]
    carry = values[m + n :]
    k = len(arrays)
    (running,) = b.inline(cond, (*values[:m], *carry))

    stop = b.inner_builder()
    runs = stop.input("running", running.type.dtype, running.type.shape)
    for i, value in enumerate(carry):
        stop.input(f"x{i}", value.type.dtype, value.type.shape)
    any_runs = stop.op("reduce_or", runs, axes=tuple(range(runs.type.rank)))

    step = b.inner_builder(arrays)
    inner = [step.input(f"x{i}", v.type.dtype, v.type.shape) for i, v in enumerate((*consts[k:], running, *carry))]
    cond_consts, body_consts, (runs, *old) = inner[:m], inner[m : m + n], inner[m + n :]
    new = step.inline(body, (*body_consts, *old))
    kept = [_where_running(step, runs, a, z) for a, z in zip(new, old, strict=True)]
    (still,) = step.inline(cond, (*cond_consts, *kept))
    out = b.run(
        ops.while_,
        (*consts, running, *carry),
        [stop.build((any_runs,)), step.build((still, *kept))],
        body_consts=len(consts),
    )
    return out[1:]


def _where_running(b: JaxprBuilder, running: Value, new: Value, old: Value) -> Value:
    """``new`` for the loops that run, ``old`` for the others; the loops are the leading axes."""
    if new.type.dtype.is_key:
        impl = new.type.dtype.name[4:-1]
        words = _where_running(b, running, b.op("rng_unwrap", new), b.op("rng_unwrap", old))
        return b.op("rng_wrap", words, impl=impl)
    axes = tuple(range(running.type.rank))
    mask = b.op("broadcast_in_dim", running, shape=new.type.shape, broadcast_dimensions=axes)
    return b.op("select", mask, old, new)


def _linear_solve(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    """Only the solve itself: the other parts say how to differentiate it."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    total = first + lengths.solve + lengths.transpose_solve
    return b.inline(jaxprs.solve, (*values[first : first + lengths.solve], *values[total:]))


def _linear_call(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    return b.inline(eqn.params["callee"], values)


def _platform(b: JaxprBuilder, eqn: Any) -> Value:
    """Which branch of platform_dependent: the default's, or else the one for the CPU."""
    platforms = eqn.params["platforms"]
    for i, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return b.constant(i, "i32")
    raise Unsupported("platform_dependent without a branch for the CPU and without a default", "add default=...")


# -- devices --------------------------------------------------------------------------------------


def _shard_map(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    axes = dict(eqn.params["mesh"].shape)
    wide = {name: size for name, size in axes.items() if size != 1}
    if wide:
        raise Unsupported(f"shard_map over {wide} devices", "capture the function for one device")
    before = dict(b.capture.axes)
    b.capture.axes.update(axes)
    try:
        return b.inline(eqn.params["jaxpr"], values)
    finally:
        b.capture.axes = before


def _sizes(b: JaxprBuilder, names: Any) -> list[tuple[str, int]]:
    names = names if isinstance(names, (tuple, list)) else (names,)
    missing = [n for n in names if n not in b.capture.axes]
    if missing:
        raise Unsupported(f"a collective over axis {missing[0]!r} outside shard_map")
    return [(str(n), b.capture.axes[n]) for n in names]


_REDUCTIONS = {"add": "reduce_sum", "max": "reduce_max", "min": "reduce_min"}


def _all_reduce(combiner: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
        axes = eqn.params["axes"]
        places = tuple(a for a in axes if isinstance(a, int))  # vmap has turned the name into an axis of the array
        if places:
            values = tuple(b.op(_REDUCTIONS[combiner], v, axes=places) for v in values)
        for name, size in _sizes(b, [a for a in axes if not isinstance(a, int)]):
            values = tuple(b.op("all_reduce", v, combiner=combiner, axis_name=name, axis_size=size) for v in values)
        return values

    return row


def _all_gather(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    p = eqn.params
    [(name, size)] = _sizes(b, p["axis_name"])
    return b.op("all_gather", x, axis_name=name, axis_size=size, axis=p["all_gather_dimension"], tiled=bool(p["tiled"]))


def _reduce_scatter(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    p = eqn.params
    [(name, size)] = _sizes(b, p["axis_name"])
    return b.op(
        "reduce_scatter", x, axis_name=name, axis_size=size, axis=p["scatter_dimension"], tiled=bool(p["tiled"])
    )


def _all_to_all(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    p = eqn.params
    [(name, size)] = _sizes(b, p["axis_name"])
    axes = {"split_axis": p["split_axis"], "concat_axis": p["concat_axis"], "tiled": bool(p["tiled"])}
    return b.op("all_to_all", x, axis_name=name, axis_size=size, **axes)


def _permute(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    p = eqn.params
    [(name, size)] = _sizes(b, p["axis_name"])
    pairs = p["perm"]
    ends = {"sources": [s for s, _ in pairs], "targets": [t for _, t in pairs]}
    return tuple(b.op("collective_permute", v, axis_name=name, axis_size=size, **ends) for v in values)


def _axis_index(b: JaxprBuilder, eqn: Any) -> Value:
    [(name, size)] = _sizes(b, eqn.params["axis_name"])
    return b.op("axis_index", axis_name=name, axis_size=size)


# -- what a graph cannot have ----------------------------------------------------------------------


def _refuse(reason: str, hint: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> Any:
        raise Unsupported(reason, hint)

    return row


_CALLBACK = _refuse(
    "calls back into Python, which a graph cannot hold", "compute it outside the captured function, or with jax.numpy"
)
_FOREIGN = _refuse("calls compiled code that a graph does not know", "use the jax.numpy form of the function")

ROWS: Mapping[str, Row] = {
    "jit": _inlined("jaxpr"),
    "pjit": _inlined("jaxpr"),
    "closed_call": _inlined("call_jaxpr"),
    "eval_jaxpr": _inlined("call_jaxpr"),
    "core_call": _inlined("call_jaxpr"),
    "core_closed_call": _inlined("call_jaxpr"),
    "call": _inlined("call_jaxpr"),
    "xla_call": _inlined("call_jaxpr"),
    "composite": _inlined("jaxpr"),
    "custom_vjp_call_jaxpr": _inlined("fun_jaxpr"),
    "custom_vmap_call": _inlined("call"),
    "remat2": _remat,
    "remat": _remat,
    "checkpoint": _remat,
    "remat_opt": _inlined("fwd_jaxpr"),
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "custom_linear_solve": _linear_solve,
    "linear_call": _linear_call,
    "platform_index": _platform,
    "shard_map": _shard_map,
    "psum": _all_reduce("add"),
    "psum_invariant": _all_reduce("add"),
    "pmax": _all_reduce("max"),
    "pmin": _all_reduce("min"),
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _permute,
    "axis_index": _axis_index,
    "pure_callback": _CALLBACK,
    "io_callback": _CALLBACK,
    "debug_callback": _CALLBACK,
    "ffi_call": _FOREIGN,
    "call_exported": _refuse("calls an exported StableHLO module", "capture the function before it was exported"),
    "rng_uniform": _refuse("draws from a generator without a key", "use jax.random with a key"),
    "create_token": _refuse("orders effects", "effects have no place in a graph"),
    "after_all": _refuse("orders effects", "effects have no place in a graph"),
}
