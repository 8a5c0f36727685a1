"""``make conformance``: every suite on every engine, results as data, and docs/conformance.md from them.

Cases run in worker processes; one that crashes or hangs costs its case, not the run. Results stand in
``results/<suite>.<engine>.json``; a case that passed there and fails now is a regression and makes
the command fail, as does a known gap that passes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .gaps import known

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SUITES = {
    "onnx": "ONNX backend suite (`onnx.backend.test`)",
}
SHARD = 200  # cases a worker takes at once
PATIENCE = 120  # seconds without a line before a worker counts as hung


def run_shard(suite: str, engine: str, cases: list[str], folder: Path) -> dict[str, str | None]:
    """The result of each case: None for a pass, a reason otherwise. Survives crashes and hangs."""
    results: dict[str, str | None] = {}
    left = list(cases)
    while left:
        list_file, output = folder / "cases.txt", folder / "output.jsonl"
        list_file.write_text("\n".join(left))
        output.write_text("")
        command = [sys.executable, "-m", "tests.conformance.worker", suite, engine, str(list_file), str(output)]
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
                started = record["start"]
            else:
                results[record["case"]] = record["reason"]
        if started is not None and started not in results:
            results[started] = "the worker died or hung on this case"
        left = [c for c in left if c not in results]
        if started is None and left:
            results.update(dict.fromkeys(left, "the worker could not start"))
            left = []
    return results


def run_suite(name: str, engine: str) -> dict[str, str | None]:
    suite = importlib.import_module(f"tests.conformance.{name}_suite")
    cases = list(suite.cases())
    results: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(cases), SHARD):
            results.update(run_shard(name, engine, cases[start : start + SHARD], Path(folder)))
            passed = sum(r is None for r in results.values())
            print(f"\r{name} on {engine}: {len(results)}/{len(cases)} run, {passed} passed", end="", flush=True)
    print()
    return results


def regressions(name: str, engine: str, results: dict[str, str | None]) -> list[str]:
    """Cases that passed in the stored results and fail now, and known gaps that pass."""
    path = RESULTS / f"{name}.{engine}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    found = [f"{c} on {engine} passed before: {r}" for c, r in results.items() if r and c in before and before[c] is None]
    found += [f"{c} on {engine} is a known gap and passes" for c, r in results.items() if r is None and known(name, engine, c)]
    return found


def store(name: str, engine: str, results: dict[str, str | None]) -> None:
    short = {c: None if r is None else r.splitlines()[0][:160] for c, r in sorted(results.items())}
    (RESULTS / f"{name}.{engine}.json").write_text(json.dumps(short, indent=0) + "\n")


def document() -> str:
    """docs/conformance.md from the stored results."""
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance` from `tests/conformance/results`: passed / run, by group and engine. Every",
        "case goes through capture, file and engine. What the peers reach is in the project's baselines.",
    ]
    for name, title in SUITES.items():
        suite = importlib.import_module(f"tests.conformance.{name}_suite")
        stored = {e: json.loads(p.read_text()) for e in suite.ENGINES if (p := RESULTS / f"{name}.{e}.json").exists()}
        if not stored:
            continue
        groups = sorted({suite.group(c) for r in stored.values() for c in r})
        lines += ["", f"## {title}", "", f"| group | {' | '.join(stored)} |", f"|---|{'---|' * len(stored)}"]
        for g in [*groups, "all"]:
            cells = []
            for r in stored.values():
                chosen = [v for c, v in r.items() if g in ("all", suite.group(c))]
                cells.append(f"{sum(v is None for v in chosen)} / {len(chosen)}")
            lines.append(f"| {g} | {' | '.join(cells)} |")
        lines += ["", "Most frequent reasons of failure:", ""]
        for engine, r in stored.items():
            reasons = Counter(_kind(v) for v in r.values() if v)
            lines += [f"- {engine}: " + "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(8))]
    return "\n".join(lines) + "\n"


def _kind(reason: str) -> str:
    return reason.split(":")[0] if "Error" in reason.split(":")[0] else "another value, shape or dtype"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=list(SUITES), help="only this suite")
    parser.add_argument("--engine", help="only this engine")
    parser.add_argument("--document", action="store_true", help="only write docs/conformance.md from stored results")
    options = parser.parse_args()
    problems: list[str] = []
    if not options.document:
        for name in [options.suite] if options.suite else list(SUITES):
            suite = importlib.import_module(f"tests.conformance.{name}_suite")
            for engine in [options.engine] if options.engine else suite.ENGINES:
                results = run_suite(name, engine)
                problems += regressions(name, engine, results)
                store(name, engine, results)
    (HERE.parents[1] / "docs" / "conformance.md").write_text(document())
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
