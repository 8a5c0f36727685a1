"""All benchmarks: prints their tables and writes docs/benchmarks.md. Exit code 1 when a bar is missed."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from . import big_architecture, capture, engines, load_big, scale, zoo

DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Written by `make bench` (`python -m bench`). Absolute times are those of one core of an ordinary
server that had other work to do; ratios and growth are what to compare.
"""


def main() -> int:
    """Run them all."""
    results = []
    own = (scale.run, load_big.run, capture.run, zoo.run, zoo.overhead, big_architecture.run)
    for run in (*own, engines.conversion, engines.run):
        figures = run()
        print(figures, end="\n\n", flush=True)
        results.append(figures)
    machine = f"Python {platform.python_version()}, {platform.machine()}.\n"
    DOCUMENT.write_text("\n".join([INTRODUCTION, machine, *(f.markdown() for f in results)]))
    return 1 if any(f.missed for f in results) else 0


if __name__ == "__main__":
    sys.exit(main())
