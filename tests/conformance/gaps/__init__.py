"""Known gaps of the suites: ``<suite>.toml`` holds patterns of cases with a reason, for all engines or one."""

from __future__ import annotations

import fnmatch
import tomllib
from functools import cache
from pathlib import Path


@cache
def _table(suite: str) -> dict[str, dict[str, str]]:
    path = Path(__file__).parent / f"{suite}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def known(suite: str, engine: str, case: str) -> str | None:
    """The reason why a case is known to fail on an engine, or None."""
    for scope in ("all", engine):
        for pattern, reason in _table(suite).get(scope, {}).items():
            if fnmatch.fnmatchcase(case, pattern):
                return reason
    return None
