"""The command line: every command, its help, its JSON, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import unigraph as ug
from unigraph.cli import main

COMMANDS = ("export", "convert", "run", "tune", "bench", "show", "check", "optimize", "diff", "ops", "doctor")
PROGRAMS = """
import unigraph as ug
import {framework}

{body}

def built():
    b = ug.GraphBuilder("built")
    x = b.input("x", "f32", ("batch", 3))
    return b.build(b.tanh(x))

number = 3
"""
TORCH = """
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())

def double(x):
    return torch.tanh(x) * 2

def ready():
    return net, (torch.ones(2, 3),), {"dynamic": (("rows", None),)}
"""
JAX = """
def double(x):
    return jax.numpy.tanh(x) * 2
"""


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A folder with a graph file ``m.ugraph`` and its input ``x.npy``, as the working directory."""
    monkeypatch.chdir(tmp_path)
    b = ug.GraphBuilder("m")
    x = b.input("x", "f32", ("batch", 3))
    h = b.linear(x, b.weight("w", np.arange(12, dtype=np.float32).reshape(4, 3) / 10))
    b.build(b.tanh(h)).save("m.ugraph")
    np.save("x.npy", np.ones((2, 3), np.float32))
    return tmp_path


@pytest.fixture
def call(capsys):
    """Runs a command; gives its exit status, and what it printed to each stream."""

    def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(list(argv))
        out, err = capsys.readouterr()
        return status, out, err

    return run


def expected(x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ (np.arange(12, dtype=np.float32).reshape(4, 3) / 10).T)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"example:\n  unigraph {command}" in text and "--json" in text


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"    {command} " in text for command in COMMANDS)


