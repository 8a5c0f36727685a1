"""One worker: runs cases of one suite on one engine and writes a line of JSON for each.

``python -m tests.conformance.worker SUITE ENGINE CASES OUTPUT``: CASES is a file with one case a
line. Before a case starts its name is written, so that the driver knows which one killed a worker.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path


def main() -> None:
    name, engine, cases, output = sys.argv[1:]
    suite = importlib.import_module(f"tests.conformance.{name}_suite")
    warnings.simplefilter("ignore")
    with Path(output).open("a") as file:
        for case in Path(cases).read_text().splitlines():
            file.write(json.dumps({"start": case}) + "\n")
            file.flush()
            try:
                reason = suite.run(case, engine)
            except Exception as error:  # a failure is a result, whatever is raised
                reason = f"{type(error).__name__}: {error}"
            file.write(json.dumps({"case": case, "reason": reason}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
