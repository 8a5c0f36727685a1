"""Control flow as torch exports and compiles it: higher-order operators over graph modules.

``cond`` and ``scan`` are differentiable, ``while_loop`` is not. A scan of few steps is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from unigraph.opdef import OpDef
from unigraph.ops import control as c
from unigraph.runtime.torch import control
from unigraph.runtime.torch.compat import higher_order, unrecorded

from .recorder import Frame, Lifts, Recorder

Tensor = torch.Tensor
Body = Callable[..., Sequence[Tensor]]
UNROLL = 8  # steps of a scan that are written out


class Regions:
    """Rows of control-flow ops for one recorder."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder

    def rows(self) -> dict[OpDef, Callable[..., Any]]:
        """Rows that replace the eager ones."""
        return {c.cond: self.cond, c.while_: self.while_, c.scan: self.scan, c.remat: lambda *xs, body: body(*xs)}

    def _write(self, lifts: Lifts, operands: Sequence[Tensor], run: Body) -> tuple[Frame, list[Tensor]]:
        """A frame that computes ``run(*operands)``; its results share no memory with anything outside."""
        frame = lifts.open(operands)
        with self.recorder.inside(frame):
            results = list(run(*operands))
            nodes: list[fx.Node] = []
            storages = {
                StorageWeakRef(x.untyped_storage()) for x in (*operands, *lifts.things) if isinstance(x, Tensor)
            }
            for x in results:
                node, storage = self.recorder.node_of(x), StorageWeakRef(x.untyped_storage())
                if storage in storages or id(x) in self.recorder.constants or not x.is_contiguous():
                    options: dict[str, Any] = {"memory_format": torch.contiguous_format}
                    node = frame.graph.call_method("clone", (node,), options)
                storages.add(storage)
                nodes.append(node)
        frame.graph.output(tuple(nodes))
        return frame, results

    def _module(self, name: str, frame: Frame) -> fx.Node:
        frame.graph.eliminate_dead_code()
        return self.recorder.frame.submodule(name, fx.GraphModule(frame.root, frame.graph))

    def _call(self, name: str, args: tuple[Any, ...], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The node of a higher-order operator, and fresh tensors for its results."""
        frame = self.recorder.frame
        node = frame.graph.call_function(higher_order(name), args)
        with unrecorded():
            fresh = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in like)
        self.recorder.bind(frame, node, fresh)
        return fresh

    def cond(self, which: Tensor, *operands: Tensor, branches: Sequence[Body]) -> tuple[Tensor, ...]:
        """Two branches are one ``cond``; more are a chain of them."""
        if len(branches) == 1:
            return tuple(branches[0](*operands))
        if which.dtype is torch.bool:
            return self._choose(which, operands, branches[1], branches[0])
        rest = branches[1:]

        def later(number: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
            return self.cond(number - 1, *xs, branches=rest)

        return self._choose(which > 0, (which, *operands), later, lambda number, *xs: branches[0](*xs))

    def _choose(self, which: Tensor, operands: Sequence[Tensor], yes: Body, no: Body) -> tuple[Tensor, ...]:
        recorder, lifts = self.recorder, Lifts(self.recorder)
        condition = recorder.argument(which)
        given = [recorder.argument(x) for x in operands]
        yes_frame, results = self._write(lifts, operands, yes)
        no_frame, _ = self._write(lifts, operands, no)
        given += lifts.arguments()
        modules = self._module("true_branch", yes_frame), self._module("false_branch", no_frame)
        return self._call("cond", (condition, *modules, tuple(given)), results)

    def while_(
        self, *operands: Tensor, cond_consts: int = 0, body_consts: int = 0, cond: Body, body: Body
    ) -> tuple[Tensor, ...]:
        recorder, lifts = self.recorder, Lifts(self.recorder)
        n = cond_consts + body_consts
        consts, carry = operands[:n], operands[n:]
        count = len(carry)
        inputs = (*carry, *consts)
        given = [recorder.argument(x) for x in inputs]
        with unrecorded():  # one tensor given twice is two values: the carried one changes
            inputs = tuple(torch.empty_like(x) if any(x is y for y in inputs[:i]) else x for i, x in enumerate(inputs))
        test, _ = self._write(lifts, inputs, lambda *xs: cond(*xs[count : count + cond_consts], *xs[:count])[:1])
        step, results = self._write(lifts, inputs, lambda *xs: body(*xs[count + cond_consts : count + n], *xs[:count]))
        given += lifts.arguments()
        # The condition is one bare value.
        output = next(node for node in test.graph.nodes if node.op == "output")
        output.args = (output.args[0][0],)
        modules = self._module("while_condition", test), self._module("while_body", step)
        return self._call("while_loop", (*modules, tuple(given[:count]), tuple(given[count:])), results)

    def scan(
        self, *operands: Tensor, length: Any, num_consts: int, num_carry: int, reverse: bool = False, body: Any
    ) -> tuple[Tensor, ...]:
        if isinstance(length, int) and length <= UNROLL:
            return control.scan(
                *operands, length=length, num_consts=num_consts, num_carry=num_carry, reverse=reverse, body=body
            )
        consts, carry = operands[:num_consts], operands[num_consts : num_consts + num_carry]
        xs = [torch.flip(x, (0,)) if reverse else x for x in operands[num_consts + num_carry :]]
        # torch's scan needs something to carry and something to run over.
        spare = [] if carry else [torch.zeros((), dtype=torch.int64)]
        steps = [] if xs else [torch.arange(length)]
        recorder, lifts = self.recorder, Lifts(self.recorder)
        initial = [x.clone() for x in (*carry, *spare)]
        with unrecorded():
            slices = [torch.empty_like(x[0]) for x in (*xs, *steps)]
        given = [recorder.argument(x) for x in (*initial, *xs, *steps, *consts)]
        count, ahead = len(initial), len(initial) + len(slices)

        def step(*values: Tensor) -> tuple[Tensor, ...]:
            state, now = values[: len(carry)], values[count : count + len(xs)]
            results = body(*values[ahead : ahead + num_consts], *state, *now)
            return (*results[:num_carry], *values[len(carry) : count], *results[num_carry:])

        frame, results = self._write(lifts, (*initial, *slices, *consts), step)
        given += lifts.arguments()
        with unrecorded():
            stacked = [x.new_empty((length, *x.shape)) for x in results[count:]]
        module = self._module("scan_body", frame)
        args = (module, given[:count], given[count:ahead], tuple(given[ahead:]))
        made = self._call("scan", args, [*results[:count], *stacked])
        ys = [torch.flip(y, (0,)) if reverse else y for y in made[count:]]
        return (*made[:num_carry], *ys)