@pytest.mark.parametrize("argv", [[], ["fly"], ["export", "m.py:f"], ["optimize", "m.ugraph"], ["run"]])
def test_wrong_usage_exits_with_2(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert "usage: unigraph" in capsys.readouterr().err


# -- run, show, check, ops, doctor -----------------------------------------------------------------


@pytest.mark.parametrize("given", ["x.npy", "x=x.npy", "all.npz"])
def test_run_takes_arrays(inside, call, given):
    np.savez("all.npz", x=np.load("x.npy"))
    status, out, _ = call("run", "m.ugraph", "-i", given, "--engine", "numpy", "-o", "out.npz")
    assert status == 0 and "f32[2,4]" in out and "written to out.npz" in out
    with np.load("out.npz") as results:
        np.testing.assert_allclose(results["output"], expected(np.load("x.npy")), rtol=1e-6)


def test_run_gives_json(inside, call):
    status, out, _ = call("run", "m.ugraph", "-i", "x.npy", "--engine", "numpy", "--json")
    data = json.loads(out)
    assert status == 0 and data["outputs"]["output"]["shape"] == [2, 4]
    np.testing.assert_allclose(data["outputs"]["output"]["data"], expected(np.load("x.npy")), rtol=1e-6)


def test_run_keeps_intermediate_values(inside, call):
    b = ug.GraphBuilder()
    x = b.input("x", "f32", (2, 3))
    text = str(b.build(b.neg(b.exp(x)))).replace("%0", "%grown")
    ug.parse(text).save("k.ugraph")
    status, out, _ = call("run", "k.ugraph", "-i", "x.npy", "--engine", "numpy", "--keep", "grown", "--json")
    data = json.loads(out)["outputs"]
    assert status == 0 and set(data) == {"output", "grown"}
    np.testing.assert_allclose(data["grown"]["data"], np.exp(np.load("x.npy")), rtol=1e-6)


def test_run_seed_makes_the_same_numbers(inside, call):
    b = ug.GraphBuilder()
    b.build(b.random_normal(b.key(), shape=(4,), dtype="f32")).save("r.ugraph")
    first = call("run", "r.ugraph", "--seed", "3", "--engine", "numpy", "--json")
    again = call("run", "r.ugraph", "--seed", "3", "--engine", "numpy", "--json")
    other = call("run", "r.ugraph", "--seed", "4", "--engine", "numpy", "--json")
    values = [json.loads(out)["outputs"]["output"]["data"] for _, out, _ in (first, again, other)]
    assert values[0] == values[1] != values[2]


def test_run_binds_weights(inside, call):
    from unigraph.safetensors import save_file

    save_file({"w": np.zeros((4, 3), np.float32)}, "zero.safetensors")
    status, out, _ = call(
        "run", "m.ugraph", "-i", "x.npy", "--weights", "zero.safetensors", "--engine", "numpy", "--json"
    )
    assert status == 0 and not np.any(json.loads(out)["outputs"]["output"]["data"])


def test_show(inside, call):
    status, out, _ = call("show", "m.ugraph")
    assert status == 0 and "linear(" in out
    status, out, _ = call("show", "m.ugraph", "--stats")
    assert status == 0 and "12" in out
    assert "operations" in json.dumps(json.loads(call("show", "m.ugraph", "--stats", "--json")[1]))
    status, out, _ = call("show", "m.ugraph", "--dot")
    assert status == 0 and out.startswith("digraph")
    status, out, _ = call("show", "m.ugraph", "--full")
    again = ug.parse(out)
    np.testing.assert_array_equal(again.weights["w"], ug.load("m.ugraph").weights["w"])


def test_check(inside, call):
    status, out, _ = call("check", "m.ugraph")
    assert status == 0 and "well formed" in out
    assert json.loads(call("check", "m.ugraph", "--json")[1])["ok"] is True


def test_ops(call):
    status, out, _ = call("ops")
    assert status == 0 and "elementwise" in out and "dot_general" in out
    status, out, _ = call("ops", "pad")
    assert status == 0 and out.startswith("pad(x, value)") and "interior" in out
    assert json.loads(call("ops", "pad", "--json")[1])["attrs"]["low"]["kind"] == "dims"
    assert "pad" in json.loads(call("ops", "--json")[1])["movement"]
    status, out, err = call("ops", "pda")
    assert (status, out) == (1, "") and "no op is called 'pda'; did you mean pad?" in err


def test_doctor(call):
    status, out, _ = call("doctor")
    assert status == 0 and "numpy" in out and "cpu" in out
    data = json.loads(call("doctor", "--json")[1])
    assert data["engines"]["numpy"] == ["cpu"] and "numpy" in data["packages"]


# -- tune, bench -----------------------------------------------------------------------------------


def test_bench_and_tune(inside, call, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    status, out, _ = call("bench", "m.ugraph", "--engine", "numpy")
    assert status == 0 and "numpy" in out and "calls/s" in out and "torch" not in out
    assert not (tmp_path / "unigraph").exists()
    rows = json.loads(call("bench", "m.ugraph", "--engine", "numpy", "-i", "x.npy", "--json")[1])
    assert [row["candidate"] for row in rows] == ["numpy"] and rows[0]["seconds"] > 0
    status, out, _ = call("tune", "m.ugraph", "--budget", "0")
    assert status == 0 and "not measured" in out and (tmp_path / "unigraph" / "auto.json").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--size", "batch"], "size 'batch' is not of the form batch=8"),
        (["--size", "width=2"], "no free size is called width"),
        (["--size", "batch=2", "-i", "x.npy"], "give --input or --size, not both"),
        (["--engine", "abacus"], "no engine 'abacus'"),
    ],
)
def test_bench_refuses(argv, message, inside, call):
    status, out, err = call("bench", "m.ugraph", *argv)
    assert (status, out) == (1, "") and message in err


# -- optimize, diff --------------------------------------------------------------------------------


def test_optimize(inside, call):
    status, out, _ = call("optimize", "m.ugraph", "-o", "fast.ugraph", "--level", "2")
    assert status == 0 and "written to fast.ugraph" in out
    x = np.load("x.npy")
    np.testing.assert_allclose(ug.run("fast.ugraph", x), expected(x), rtol=1e-6)
    data = json.loads(call("optimize", "m.ugraph", "-o", "fast.ugraph", "--json")[1])
    assert data["passes"] and data["passes"][0]["pass"]


