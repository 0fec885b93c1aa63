"""Meta kernels of the operators in ``torch.ops.openreg``: what a result looks like, without values.

They serve ``torch.device("meta")`` and the fake tensors with which ``torch.compile`` traces. The
operators are defined in the extension, which this module therefore imports first.
"""

import torch
from torch import Tensor

from torch_openreg import _C  # noqa: F401 - defines the operators

# Registrations last as long as this object.
_library = torch.library.Library("openreg", "IMPL", "Meta")


def _absolute(input: Tensor) -> Tensor:
    """The absolute value of a complex number is real; the layout is the argument's."""
    return torch.empty_like(input, dtype=input.dtype.to_real())


def _returns_self(input: Tensor) -> Tensor:
    return input


def _aliasing(input: Tensor) -> Tensor:
    return input.view(input.shape)


_library.impl("custom_abs", _absolute)
_library.impl("custom_abs_differentiable", _absolute)
_library.impl("custom_abs_fallthrough", _absolute)
_library.impl("custom_autograd_fn_returns_self", _returns_self)
_library.impl("custom_autograd_fn_aliasing", _aliasing)
