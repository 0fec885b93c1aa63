"""All names of torch.cuda and torch._C that programs and PyTorch's own files use.

One table lists the names that are missing, with the reasons.
"""

import importlib
import pathlib
import pkgutil
import re
import warnings

import pytest
import torch

FOLDER = pathlib.Path(torch.__file__).parent
STUBS = FOLDER / "_C/__init__.pyi"

CUDNN = "missing: PyTorch first checks `torch._C._has_cudnn`, which is False"
MISSPELT = "misspelt in the stubs: no build of PyTorch has it"

ABSENT = {
    "_cudnn": CUDNN,
    "_cuda_tunableop_get_rotation_buffer_size": MISSPELT,
}

# Prefixes of CUDA's names in `torch._C`.
PREFIXES = r"_cuda_|_Cuda|_CUDA|_cudart|_nvtx|_cudnn|_nccl_|_gds_|_MemPool|_graph_pool_handle"
PREFIXES += r"|_broadcast|_scatter|_gather"


def names_of_stubs():
    """Return the names of `torch._C` with CUDA, from PyTorch's stubs."""
    return set(re.findall(rf"^(?:def |class )?((?:{PREFIXES})\w*)\b", STUBS.read_text(), re.M))


def names_in_sources(folder, pattern):
    """Return the names of `torch._C` that PyTorch's own files use."""
    return {
        name
        for file in sorted(folder.rglob("*.py"))
        if "testing" not in file.parts
        for name in re.findall(rf"\btorch\._C\.({pattern})", file.read_text(errors="ignore"))
    }


def modules():
    """Return the names in torch.cuda and in all its submodules."""
    found = pkgutil.walk_packages(torch.cuda.__path__, "torch.cuda.")
    return ["torch.cuda", *sorted(module.name for module in found)]


def absent(names):
    return {name for name in names if not hasattr(torch._C, name)}


def test_names_of_the_stubs_are_there():
    names = names_of_stubs()
    assert len(names) > 100  # the search works
    assert absent(names) <= set(ABSENT)


def test_names_that_torch_cuda_takes_are_there():
    names = names_in_sources(FOLDER / "cuda", r"\w+")
    assert len(names) > 80
    assert absent(names) <= set(ABSENT)


def test_names_that_all_of_pytorch_takes_are_there():
    names = names_in_sources(FOLDER, rf"(?:{PREFIXES})\w*")
    assert len(names) > 100
    assert absent(names) <= set(ABSENT)


def test_table_lists_only_missing_names():
    assert absent(ABSENT) == set(ABSENT)


@pytest.mark.parametrize("name", modules())
def test_module_is_whole(name):
    """Each name exists, and none is the placeholder of a PyTorch without CUDA."""
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = {attribute: getattr(module, attribute) for attribute in dir(module)}
    assert set(getattr(module, "__all__", ())) <= set(values)
    stand_ins = [
        attribute
        for attribute, value in values.items()
        if isinstance(value, type) and _stands_in(value)
    ]
    assert stand_ins == []


def _stands_in(cls):
    """Return whether a class is a `torch._utils._dummy_type` or inherits from one."""
    makers = [vars(base).get("__init__") for base in cls.__mro__]
    return any("_dummy_type" in getattr(maker, "__qualname__", "") for maker in makers)


def test_stand_ins_are_known():
    assert _stands_in(torch._utils._dummy_type("Anything"))


def test_unsupported_functions_raise():
    with pytest.raises(NotImplementedError, match="torch.cuda.GreenContext: openreg cannot divide"):
        torch.cuda.GreenContext.create(num_sms=2)
    with pytest.raises(RuntimeError, match="not supported on this platform|nvidia-fs"):
        torch.cuda.gds.gds_register_buffer(torch.UntypedStorage(4, device="cuda"))


def test_compiling_a_kernel_is_refused():
    with pytest.raises(NotImplementedError, match="openreg cannot compile CUDA kernels"):
        torch.cuda._compile_kernel("__global__ void f() {}", "f")
