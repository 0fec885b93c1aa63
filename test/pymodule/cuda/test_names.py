"""Every name that programs and PyTorch's own files take from torch.cuda and from torch._C.

What is not there stands in one table, with the reason.
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

CUDNN = "cuDNN, of which PyTorch asks `torch._C._has_cudnn` first: it is not there"
MISSPELT = "misspelt in the stubs: no build of PyTorch has it"

ABSENT = {
    "_cudnn": CUDNN,
    "_cuda_tunableop_get_rotation_buffer_size": MISSPELT,
}

# What names of CUDA's begin with, in `torch._C`.
PREFIXES = r"_cuda_|_Cuda|_CUDA|_cudart|_nvtx|_cudnn|_nccl_|_gds_|_MemPool|_graph_pool_handle"
PREFIXES += r"|_broadcast|_scatter|_gather"


def names_of_stubs():
    """The names that PyTorch says that `torch._C` has, with CUDA."""
    return set(re.findall(rf"^(?:def |class )?((?:{PREFIXES})\w*)\b", STUBS.read_text(), re.M))


def names_in_sources(folder, pattern):
    """The names that PyTorch's own files take from `torch._C`."""
    return {
        name
        for file in sorted(folder.rglob("*.py"))
        if "testing" not in file.parts
        for name in re.findall(rf"\btorch\._C\.({pattern})", file.read_text(errors="ignore"))
    }


def modules():
    """The names of torch.cuda and of all modules below it."""
    found = pkgutil.walk_packages(torch.cuda.__path__, "torch.cuda.")
    return ["torch.cuda", *sorted(module.name for module in found)]


def absent(names):
    return {name for name in names if not hasattr(torch._C, name)}


def test_names_of_the_stubs_are_there():
    names = names_of_stubs()
    assert len(names) > 100  # they were found
    assert absent(names) <= set(ABSENT)


def test_names_that_torch_cuda_takes_are_there():
    names = names_in_sources(FOLDER / "cuda", r"\w+")
    assert len(names) > 80
    assert absent(names) <= set(ABSENT)


def test_names_that_all_of_pytorch_takes_are_there():
    names = names_in_sources(FOLDER, rf"(?:{PREFIXES})\w*")
    assert len(names) > 100
    assert absent(names) <= set(ABSENT)


def test_table_lists_only_what_is_absent():
    assert absent(ABSENT) == set(ABSENT)


@pytest.mark.parametrize("name", modules())
def test_module_is_whole(name):
    """Each name can be had, and none is what a build without CUDA has in its place."""
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
    """Whether a class is one of `torch._utils._dummy_type`, or made from one."""
    makers = [vars(base).get("__init__") for base in cls.__mro__]
    return any("_dummy_type" in getattr(maker, "__qualname__", "") for maker in makers)


def test_stand_ins_are_known():
    assert _stands_in(torch._utils._dummy_type("Anything"))


def test_what_cannot_be_says_so():
    with pytest.raises(NotImplementedError, match="torch.cuda.GreenContext: openreg's devices"):
        torch.cuda.GreenContext.create(num_sms=2)
    with pytest.raises(RuntimeError, match="not supported on this platform"):
        torch.cuda.gds.gds_register_buffer(torch.UntypedStorage(4, device="cuda"))
