"""Tensors that are not strided: sparse in five layouts, and nested."""

import functools

import torch
from torch.testing._internal.opinfo.definitions.nested import njt_op_db

from .calls import calling, case
from .catalogue import in_order, none_if_skipped
from .gradients import gradients_of

_SPARSE = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)


def _sparse_samples(info, dtype, requires_grad):
    for layout in _SPARSE:
        if info.supports_sparse_layout(layout):
            make = functools.partial(
                info.sample_inputs_sparse, layout, "cpu", dtype, requires_grad=requires_grad
            )
            for sample in none_if_skipped(make):
                yield str(layout).removeprefix("torch."), sample


def sparse(subject, dtype):
    for layout, sample in _sparse_samples(subject.info, dtype, requires_grad=False):
        yield case(subject, f"{subject.name}, {layout}", sample, calling(subject.info.op))


def sparse_gradients(subject, dtype):
    for layout, sample in _sparse_samples(subject.info, dtype, requires_grad=True):
        call = gradients_of(subject.info.op, sample.output_process_fn_grad)
        yield case(subject, f"gradients of {subject.name}, {layout}", sample, call)


@functools.lru_cache(maxsize=1)
def _nested_infos():
    return {info.full_name: info for info in njt_op_db if info.supports_njt}


def nested_dtypes(info):
    nested = _nested_infos().get(info.full_name)
    supported = nested.supported_dtypes("cpu") if nested is not None else ()
    return in_order({torch.float32, torch.int64}.intersection(supported))


def _nested_samples(subject, dtype, requires_grad):
    info = _nested_infos()[subject.name]
    return none_if_skipped(lambda: info.sample_inputs("cpu", dtype, requires_grad=requires_grad))


def nested(subject, dtype):
    """Check jagged nested tensors."""
    for sample in _nested_samples(subject, dtype, requires_grad=False):
        yield case(subject, f"{subject.name}, {sample.name}", sample, calling(subject.info.op))


def nested_gradients(subject, dtype):
    if not subject.info.supports_autograd or not dtype.is_floating_point:
        return
    for sample in _nested_samples(subject, dtype, requires_grad=True):
        call = gradients_of(subject.info.op, sample.output_process_fn_grad)
        yield case(subject, f"gradients of {subject.name}, {sample.name}", sample, call)
