"""One worker: runs cases of one suite and writes a line of JSON for each.

``python -m tests.conformance.worker SUITE CASES OUTPUT``: CASES is a file with ``engine<TAB>case`` a
line. Before a case starts its line is written, so that the driver knows which one killed a worker.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path

from . import NotApplicable


def main() -> None:
    name, cases, output = sys.argv[1:]
    suite = importlib.import_module(f"tests.conformance.{name}_suite")
    warnings.simplefilter("ignore")
    with Path(output).open("a") as file:
        for work in Path(cases).read_text().splitlines():
            engine, _, case = work.partition("\t")
            file.write(json.dumps({"start": work}) + "\n")
            file.flush()
            record: dict[str, object] = {"work": work}
            try:
                reason = suite.run(case, engine)
            except NotApplicable as error:
                reason, record["skipped"] = str(error), True
            except Exception as error:  # a failure is a result, whatever is raised
                reason = f"{type(error).__name__}: {error}"
            file.write(json.dumps({**record, "reason": reason}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
