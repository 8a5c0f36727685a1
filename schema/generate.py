"""Regenerate ``ugraph_pb2.py`` from ``ugraph.proto``: ``python schema/generate.py [FOLDER]``.

Needs grpcio-tools. Generated code runs on the protobuf runtime it was made for or a newer one, so
after regenerating with a newer compiler the lower bound of protobuf in pyproject.toml must follow.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate(folder: Path) -> Path:
    """Write the generated module into ``folder`` and return its path.

    Raises ImportError without grpcio-tools, RuntimeError when the compiler refuses the schema.
    """
    from grpc_tools import protoc

    status = protoc.main(["protoc", f"-I{HERE}", f"--python_out={folder}", str(HERE / "ugraph.proto")])
    if status:
        raise RuntimeError(f"protoc failed with status {status}")
    return folder / "ugraph_pb2.py"


if __name__ == "__main__":
    print(generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