def test_optimize_prunes_to_an_output(inside, call):
    b = ug.GraphBuilder()
    x = b.input("x", "f32", (2, 3))
    b.build((b.exp(x), b.neg(x))).save("two.ugraph")
    status, out, _ = call("optimize", "two.ugraph", "-o", "one.ugraph", "--outputs", "1", "--json")
    assert status == 0 and len(json.loads(out)["outputs"]) == 1


def test_diff(inside, call):
    pytest.importorskip("torch")
    status, out, _ = call("diff", "m.ugraph", "--engine-b", "torch", "-i", "x.npy", "--json")
    data = json.loads(out)
    assert status == 0 and data["parts"] == [] and data["compared"]


def test_diff_of_differing_graphs(inside, call):
    graph = ug.load("m.ugraph")
    graph.bind({"w": np.zeros((4, 3), np.float32)}).save("zero.ugraph")
    status, out, err = call("diff", "m.ugraph", "zero.ugraph", "-i", "x.npy")
    assert status == 1 and out and not err
    status, out, err = call("diff", "m.ugraph", "zero.ugraph", "-i", "x.npy", "--json")
    assert status == 1 and json.loads(out)["parts"]


# -- export and convert ----------------------------------------------------------------------------


def program(tmp_path, framework: str) -> str:
    pytest.importorskip(framework)
    path = tmp_path / f"{framework}_programs.py"
    path.write_text(PROGRAMS.format(framework=framework, body={"torch": TORCH, "jax": JAX}[framework]))
    return str(path)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_export_functions(inside, call, framework):
    file = program(inside, framework)
    status, out, err = call("export", f"{file}:double", "-i", "f32[batch,3]", "-o", "d.ugraph", "--json")
    assert (status, err) == (0, ""), err
    assert list(json.loads(out)["inputs"].values()) == ["f32[batch,3]"]
    x = np.ones((5, 3), np.float32)
    np.testing.assert_allclose(ug.run("d.ugraph", x, engine="numpy"), np.tanh(x) * 2, rtol=1e-6)


def test_export_modules_and_builders(inside, call):
    file = program(inside, "torch")
    status, out, err = call("export", f"{file}:net", "-i", "f32[batch,3]", "-o", "n.ugraph")
    assert status == 0 and "written to n.ugraph" in out, err
    assert set(ug.load("n.ugraph").weights) == {"0.weight", "0.bias"}
    assert call("export", f"{file}:ready", "-o", "r.ugraph")[0] == 0
    assert str(ug.load("r.ugraph").inputs[0].type) == "f32[rows,3]"
    assert call("export", f"{file}:built", "-o", "b.ugraph")[0] == 0
    assert ug.load("b.ugraph").name == "built"


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("nothing", [], "defines no 'nothing'"),
        ("double", [], "needs example inputs"),
        ("number", ["-i", "f32[3]"], "number is of type int"),
        ("double", ["-i", "g32[3]"], "g32"),
        ("double", ["-i", "f32[3"], "f32[3"),
    ],
)
def test_export_errors(inside, call, name, more, message):
    file = program(inside, "torch")
    before = sorted(p.name for p in inside.iterdir())
    status, out, err = call("export", f"{file}:{name}", *more, "-o", "e.ugraph")
    assert (status, out) == (1, "") and message in err
    assert sorted(p.name for p in inside.iterdir() if p.name != "__pycache__") == before


def test_convert_text_both_ways(inside, call):
    assert call("convert", "m.ugraph", "m.txt")[0] == 0
    assert call("convert", "m.txt", "again.ugraph")[0] == 0
    x = np.load("x.npy")
    np.testing.assert_array_equal(ug.run("again.ugraph", x), ug.run("m.ugraph", x))


def test_convert_onnx_both_ways(inside, call):
    pytest.importorskip("onnx")
    status, out, err = call("convert", "m.ugraph", "m.onnx")
    assert status == 0 and "m.ugraph -> m.onnx" in out, err
    status, _, err = call("convert", "m.onnx", "back.ugraph")
    assert status == 0, err
    x = np.load("x.npy")
    np.testing.assert_allclose(ug.run("back.ugraph", x, engine="numpy")[0], expected(x), rtol=1e-6)


