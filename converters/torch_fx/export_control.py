"""Control flow as torch exports and compiles it: higher-order operators over graph modules.

``cond`` and ``scan`` are differentiable, ``while_loop`` is not. A scan of few steps is written out. A block to
be computed again is a call of torch's checkpoint, a function with rules of its own a module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from unigraph.opdef import OpDef
from unigraph.ops import control as c
from unigraph.ops import random as r
from unigraph.runtime.torch import control
from unigraph.runtime.torch.compat import higher_order, unrecorded
from unigraph.runtime.torch.custom import Derived
from unigraph.runtime.torch.random import random_gamma

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
        return {
            c.cond: self.cond,
            c.while_: self.while_,
            c.scan: self.scan,
            r.random_gamma: self.random_gamma,
            c.remat: self.remat,
            c.custom_jvp: self.custom_jvp,
            c.custom_vjp: self.custom_vjp,
        }

    def _write(
        self, lifts: Lifts, operands: Sequence[Tensor], run: Body, apart: bool = True
    ) -> tuple[Frame, list[Tensor]]:
        """A frame that computes ``run(*operands)``; ``apart``, its results share no memory with anything outside."""
        frame = lifts.open(operands)
        with self.recorder.inside(frame):
            results = list(run(*operands))
            nodes: list[fx.Node] = []
            storages = {
                StorageWeakRef(x.untyped_storage()) for x in (*operands, *lifts.things) if isinstance(x, Tensor)
            }
            for x in results:
                node, storage = self.recorder.node_of(x), StorageWeakRef(x.untyped_storage())
                if apart and (storage in storages or id(x) in self.recorder.constants or not x.is_contiguous()):
                    options: dict[str, Any] = {"memory_format": torch.contiguous_format}
                    node = frame.graph.call_method("clone", (node,), options)
                storages.add(storage)
                nodes.append(node)
        frame.graph.output(tuple(nodes))
        return frame, results

    def _module(self, name: str, frame: Frame) -> fx.Node:
        around = self.recorder.frame
        return around.graph.get_attr(around.store(name, _finished(frame)))

    def _call(self, name: str, args: tuple[Any, ...], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The node of a higher-order operator, and fresh tensors for its results."""
        return self._bound(self.recorder.frame.graph.call_function(higher_order(name), args), like)

    def _bound(self, node: fx.Node, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Fresh tensors for the results of a node."""
        frame = self.recorder.frame
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

    def random_gamma(self, key: Tensor, alpha: Tensor, log_space: bool, impl: str) -> Tensor:
        """The rejection loop as a ``while_loop``."""

        def loop(again: Callable[..., Tensor], step: Body, *carry: Tensor) -> tuple[Tensor, ...]:
            return self.while_(*carry, cond=lambda *xs: (again(*xs),), body=step)

        return random_gamma(key, alpha, log_space, impl, loop)

    def remat(self, *operands: Tensor, body: Body) -> tuple[Tensor, ...]:
        """A call of torch's checkpoint. Nothing in a graph is random, so no generator needs to be kept."""
        recorder, lifts = self.recorder, Lifts(self.recorder)
        given = [recorder.argument(x) for x in operands]
        frame, results = self._write(lifts, operands, body, apart=False)
        module = self._module("block", frame)
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        args = (module, *given, *lifts.arguments())
        return self._bound(recorder.frame.graph.call_function(checkpoint, args, options), results)

    def custom_jvp(
        self, *operands: Tensor, body: Body, jvp: Body, vjp: Body, num_consts: int, name: str
    ) -> tuple[Tensor, ...]:
        """A module that is differentiated by its rules."""
        lifts = Lifts(self.recorder)
        frame, results = self._write(lifts, operands, body, apart=False)
        pull, _ = self._write(lifts, [*operands, *_like(results)], vjp, apart=False)
        push, _ = self._write(lifts, [*operands, *_like(operands[num_consts:])], jvp, apart=False)
        return self._derived(name, lifts, operands, results, (frame, pull, push), num_consts)

    def custom_vjp(
        self,
        *operands: Tensor,
        body: Body,
        fwd: Body,
        bwd: Body,
        num_residuals: int,
        num_consts: int,
        name: str,
    ) -> tuple[Tensor, ...]:
        """A module that is differentiated by its rule."""
        lifts = Lifts(self.recorder)
        frame, found = self._write(lifts, operands, fwd, apart=False)
        count = len(found) - num_residuals
        with unrecorded():
            residuals = [torch.empty_like(x) for x in found[count:]]
        given = [*operands[:num_consts], *residuals, *_like(found[:count])]
        pull, _ = self._write(lifts, given, bwd, apart=False)
        return self._derived(name, lifts, operands, found[:count], (frame, pull), num_consts)

    def _derived(
        self,
        name: str,
        lifts: Lifts,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        frames: Sequence[Frame],
        constants: int,
    ) -> tuple[Tensor, ...]:
        around = self.recorder.frame
        given = [self.recorder.argument(x) for x in operands] + lifts.arguments()
        modules = [_finished(frame) for frame in frames]
        module = Derived(*modules, operands=len(operands), results=len(results), constants=constants)
        wish = name if name.isidentifier() and name.isascii() else "function"
        return self._bound(around.graph.call_module(around.store(wish, module), tuple(given)), results)


def _finished(frame: Frame) -> fx.GraphModule:
    frame.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    return fx.GraphModule(frame.root, frame.graph)


def _like(xs: Sequence[Tensor]) -> list[Tensor]:
    """Tensors for the tangents or cotangents of those that have them."""
    with unrecorded():
        return [torch.empty_like(x) for x in xs if x.is_floating_point() or x.is_complex()]
