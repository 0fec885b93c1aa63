"""Custom operators, whose kernels can write outside of their tensors."""

import ctypes

import torch

LIBRARY = torch.library.Library("openreg_corpus", "FRAGMENT")


def _fill(address, count, value):
    (ctypes.c_float * count).from_address(address)[:] = [value] * count


def _define(schema, kernel):
    name = schema.partition("(")[0]
    if not hasattr(torch.ops.openreg_corpus, name):
        LIBRARY.define(schema)
        LIBRARY.impl(name, kernel, "CPU")


def _fill_(x, value, before, behind):
    _fill(x.data_ptr() - 4 * before, before + x.numel() + behind, value)


def _filled(x, value, before, behind):
    result = torch.empty_like(x)
    _fill_(result, value, before, behind)
    return result


def _fill_second(x, y, value, behind):
    temporary = torch.empty(100)
    _fill_(temporary, value, 0, 0)
    _fill_(y, value, 0, behind)


_define("fill_(Tensor(a!) x, float value, int before, int behind) -> ()", _fill_)
_define("filled(Tensor x, float value, int before, int behind) -> Tensor", _filled)
_define("fill_second(Tensor x, Tensor(a!) y, float value, int behind) -> ()", _fill_second)

# These write the elements of a tensor, and `before` and `behind` elements around it.
fill_ = torch.ops.openreg_corpus.fill_
filled = torch.ops.openreg_corpus.filled
fill_second = torch.ops.openreg_corpus.fill_second
