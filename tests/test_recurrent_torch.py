"""Recurrent layers of torch with free sizes: the length of the sequence stays free, also where a norm is updated."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import unigraph as ug

from . import harness


class Layers(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.layers = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layers(self.norm(x.transpose(1, 2)).transpose(1, 2))[0]


@pytest.mark.parametrize("training", (False, True))
@pytest.mark.parametrize("kind", ("LSTM", "GRU", "RNN"))
def test_batch_and_length_stay_free(kind: str, training: bool) -> None:
    torch.manual_seed(0)
    module = Layers(kind).train(training)
    graph = ug.from_torch(copy.deepcopy(module), (torch.randn(5, 6, 3),), dynamic=(("batch", "length", None),))
    assert str(graph.in_types[0]) == "f32[batch,length,3]"
    assert {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}[kind] in {op.op.name for op in graph.edges}
    made = ug.to_torch(graph)
    for shape in ((2, 9, 3), (7, 1, 3)):
        x = torch.randn(shape)
        found = {
            e: ug.compile(graph, e)(x) if not training else ug.compile(graph, e).step(x)[0] for e in harness.ENGINES
        }
        start = copy.deepcopy(module)
        expected = start(x).detach()
        torch.testing.assert_close(copy.deepcopy(made)(x).detach(), expected)
        for engine, y in found.items():
            torch.testing.assert_close(torch.as_tensor(np.asarray(y)), expected, rtol=1e-5, atol=1e-5, msg=engine)


def test_torch_is_left_as_it_was() -> None:
    """Outside of a capture torch writes recurrent layers out as before."""
    before = dict(torch.ops.aten.lstm.input.py_kernels)
    ug.from_torch(Layers("LSTM").eval(), (torch.randn(2, 3, 3),), dynamic=((None, "t", None),))
    assert dict(torch.ops.aten.lstm.input.py_kernels) == before
    assert torch.ops.aten.lstm.input not in torch._decomp.meta_table
