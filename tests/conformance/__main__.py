"""``make conformance``: every suite on every engine, results as data, and docs/conformance.md from them.

Cases run in worker processes; one that crashes or hangs costs its case, not the run. Results stand in
``results/<suite>.<engine>.json``; a case that passed there and fails now is a regression and makes
the command fail, as does a known gap that passes.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .gaps import known

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SUITES = {
    "onnx": "ONNX backend suite (`onnx.backend.test`)",
    "torch": "PyTorch's operator database (`torch.testing._internal.common_methods_invocations.op_db`)",
    "torch_random": "PyTorch's random operators (of the same database)",
    "torch_zoo": "Architectures of transformers (`tests/zoo/torch`)",
    "jax": "JAX's primitive harnesses (`jax._src.internal_test_util.test_harnesses`)",
    "jax_api": "JAX's public functions (`jax.numpy`, `jax.lax`, `jax.nn`, `jax.random`, `jax.scipy`, ..., enumerated)",
}
# What others reach on the same cases.
PEERS = {
    "torch": "Of the cases in float32, int64, bool and complex64 torch.export with its decompositions gets 636, 449, "
    "336 and 370 right (four samples each in float32, one elsewhere), which bounds what there is to carry; torchax "
    "with jax.jit 575, 415, 272 and 350; torch.onnx with ONNX Runtime 462, 326, 237 and 86 (two samples in float32, "
    "one elsewhere). Here a case passes when all of its first four samples do.",
    "torch_zoo": "On 249 architectures of transformers with random weights torch.export gets 237 right (95.2 %), with "
    "decompositions 235 (94.4 %), torch.onnx with ONNX Runtime 212 (85.1 %), torchax 196 (78.7 %).",
    "jax": "On a sample of 20 cases a group of the same harnesses (1,691 cases) jax2onnx with ONNX Runtime gets 973 "
    "right (57.5 %, mean over groups 55.3 %), 1,306 (77.2 %) where ONNX's reference evaluator counts as well; to "
    "torch by way of jax2onnx and onnx2fx 1,112 (65.8 %). jax.export, which stays in JAX, gets all.",
}
SHARD = 400  # runs a worker takes at once
PATIENCE = 120  # seconds without a line before a worker counts as hung


Work = tuple[str, str]  # engine, case
Results = dict[str, str | None]  # of each case: None for a pass, a reason otherwise


def run_shard(suite: str, work: list[Work], folder: Path) -> dict[Work, str | None]:
    """The result of each piece of work that applies. Survives crashes and hangs."""
    results: dict[Work, str | None] = {}
    skipped: set[Work] = set()
    left = list(work)
    while left:
        list_file, output = folder / "cases.txt", folder / "output.jsonl"
        list_file.write_text("\n".join(map("\t".join, left)))
        output.write_text("")
        command = [sys.executable, "-m", "tests.conformance.worker", suite, str(list_file), str(output)]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        seen, quiet = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            size = output.stat().st_size
            if size != seen:
                seen, quiet = size, time.monotonic()
            elif time.monotonic() - quiet > PATIENCE:
                process.kill()
                process.wait()
        started = None
        for line in output.read_text().splitlines():
            record = json.loads(line)
            if "start" in record:
                started = _work(record["start"])
            elif record.get("skipped"):
                skipped.add(_work(record["work"]))
            else:
                results[_work(record["work"])] = record["reason"]
        if started is not None and started not in results and started not in skipped:
            results[started] = "the worker died or hung on this case"
        left = [w for w in left if w not in results and w not in skipped]
        if started is None and left:
            results.update(dict.fromkeys(left, "the worker could not start"))
            left = []
    return results


def _work(line: str) -> Work:
    engine, _, case = line.partition("\t")
    return engine, case


def run_suite(name: str, engines: Sequence[str], cases: Sequence[str], jobs: int = 1) -> dict[str, Results]:
    """Results by engine. A worker runs a case on all engines in turn, so that they share what was captured."""
    work = [(engine, case) for case in cases for engine in engines]
    shards = [work[start : start + SHARD] for start in range(0, len(work), SHARD)]
    results: dict[str, Results] = {engine: {} for engine in engines}

    def run(shard: list[Work]) -> dict[Work, str | None]:
        with tempfile.TemporaryDirectory() as folder:
            return run_shard(name, shard, Path(folder))

    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(run, shards):
            for (engine, case), reason in found.items():
                results[engine][case] = reason
            done = ", ".join(f"{e} {sum(v is None for v in r.values())}/{len(r)}" for e, r in results.items())
            print(f"\r{name}: {done} passed of those run, {len(cases)} cases", end="", flush=True)
    print()
    return results


def regressions(name: str, engine: str, results: Results) -> list[str]:
    """Cases that passed in the stored results and fail now, and known gaps that pass."""
    path = RESULTS / f"{name}.{engine}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    found = [
        f"{c} on {engine} passed before: {r}" for c, r in results.items() if r and c in before and before[c] is None
    ]
    found += [
        f"{c} on {engine} is a known gap and passes" for c, r in results.items() if r is None and known(name, engine, c)
    ]
    return found


def unexplained(name: str, engine: str, results: Results) -> list[str]:
    """Cases that fail without a row among the known gaps."""
    return [
        f"{c} on {engine} fails and is no known gap: {r}"
        for c, r in results.items()
        if r and not known(name, engine, c)
    ]


def store(name: str, engine: str, results: Results, partial: frozenset[str] | None = None) -> None:
    """Write results; those of a partial run join the stored ones, where they are among the suite's cases."""
    path = RESULTS / f"{name}.{engine}.json"
    if partial is not None:
        before: Results = json.loads(path.read_text()) if path.exists() else {}
        results = {**before, **{c: r for c, r in results.items() if c in before or c in partial}}
    short = {c: None if r is None else r.splitlines()[0][:160] for c, r in sorted(results.items())}
    path.write_text(json.dumps(short, indent=0) + "\n")


