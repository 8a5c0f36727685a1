"""The command line: every command prints for a person, or JSON with ``--json``; errors exit with 1."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from ..errors import UnigraphError
from . import commands
from .commands import Differs, Result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unigraph", description="Capture, convert, inspect and run graphs of numerical programs."
    )
    parser.add_argument("--version", action="version", version=f"unigraph {_version()}")
    subs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, do: Callable[[argparse.Namespace], Result], text: str, example: str
    ) -> argparse.ArgumentParser:
        sub = subs.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="print JSON for a machine")
        sub.set_defaults(do=do)
        return sub

    def inputs(sub: argparse.ArgumentParser, text: str) -> None:
        sub.add_argument("--input", "-i", action="append", metavar="INPUT", help=text)

    arrays = "x.npy, name=x.npy or all.npz; repeat for several"
    sub = command(
        "export",
        commands.export,
        "capture a Python program into a file",
        "unigraph export model.py:net -i 'f32[batch,3]' -o m.ugraph",
    )
    sub.add_argument("program", help="module.py:function (a program, or a function that returns program and inputs)")
    sub.add_argument("--output", "-o", required=True, help="the file to write")
    sub.add_argument("--framework", choices=["auto", "torch", "jax"], default="auto")
    inputs(sub, "a type such as 'f32[batch,3]'; repeat for several")

    sub = command(
        "convert", commands.convert, "convert between files, by extension", "unigraph convert model.onnx model.ugraph"
    )
    sub.add_argument("source", help=".ugraph, .onnx, .pt2, .txt or module.py:function")
    sub.add_argument("target", help=".ugraph, .onnx, .pt2, .py or .txt")
    inputs(sub, "for module.py:function: a type such as 'f32[batch,3]'; repeat for several")
    sub.add_argument("--framework", choices=["auto", "torch", "jax"], default="auto", help="of module.py:function")
    sub.add_argument(
        "--library", choices=["torch", "jax", "numpy"], default="torch", help="what .py source is written for"
    )

    sub = command(
        "run", commands.run, "run a graph on arrays", "unigraph run m.ugraph --input x.npy --engine torch -o out.npz"
    )
    sub.add_argument("graph")
    inputs(sub, arrays)
    sub.add_argument("--engine", default="auto", help="auto, numpy, torch, jax, onnx or torch.compile")
    sub.add_argument("--device", help="cpu, cuda, cuda:N or tpu")
    sub.add_argument("--seed", type=int, help="seed of the random keys")
    sub.add_argument(
        "--keep", action="append", metavar="NAME", help="also give this intermediate value; repeat for several"
    )
    sub.add_argument("--weights", help="safetensors file (or glob) to bind by name")
    sub.add_argument("--output", "-o", help="write the results to this .npz file")

    for name, do, text in (
        ("tune", commands.tune, "measure every way to run a graph; --engine auto takes the fastest from then on"),
        ("bench", commands.bench, "measure engines on a graph: time of a call, calls per second, first call, memory"),
    ):
        sub = command(name, do, text, f"unigraph {name} m.ugraph --size batch=8")
        sub.add_argument("graph")
        inputs(sub, f"{arrays}; made up by type without any")
        sub.add_argument("--size", action="append", metavar="NAME=N", help="a free size of inputs that are made up")
        sub.add_argument("--device", help="cpu, cuda, cuda:N or tpu")
        sub.add_argument("--budget", type=float, default=120.0, help="seconds after which no other candidate is begun")
        if name == "bench":
            sub.add_argument("--engine", action="append", help="only this engine; repeat for several")

    sub = command("show", commands.show, "print a graph", "unigraph show m.ugraph --stats")
    sub.add_argument("graph")
    sub.add_argument("--stats", action="store_true", help="counts, parameters, memory")
    sub.add_argument("--dot", action="store_true", help="Graphviz DOT")
    sub.add_argument("--full", action="store_true", help="with all data, so that it parses back completely")

    sub = command(
        "check", commands.check, "check a file: structure, and every type inferred anew", "unigraph check m.ugraph"
    )
    sub.add_argument("graph")

    sub = command(
        "optimize", commands.optimize, "run the passes", "unigraph optimize m.ugraph -o fast.ugraph --level 3"
    )
    sub.add_argument("graph")
    sub.add_argument("--output", "-o", required=True, help="the file to write")
    sub.add_argument("--level", type=int, default=2, choices=range(4))
    sub.add_argument("--outputs", action="append", metavar="NAME", help="keep only this output; repeat for several")

    sub = command(
        "diff",
        commands.diff,
        "find the first value at which two graphs or engines part ways",
        "unigraph diff m.ugraph --engine-b torch -i x.npy",
    )
    sub.add_argument("a")
    sub.add_argument("b", nargs="?", help="the other graph (default: the same one)")
    inputs(sub, arrays)
    sub.add_argument("--engine-a", default="numpy")
    sub.add_argument("--engine-b", default="numpy")
    sub.add_argument("--seed", type=int, help="seed of the random keys")
    sub.add_argument("--limit", type=int, default=5, help="how many differing values to list")

    sub = command("ops", commands.ops, "list the ops, or explain one", "unigraph ops pad")
    sub.add_argument("name", nargs="?")

    command("doctor", commands.doctor, "tell what is installed and which engines and devices work", "unigraph doctor")
    return parser


def _version() -> str:
    from unigraph import __version__

    return __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for an error, 2 for wrong usage."""
    options = _parser().parse_args(argv)
    try:
        text, data = options.do(options)
    except Differs as error:
        print(json.dumps(error.data) if options.json else error)
        return 1
    except (UnigraphError, OSError, ImportError) as error:
        print(json.dumps({"error": str(error)}) if options.json else f"unigraph: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    print(json.dumps(data) if options.json else text)
    return 0
