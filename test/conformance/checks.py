"""The checks: for each its kind of subject, its dtypes, and the function that yields its cases."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import (
    batched,
    catalogue,
    errors,
    gradients,
    graphs,
    layouts,
    modules,
    operators,
    optimizers,
    views,
    writing,
)


class Check(NamedTuple):
    name: str
    kind: str
    dtypes: Callable[[Any], list[torch.dtype]]
    cases: Callable[[Any, torch.dtype], Any]


def _only_float32(info):
    return [torch.float32]


CHECKS = {
    check.name: check
    for check in (
        Check("forward", "operator", catalogue.all_dtypes, operators.forward),
        Check("layouts", "operator", catalogue.layout_dtypes, operators.layouts),
        Check("variants", "operator", catalogue.main_dtype, operators.variants),
        Check("in_place", "operator", catalogue.all_dtypes, writing.in_place),
        Check("out", "operator", catalogue.all_dtypes, writing.out),
        Check("views", "operator", catalogue.layout_dtypes, views.views),
        Check("errors", "operator", catalogue.main_dtype, errors.errors),
        Check("gradients", "operator", catalogue.gradient_dtypes, gradients.gradients),
        Check(
            "in_place_gradients", "operator", catalogue.double_dtypes, gradients.in_place_gradients
        ),
        Check("second_gradients", "operator", catalogue.double_dtypes, gradients.second_gradients),
        Check(
            "threaded_gradients", "operator", catalogue.double_dtypes, gradients.threaded_gradients
        ),
        Check(
            "forward_gradients", "operator", catalogue.double_dtypes, gradients.forward_gradients
        ),
        Check("vmap", "operator", catalogue.main_dtype, batched.batched),
        Check("graphs", "operator", catalogue.graph_dtypes, graphs.graphs),
        Check("sparse", "operator", catalogue.sparse_dtypes, layouts.sparse),
        Check("sparse_gradients", "operator", catalogue.double_dtypes, layouts.sparse_gradients),
        Check("nested", "operator", layouts.nested_dtypes, layouts.nested),
        Check("nested_gradients", "operator", layouts.nested_dtypes, layouts.nested_gradients),
        Check("module_forward", "module", catalogue.all_dtypes, modules.module_forward),
        Check("module_gradients", "module", catalogue.all_dtypes, modules.module_gradients),
        Check("module_moving", "module", _only_float32, modules.module_moving),
        Check("module_building", "module", _only_float32, modules.module_building),
        Check("module_errors", "module", _only_float32, modules.module_errors),
        Check("optimizers", "optimizer", optimizers.optimizer_dtypes, optimizers.optimizers),
        Check(
            "sparse_optimizers",
            "optimizer",
            _only_float32,
            optimizers.optimizers_of_sparse_gradients,
        ),
        Check("schedulers", "optimizer", _only_float32, optimizers.optimizers_with_schedulers),
        Check("capturable", "optimizer", _only_float32, optimizers.capturable_optimizers),
        Check("optimizer_errors", "optimizer", _only_float32, optimizers.optimizer_errors),
    )
}
