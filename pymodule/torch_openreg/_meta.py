"""Meta kernels of the operators in ``torch.ops.openreg``: they compute shape, dtype and layout.

``torch.device("meta")`` and the fake tensors of ``torch.compile`` use them. The extension defines
the operators, so this module imports it first.
"""

import torch
from torch import Tensor

from torch_openreg import _C  # noqa: F401 - defines the operators

# Registrations last as long as this object.
_library = torch.library.Library("openreg", "IMPL", "Meta")


def _absolute(input: Tensor) -> Tensor:
    """The absolute value of a complex number is real. The layout is that of the argument."""
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
