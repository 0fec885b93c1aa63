"""Losses and their means.

Sources: ATen/native/Loss.cpp, and in ATen/native/cuda Loss.cu and NLLLoss2d.cu.
"""

from .call import REAL, Call, Tensor, check, plans
from .reduce import sum_up

NONE = 0  # a reduction; 1 is the mean, and 2 the sum


def _take_mean(call: Call, source: Tensor) -> None:
    """Take and free what the mean or the sum of everything takes."""
    sum_up(call, source, range(len(source.sizes)), source.dtype)


def _elements(self: Tensor, target: Tensor) -> Tensor:
    check(self.dtype == target.dtype and self.dtype in REAL, "a loss of two dtypes")
    check(self.sizes == target.sizes and self.numel > 0, "a loss of two sizes")
    check(self.is_contiguous and target.is_contiguous, "a strided loss")
    return self


@plans("mse_loss", "smooth_l1_loss")
def mse_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0
) -> None:
    """The result has the memory of all elements, which are computed in other memory."""
    loss = _elements(self, target)
    if reduction == NONE:
        call.result(self.dtype, self.sizes)
        return
    call.keep(call.take(loss.nbytes), self.dtype, ())
    elements = call.take(loss.nbytes)
    _take_mean(call, loss)
    call.free(elements)


@plans("huber_loss")
def huber_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0
) -> None:
    """The elements, and then their mean."""
    loss = _elements(self, target)
    if reduction == NONE:
        call.result(self.dtype, self.sizes)
        return
    elements = call.take(loss.nbytes)
    call.result(self.dtype, ())
    _take_mean(call, loss)
    call.free(elements)


@plans("binary_cross_entropy")
def binary_cross_entropy(
    call: Call, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> None:
    """The mean is copied into the memory of the elements."""
    loss = _elements(self, target)
    check(weight is None or weight.sizes == self.sizes, "a weight of another size")
    if reduction == NONE:
        call.result(self.dtype, self.sizes)
        return
    call.keep(call.take(loss.nbytes), self.dtype, ())
    mean = call.make(self.dtype)
    _take_mean(call, loss)
    call.free(mean)


@plans("soft_margin_loss")
def soft_margin_loss(call: Call, self: Tensor, target: Tensor, reduction: int = 1) -> None:
    """As binary cross entropy."""
    binary_cross_entropy(call, self, target, None, reduction)


@plans("nll_loss_forward")
def nll_loss(
    call: Call,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> None:
    """Copies of strided operands."""
    check(target.is_contiguous and (weight is None or weight.is_contiguous), "strided targets")
    is_elements = reduction == NONE and len(self.sizes) == 2
    call.result(self.dtype, self.sizes[:1] if is_elements else ())
    call.result(self.dtype, ())
    call.free(call.contiguous(self))


@plans("nll_loss2d_forward")
def nll_loss2d(
    call: Call,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> list[int]:
    """The total weight comes first."""
    check(target.is_contiguous and (weight is None or weight.is_contiguous), "strided targets")
    check(self.numel > 0, "an empty loss")
    call.result(self.dtype, ())
    call.result(self.dtype, target.sizes if reduction == NONE else ())
    if reduction != NONE:
        call.free(call.contiguous(self))
    return [1, 0]


@plans("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    call: Call,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> None:
    """Two tensors of all elements, and those of a weight of positive targets."""
    loss = _elements(self, target)
    check(weight is None or weight.sizes == self.sizes, "a weight of another size")
    first = call.take(loss.nbytes)
    if pos_weight is not None:
        check(pos_weight.dtype == self.dtype, "a weight of another dtype")
        factor = [call.take(pos_weight.nbytes), call.take(loss.nbytes)]
        call.free(*factor)
    if reduction == NONE:
        call.result(self.dtype, self.sizes)
        call.free(first)
        return
    elements = call.take(loss.nbytes)
    call.result(self.dtype, ())
    _take_mean(call, loss)
    call.free(elements, first)
