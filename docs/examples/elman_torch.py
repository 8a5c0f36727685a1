"""network, written by unigraph for PyTorch; it needs nothing of unigraph.

``load()`` gives the module; weights are read from elman_torch.safetensors.
"""

import json
from pathlib import Path

import torch

WEIGHTS = Path(__file__).with_name("elman_torch.safetensors")
DTYPES = dict(F32=torch.float32)


class network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Module()
        self.weights.register_parameter("inner", torch.nn.Parameter(torch.empty((3, 4))))
        self.weights.register_parameter("hidden", torch.nn.Parameter(torch.empty((4, 4))))
        self.weights.register_parameter("bias", torch.nn.Parameter(torch.empty((4,))))
        self.weights.register_parameter("out", torch.nn.Parameter(torch.empty((4, 2))))
        self.scan_body_0 = ScanBody0()

    def forward(self, xs):
        device_1 = xs.device
        full = torch.full((), 0.0, dtype=torch.float32, device=device_1)
        expand = full.expand((4,))
        clone = expand.clone()
        weights_inner = self.weights.inner
        weights_hidden = self.weights.hidden
        weights_bias = self.weights.bias
        weights_out = self.weights.out
        scan_body_0 = self.scan_body_0
        scan = torch.ops.higher_order.scan(scan_body_0, [clone], [xs], (weights_inner, weights_hidden, weights_bias, weights_out))
        getitem = scan[0]
        getitem_1 = scan[1]
        return (getitem, getitem_1)


class ScanBody0(torch.nn.Module):
    def forward(self, x0, x1, x2, x3, x4, x5):
        matmul = torch.matmul(x1, x2)
        matmul_1 = torch.matmul(x0, x3)
        add = torch.add(matmul, matmul_1)
        add_1 = torch.add(add, x4)
        tanh = torch.tanh(add_1)
        matmul_2 = torch.matmul(tanh, x5)
        return (tanh, matmul_2)


def load_weights(path=WEIGHTS):
    """The tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = torch.frombuffer(bytearray(file.read() or b" "), dtype=torch.uint8)
    header.pop("__metadata__", None)
    weights = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        weights[name] = data[begin:end].clone().view(DTYPES[item["dtype"]]).reshape(item["shape"])
    return weights


def load(path=WEIGHTS):
    """The module with its weights."""
    module, weights = network(), load_weights(path)
    module.load_state_dict(weights)
    return module
