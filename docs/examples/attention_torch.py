"""attention_block, written by unigraph for PyTorch; it needs nothing of unigraph.

``load()`` gives the module; weights are read from attention_torch.safetensors.
"""

import json
from pathlib import Path

import torch
from torch.nn import functional as F

WEIGHTS = Path(__file__).with_name("attention_torch.safetensors")
DTYPES = dict(F32=torch.float32)


class attention_block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.Module()
        self.norm.register_parameter("weight", torch.nn.Parameter(torch.empty((8,))))
        self.norm.register_parameter("bias", torch.nn.Parameter(torch.empty((8,))))
        self.query = torch.nn.Module()
        self.query.register_parameter("weight", torch.nn.Parameter(torch.empty((8, 8))))
        self.key = torch.nn.Module()
        self.key.register_parameter("weight", torch.nn.Parameter(torch.empty((8, 8))))
        self.value = torch.nn.Module()
        self.value.register_parameter("weight", torch.nn.Parameter(torch.empty((8, 8))))
        self.out = torch.nn.Module()
        self.out.register_parameter("weight", torch.nn.Parameter(torch.empty((8, 8))))
        self.out.register_parameter("bias", torch.nn.Parameter(torch.empty((8,))))

    def forward(self, x):
        # norm
        norm_weight = self.norm.weight
        norm_bias = self.norm.bias
        norm_layer_norm = F.layer_norm(x, (8,), weight=norm_weight, bias=norm_bias, eps=1e-05)

        # attention
        query_weight = self.query.weight
        attention_linear = F.linear(norm_layer_norm, query_weight)
        size = x.size(0)
        size_1 = x.size(1)
        attention_reshape = attention_linear.reshape((size, size_1, 2, 4))
        attention_permute = attention_reshape.permute((0, 2, 1, 3))
        key_weight = self.key.weight
        attention_linear_1 = F.linear(norm_layer_norm, key_weight)
        attention_reshape_1 = attention_linear_1.reshape((size, size_1, 2, 4))
        attention_permute_1 = attention_reshape_1.permute((0, 2, 1, 3))
        value_weight = self.value.weight
        attention_linear_2 = F.linear(norm_layer_norm, value_weight)
        attention_reshape_2 = attention_linear_2.reshape((size, size_1, 2, 4))
        attention_permute_2 = attention_reshape_2.permute((0, 2, 1, 3))
        attention_scaled_dot_product_attention = F.scaled_dot_product_attention(attention_permute, attention_permute_1, attention_permute_2, None, 0.0, True)
        attention_permute_3 = attention_scaled_dot_product_attention.permute((0, 2, 1, 3))
        attention_reshape_3 = attention_permute_3.reshape((size, size_1, 8))

        # out
        out_weight = self.out.weight
        out_bias = self.out.bias
        out_linear = F.linear(attention_reshape_3, out_weight, out_bias)
        add = torch.add(x, out_linear)
        return add


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
    module, weights = attention_block(), load_weights(path)
    module.load_state_dict(weights)
    return module
