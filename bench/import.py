"""The time and memory of importing PyTorch with openreg installed, each time in a fresh Python.

PyTorch's CUDA build can be imported without NVIDIA's packages in CUDA mode only. Without them there
is no figure of PyTorch alone. Then the memory of CUDA mode is printed without a ratio, and nothing
is compared with the goals of the build.

To measure without openreg's startup file, `site` skips the file. All measured processes start in
the same way, so that they differ in nothing else.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from harness import Table, Work, absolute, run
from torch_openreg.commands.installation import missing_packages

SITE = """
import site
if {without}:
    read = site.addpackage
    site.addpackage = lambda folder, name, known: (
        known if name == "torch_openreg.pth" else read(folder, name, known)
    )
site.main()
"""
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("OPENREG_", "PYTORCH_", "TORCH_"))
}


def _python(code: str, *, without: bool = False, **variables: str) -> Work:
    """Return work that runs code in a new Python process, with or without the startup file."""
    words = [sys.executable, "-S", "-c", SITE.format(without=without) + code]
    return lambda: subprocess.run(words, env=CLEAN | variables, check=True)


def _memory(code: str, *, without: bool = False, **variables: str) -> float:
    """Return the largest resident memory of a new Python process that runs code, in MiB.

    The figure of `getrusage` is at least the memory of the process that started it.
    """
    code += "; print(*(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    words = [sys.executable, "-S", "-c", SITE.format(without=without) + code]
    return int(subprocess.check_output(words, env=CLEAN | variables).split()[1]) / 1024


def _program(*words: str) -> Work:
    return lambda: subprocess.run(words, env=CLEAN, check=True)


def _has_cuda_build() -> bool:
    found = importlib.util.find_spec("torch")
    return (
        found is not None
        and Path(found.origin or "").with_name("lib").joinpath("libtorch_cuda.so").exists()
    )


def main() -> None:
    """Print the table."""
    table = Table(
        "Import: time of a Python process / time of a reference", "process / reference", "ns"
    )
    torch, alone = "import torch", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    off = _python(torch)
    table.measure("nothing, with the startup file / without", *_pair("pass"), turns=101)
    cuda_mode = {"OPENREG_DEVICE_TYPE": "cuda"}
    if missing := missing_packages():
        mib, nothing = _memory(torch, **cuda_mode), _memory("pass")
        print(
            f"memory of CUDA mode: {mib:.0f} MiB, of Python alone: {nothing:.0f} MiB\n"
            f"not measured: torch alone, and all ratios to it: {len(missing)} packages of NVIDIA "
            f"are absent, without which this build can be imported in CUDA mode only"
        )
        return
    table.measure("torch, with the startup file / without", *_pair(torch), turns=15, at_most=1.10)
    pytorch = _python(torch, without=True, **alone)
    table.measure("torch and openreg / torch alone", off, pytorch, turns=15, at_most=1.03)
    cuda = _python(torch, **cuda_mode)
    # With the CUDA build, `torch alone` loads NVIDIA's libraries, and CUDA mode the stand-ins.
    goal = 1.05 if _has_cuda_build() else None
    table.measure("torch in CUDA mode / torch alone", cuda, pytorch, turns=15, at_most=goal)
    alone_mib = _memory(torch, without=True, **alone)
    memory = absolute(_memory(torch), alone_mib)
    table.row("memory: torch and openreg / torch alone", memory, "MiB", at_most=1.10)
    memory = absolute(_memory(torch, **cuda_mode), alone_mib)
    goal = 0.50 if _has_cuda_build() else 1.10
    table.row("memory: CUDA mode / torch alone", memory, "MiB", at_most=goal)
    plain = [sys.executable, "-c", torch]
    launcher = [sys.executable, "-c", "import _openreg_command as c; c.main()", "run", *plain]
    table.measure("openreg run / torch alone", _program(*launcher), pytorch, turns=15)


def _pair(code: str) -> tuple[Work, Work]:
    return _python(code), _python(code, without=True)


if __name__ == "__main__":
    run(main)