def test_convert_pt2_both_ways(inside, call):
    pytest.importorskip("torch")
    status, _, err = call("convert", "m.ugraph", "m.pt2")
    assert status == 0, err
    status, _, err = call("convert", "m.pt2", "back.ugraph")
    assert status == 0, err
    for rows in (1, 2, 7):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(ug.run("back.ugraph", x, engine="numpy"), expected(x), rtol=1e-6)


@pytest.mark.parametrize("target", ["torch", "jax", "numpy"])
def test_convert_to_source(inside, call, target):
    pytest.importorskip(target)
    status, _, err = call("convert", "m.ugraph", "m.py", "--library", target)
    assert status == 0, err
    assert {"m.py", "m.safetensors"} <= {p.name for p in inside.iterdir()}
    compile((inside / "m.py").read_text(), "m.py", "exec")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["show", "none.ugraph"], "there is no file 'none.ugraph'"),
        (["show", "x.npy"], "cannot read 'x.npy'"),
        (["show", "broken.ugraph"], "broken.ugraph"),
        (["show", "broken.txt"], "line 1"),
        (["convert", "m.ugraph", "m.exe"], "cannot write 'm.exe'"),
        (["convert", "m.ugraph", "none/m.ugraph"], "none"),
        (["optimize", "m.ugraph", "-o", "m.exe"], "cannot write 'm.exe'"),
        (["optimize", "m.ugraph", "-o", "o.ugraph", "--outputs", "zebra"], "zebra"),
        (["run", "m.ugraph"], "'x'"),
        (["run", "m.ugraph", "-i", "none.npy"], "cannot read input 'none.npy'"),
        (["run", "m.ugraph", "-i", "m.ugraph"], "cannot read input 'm.ugraph'"),
        (["run", "m.ugraph", "-i", "pickled.npy"], "cannot read input 'pickled.npy'"),
        (["run", "m.ugraph", "-i", "wide.npy"], "f32[batch,3]"),
        (["run", "m.ugraph", "-i", "z=x.npy"], "there is no input 'z'"),
        (["run", "m.ugraph", "-i", "x.npy", "--engine", "abacus"], "no engine 'abacus'"),
        (["run", "m.ugraph", "-i", "x.npy", "--engine", "numpy", "--device", "cuda"], "cuda"),
        (["run", "m.ugraph", "-i", "x.npy", "--keep", "zebra"], "zebra"),
        (["run", "m.ugraph", "-i", "x.npy", "--weights", "none.safetensors"], "none.safetensors"),
        (["run", "m.ugraph", "-i", "x.npy", "-o", "none/out.npz"], "none"),
    ],
)
def test_errors_are_one_clean_message(inside, call, argv, message):
    (inside / "broken.ugraph").write_bytes(b"PK\x03\x04 not a graph")
    (inside / "broken.txt").write_text("graph {")
    np.save("wide.npy", np.ones((2, 4), np.float32))
    np.save("pickled.npy", np.array([{}], object))
    before = sorted(p.name for p in inside.iterdir())
    status, out, err = call(*argv)
    assert (status, out) == (1, "")
    assert err.startswith("unigraph: ") and message in err and "Traceback" not in err
    assert sorted(p.name for p in inside.iterdir()) == before
    status, out, err = call(*argv, "--json")
    assert (status, out) == (1, "") and message in json.loads(err)["error"]


def test_as_a_process(inside):
    command = [sys.executable, "-m", "unigraph.cli"]
    good = subprocess.run([*command, "check", "m.ugraph"], capture_output=True, text=True)
    assert good.returncode == 0 and "well formed" in good.stdout
    bad = subprocess.run([*command, "show", "none.ugraph"], capture_output=True, text=True)
    assert bad.returncode == 1 and bad.stdout == "" and bad.stderr.count("\n") == 1
    usage = subprocess.run([*command, "fly"], capture_output=True, text=True)
    assert usage.returncode == 2
    version = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert version.stdout.strip() == f"unigraph {ug.__version__}"