def document() -> str:
    """docs/conformance.md from the stored results."""
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance` from `tests/conformance/results`: passed / run, by group and engine. Every",
        "case goes through capture, file and engine. What other tools reach stands in the README.",
    ]
    for name, title in SUITES.items():
        suite = importlib.import_module(f"tests.conformance.{name}_suite")
        columns = (*suite.ENGINES, *([suite.BOUND] if hasattr(suite, "BOUND") else []))
        stored = {e: json.loads(p.read_text()) for e in columns if (p := RESULTS / f"{name}.{e}.json").exists()}
        if not stored:
            continue
        groups = sorted({suite.group(c) for r in stored.values() for c in r})
        lines += ["", f"## {title}", "", f"| group | {' | '.join(stored)} |", f"|---|{'---|' * len(stored)}"]
        shares: dict[str, list[float]] = {e: [] for e in stored}
        for g in [*groups, "all"]:
            cells = []
            for engine, r in stored.items():
                chosen = [v for c, v in r.items() if g in ("all", suite.group(c))]
                passed = sum(v is None for v in chosen)
                cells.append(f"{passed} / {len(chosen)}")
                if g != "all" and chosen:
                    shares[engine].append(passed / len(chosen))
            lines.append(f"| {g} | {' | '.join(cells)} |")
        for subset, within in getattr(suite, "SUBSETS", {}).items():
            chosen_of = {e: [v for c, v in r.items() if within(c)] for e, r in stored.items()}
            cells = [f"{sum(v is None for v in found)} / {len(found)}" for found in chosen_of.values()]
            lines.append(f"| {subset} | {' | '.join(cells)} |")
        means = [f"{100 * sum(x) / max(len(x), 1):.1f} %" for x in shares.values()]
        lines += [f"| mean over groups | {' | '.join(means)} |"]
        if name in PEERS:
            lines += ["", PEERS[name]]
        if getattr(suite, "LISTED", False):
            lines += ["", "What fails, and why:", "", *_failures(name, stored)]
            continue
        lines += ["", "Most frequent reasons of failure:", ""]
        for engine, r in stored.items():
            reasons = Counter(_kind(v) for v in r.values() if v)
            lines += [f"- {engine}: " + "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(8))]
    return "\n".join(lines) + "\n"


def _failures(name: str, stored: dict[str, Results]) -> list[str]:
    """A line for each case that fails on some engine: the known reason, else what the first engine said."""
    lines = []
    for case in sorted({c for r in stored.values() for c in r}):
        where = [e for e, r in stored.items() if r.get(case)]
        if where:
            reasons = [known(name, e, case) or str(stored[e][case]) for e in where]
            lines.append(f"- {case} ({', '.join(where)}): {reasons[0]}")
    return lines


def _kind(reason: str) -> str:
    return reason.split(":")[0] if "Error" in reason.split(":")[0] else "another value, shape or dtype"


def _chosen(suite: Any, options: argparse.Namespace) -> list[str]:
    """All cases of the suite, or those that the options ask for."""
    sampled = options.per_group and "per_group" in inspect.signature(suite.cases).parameters
    cases = suite.cases(options.per_group) if sampled else suite.cases()
    return [c for c in cases if not options.only or fnmatch.fnmatchcase(c, options.only)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=list(SUITES), help="only this suite")
    parser.add_argument("--engine", action="append", help="only this engine; may be given again")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at once")
    parser.add_argument("--per-group", type=int, help="only so many cases a group, of a suite that can be sampled")
    parser.add_argument("--only", help="a shell pattern of cases; their failures are printed")
    parser.add_argument("--document", action="store_true", help="only write docs/conformance.md from stored results")
    options = parser.parse_args()
    partial = bool(options.only or options.per_group)
    problems: list[str] = []
    for name in [] if options.document else [options.suite] if options.suite else list(SUITES):
        suite = importlib.import_module(f"tests.conformance.{name}_suite")
        found = run_suite(name, options.engine or suite.ENGINES, _chosen(suite, options), options.jobs)
        for engine, results in found.items():
            for case, reason in results.items() if partial else ():
                if reason:
                    print(f"{engine} {case}: {reason}"[:400].replace("\n", " | "))
            problems += regressions(name, engine, results)
            if getattr(suite, "GAPS_COMPLETE", False) and engine in suite.ENGINES:
                problems += unexplained(name, engine, results)
            store(name, engine, results, frozenset(suite.cases()) if partial else None)
    (HERE.parents[1] / "docs" / "conformance.md").write_text(document())
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
