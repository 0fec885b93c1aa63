"""Write the table of kernel_memory.cpp: how PyTorch's CPU kernels allocate memory.

PyTorch is installed with the declarations of its operators, native_functions.yaml. They say which
code computes an operator on the CPU and on CUDA:

    python list_kernel_memory.py native_functions.yaml kernel_memory_table.h
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

# Composite operators that ask for the device and then call code that is written for it.
CHOOSE_BY_DEVICE = {"convolution", "_convolution", "convolution_backward", "mkldnn_convolution"}
# Before its result, a kernel turns a mask into indices.
MAKES_INDICES = {"index.Tensor", "index.Tensor_out"}
# Before its result, a kernel may copy the scales (2.14).
COPIES_SCALES = {"_scaled_mm_v2", "_scaled_mm_v2.out"}
# An argument says that some of the results are empty, and what follows would be taken for them.
MAY_BE_EMPTY = {"_linalg_svd", "_linalg_eigh", "linalg_qr"}

RESULTS_FIRST, AS_ON_CUDA, BY_DEVICE = "kResultsFirst", "kAsOnCuda", "kUnknown"
# They run the CPU's code for copies, which takes memory to transpose and to find overlaps.
COPIES = {"copy_": BY_DEVICE, "repeat": RESULTS_FIRST}


def kind_of(name: str, declaration: str) -> str:
    """Return the kind of an operator, judged by its own declaration."""
    if name in MAKES_INDICES | COPIES_SCALES | MAY_BE_EMPTY:
        return BY_DEVICE
    if re.search(r"^  structured(: True|_delegate:)", declaration, re.M):
        return RESULTS_FIRST
    if name in CHOOSE_BY_DEVICE:
        return BY_DEVICE
    dispatch = re.findall(r"^    ([\w, ]+): (\w+)", declaration, re.M)
    kernels = {key: kernel for keys, kernel in dispatch for key in keys.split(", ")}
    composite = [key for key in kernels if key.startswith("CompositeExplicitAutograd")]
    for_all = kernels[composite[0]] if composite else None
    cpu, cuda = kernels.get("CPU", for_all), kernels.get("CUDA", for_all)
    return AS_ON_CUDA if cpu is not None and cpu == cuda else BY_DEVICE


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    kinds = {}
    of_base_name = defaultdict(set)
    for declaration in re.split(r"^- func: ", source.read_text(), flags=re.M)[1:]:
        name = re.split(r"\(", declaration, maxsplit=1)[0]
        kinds[name] = kind_of(name, declaration)
        if "Dimname" in declaration:
            continue  # names of dimensions, which PyTorch 2.12 has, become numbers
        of_base_name[name.split(".")[0].rstrip("_")].add(kinds[name])
    assert len(kinds) > 2000, f"{source} has another format than expected"
    rows = []
    for name, kind in sorted(kinds.items()):
        # A composite operator usually calls an overload of the same name, which does the work.
        overloads = of_base_name[name.split(".")[0].rstrip("_")]
        if kind == AS_ON_CUDA and RESULTS_FIRST in overloads:
            kind = RESULTS_FIRST
        elif kind == AS_ON_CUDA and BY_DEVICE in overloads:
            kind = BY_DEVICE
        kind = COPIES.get(name, kind)
        if kind != BY_DEVICE:
            rows.append(f'    {{"aten::{name}", KernelMemory::{kind}}},\n')
    target.write_text("".join(rows))


if __name__ == "__main__":
    main()
