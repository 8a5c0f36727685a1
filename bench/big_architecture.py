"""A language model of seven billion parameters without its weights: captured, saved and loaded in a process
of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .table import Figures

GIGABYTES, SECONDS = 3.0, 5.0
# Llama 2 of 7 billion parameters.
SIZES = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "use_cache": False,
}

_CHILD = """
import json, os, resource, sys, time, warnings
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")
import torch, transformers
import unigraph as ug

with torch.device("meta"):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**json.loads(sys.argv[1]))).eval()
# Frequencies are in no checkpoint: they are real, and go with the architecture.
model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
clock = [time.perf_counter()]
ids = torch.ones(2, 9, dtype=torch.int64)
graph = ug.from_torch(model, kwargs={"input_ids": ids}, dynamic={"input_ids": ("batch", "length")})
clock.append(time.perf_counter())
graph.save(sys.argv[2], weights=False)
clock.append(time.perf_counter())
ug.load(sys.argv[2], weights=False)
clock.append(time.perf_counter())
capture, save, load = (b - a for a, b in zip(clock, clock[1:]))
print(json.dumps({
    "parameters": sum(p.numel() for p in model.parameters()),
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "capture": capture, "save": save, "load": load, "operations": len(graph.edges),
}))
"""


def run() -> Figures:
    """Peak memory of the whole process, and seconds of capture, save and load."""
    figures = Figures(
        "A big architecture",
        "Llama with 6.7 billion parameters on torch's meta device, batch and length free, in a fresh process: the "
        f"graph is captured, saved without weights and loaded. The bars are {GIGABYTES:g} GB resident at most, "
        f"imports of torch and transformers included, and {SECONDS:g} s for the save.",
        ("parameters", "operations", "most memory", "capture", "save", "load", "file"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ugraph"
        command = [sys.executable, "-c", _CHILD, json.dumps(SIZES), str(path)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        size = path.stat().st_size
    times = (f"{found[k]:.2f} s" for k in ("capture", "save", "load"))
    row = (f"{found['parameters'] / 1e9:.2f} billion", str(found["operations"]), f"{found['peak'] / 1e9:.2f} GB")
    figures.rows.append((*row, *times, f"{size / 1e3:.0f} kB"))
    figures.bar("memory", found["peak"] / 1e9, GIGABYTES, " GB")
    figures.bar("save", found["save"], SECONDS, " s")
    return figures


if __name__ == "__main__":
    print(run())
