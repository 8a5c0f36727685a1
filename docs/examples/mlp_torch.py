"""mlp, written by unigraph for PyTorch; it needs nothing of unigraph.

``load()`` gives the module; weights are read from mlp_torch.safetensors.
"""

import json
from pathlib import Path

import torch
from torch.nn import functional as F

WEIGHTS = Path(__file__).with_name("mlp_torch.safetensors")
DTYPES = dict(F32=torch.float32)


class mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Module()
        self.hidden.register_parameter("weight", torch.nn.Parameter(torch.empty((8, 4))))
        self.hidden.register_parameter("bias", torch.nn.Parameter(torch.empty((8,))))
        self.out = torch.nn.Module()
        self.out.register_parameter("weight", torch.nn.Parameter(torch.empty((2, 8))))
        self.out.register_parameter("bias", torch.nn.Parameter(torch.empty((2,))))

    def forward(self, x):
        # hidden
        hidden_weight = self.hidden.weight
        hidden_bias = self.hidden.bias
        hidden_linear = F.linear(x, hidden_weight, hidden_bias)
        hidden_gelu = F.gelu(hidden_linear, approximate='none')

        # out
        out_weight = self.out.weight
        out_bias = self.out.bias
        out_linear = F.linear(hidden_gelu, out_weight, out_bias)
        return out_linear


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
    module, weights = mlp(), load_weights(path)
    module.load_state_dict(weights)
    return module
