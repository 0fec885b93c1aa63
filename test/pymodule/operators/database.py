"""Run PyTorch's operator database on a device, and compare with the dtypes that it lists for CUDA.

This is a program that prints what fails or runs contrary to the database, and the operators whose
kernels freed memory that their launches took for results. Within pytest, which
records every warning with its origin, it would take ten times as long.
"""

import json
import pathlib
import sys
import warnings

import torch
import torch_openreg
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from device import DEVICE  # noqa: E402
from device import module as device_module  # noqa: E402

SEED = 2024
SAMPLES = 8  # the first samples per operator and dtype


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def first_samples(info, dtype, **options):
    torch.default_generator.manual_seed(SEED)  # does not seed other devices
    device_module.manual_seed(SEED)
    made = info.sample_inputs(f"{DEVICE}:0", dtype, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [sample for sample, _ in zip(made, range(SAMPLES), strict=False)]


def call(info, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return info.op(sample.input, *sample.args, **sample.kwargs)


def differentiate(info, sample):
    result = sample.output_process_fn_grad(call(info, sample))
    outputs = [each for each in _tensors(result) if each.requires_grad]
    inputs = [
        each for each in _tensors((sample.input, sample.args, sample.kwargs)) if each.requires_grad
    ]
    if outputs and inputs:
        ones = [torch.ones_like(each) for each in outputs]
        torch.autograd.grad(outputs, inputs, ones, allow_unused=True)


def _tensors(value):
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def has_elements(sample):
    tensors = _tensors((sample.input, sample.args, sample.kwargs))
    return all(tensor.numel() > 0 for tensor in tensors)


def runs(work, info, samples):
    for sample in samples:
        try:
            work(info, sample)
        except Exception as error:
            return f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def is_differentiable(info, dtype):
    wanted = dtype in (info.backward_dtypesIfCUDA or ())
    return info.supports_autograd and wanted and (dtype.is_floating_point or dtype.is_complex)


def what_fails(info):
    """Return the supported (operator, dtype) pairs that fail, by use of gradients, and why."""
    for dtype in sorted(info.dtypesIfCUDA, key=str):
        said = runs(call, info, first_samples(info, dtype))
        if said is not None:
            yield f"{info.full_name} {name_of(dtype)}", said
        elif is_differentiable(info, dtype):
            samples = first_samples(info, dtype, requires_grad=True)
            said = runs(differentiate, info, samples)
            if said is not None:
                yield f"gradient of {info.full_name} {name_of(dtype)}", said


def what_runs(info):
    """Return the pairs that run although CUDA lacks them and only the CPU supports them."""
    on_cuda = set(info.dtypesIfCUDA)
    if torch.float16 in on_cuda:
        on_cuda.add(torch.bfloat16)  # the database omits it if there is no GPU
    for dtype in sorted(set(info.dtypes) - on_cuda, key=str):
        samples = [sample for sample in first_samples(info, dtype) if has_elements(sample)]
        if any(runs(call, info, [sample]) is None for sample in samples):
            yield f"{info.full_name} {name_of(dtype)}"


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # Samples seed all accelerators, and an absent one stores a traceback of the call for later.
    torch.mtia.manual_seed_all = torch.xpu.manual_seed_all = lambda seed: None
    failing, misplaced = {}, []
    # Those of jiterator are compiled for each dtype; cuda/test_jiterator.py tests them.
    operators = [info for info in op_db if not info.name.startswith("jiterator")]
    for info in operators:
        before = torch_openreg._C._misplaced_allocations()
        failing.update(what_fails(info))
        if torch_openreg._C._misplaced_allocations() > before:
            misplaced.append(info.full_name)
    running = [pair for info in operators for pair in what_runs(info)]
    report = {"failing": failing, "running": running, "misplaced": misplaced}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
