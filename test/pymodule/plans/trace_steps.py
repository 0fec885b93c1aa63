"""A program that prints what the steps of ``steps.py`` allocate in PyTorch's CUDA build.

    python trace_steps.py CONFIGURATION

The configuration is that of the planner, and the names of `programs`. The output is a JSON object:
for each program a list of [address, bytes], where bytes are negative for a block that is freed.
"""

import gc
import importlib.util
import json
import os
import sys
from pathlib import Path


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    configuration = json.loads(sys.argv[1])
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    planner = load(configuration["planner"]).load(configuration)
    steps = load(Path(__file__).with_name("steps.py"))
    traces = {}
    for name in configuration["programs"]:
        gc.collect()
        planner.runtime.clear(0)
        steps.train(name, "cuda")
        gc.collect()
        traces[name] = list(planner.runtime.events())
    json.dump(traces, output)


if __name__ == "__main__":
    main()
