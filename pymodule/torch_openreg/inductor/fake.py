"""What operators do with fake tensors, while a program is traced.

- Convolutions: PyTorch chooses the layout by the convolution backend of the device type, and
  expects contiguous results from out-of-tree backends. The kernels here are the CPU's, whose
  results may be in the channels-last format.
- The attention operator for backends: PyTorch does not know which kernel a backend chooses.
- LSTM: a layer is one oneDNN kernel here. It returns no workspace if it keeps nothing for backward,
  and a graph with a derivative cannot express this. With gradients an LSTM is traced step by step,
  as for CUDA.
- Some random operators, and the gradients of packed attention: CUDA's results are contiguous.
  PyTorch expects the layout of an argument.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torch_openreg import _C

aten = torch.ops.aten

_CONVOLUTIONS = (
    aten.convolution.default,
    aten._convolution.default,
    aten.convolution_backward.default,
)
_CONTIGUOUS = (
    aten.poisson.default,
    aten.binomial.default,
    aten._standard_gamma.default,
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
    aten.rrelu_with_noise.default,
    aten._efficient_attention_backward.default,
)


def install(device_type: str) -> None:
    """Register the results of a device's operators, and how to trace an LSTM."""
    known = fake_impls.op_implementations_dict
    for operator in _CONVOLUTIONS:
        # PyTorch 2.12 has no implementation of its own for `_convolution`.
        if theirs := known.get(operator):
            known[operator] = _as_cpu(device_type, theirs)
    for operator in _CONTIGUOUS:
        known.setdefault(operator, functools.partial(_with_dense_arguments, device_type))
    if device_type != "cuda":
        known[aten._scaled_dot_product_fused_attention_overrideable.default] = _attention
        known[aten._scaled_dot_product_fused_attention_overrideable_backward.default] = (
            _attention_backward
        )
    _trace_lstm(device_type)


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, FakeTensor)]
    devices = {each.fake_device for each in tensors}
    return devices.pop() if len(devices) == 1 else None


def _as_cpu(device_type: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def implementation(fake_mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> Any:
        device = _device_of(args, kwargs)
        if device is None or device.type != device_type:
            return theirs(fake_mode, func, *args, **kwargs)

        def moved(value: Any, to: torch.device) -> Any:
            return value.to(to) if isinstance(value, FakeTensor) else value

        host = torch.device("cpu")
        with fake_mode:
            on_host = [moved(each, host) for each in args]
            named = {name: moved(each, host) for name, each in kwargs.items()}
        results = theirs(fake_mode, func, *on_host, **named)
        with fake_mode:
            if isinstance(results, tuple):
                return tuple(moved(each, device) for each in results)
            return moved(results, device)

    return implementation


def _with_dense_arguments(
    device_type: str, fake_mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any
) -> Any:
    first = next(each for each in args if isinstance(each, FakeTensor))
    if first.fake_device.type != device_type:
        return NotImplemented  # PyTorch goes on with its own function
    with fake_mode:
        dense = [each.contiguous() if isinstance(each, FakeTensor) else each for each in args]
        if all(each is given for each, given in zip(dense, args, strict=True)):
            return NotImplemented
        return func(*dense, **kwargs)


# ---- attention ----------------------------------------------------------------------------------


def _full_bias(bias: Any, query: Any, key: Any) -> Any:
    return None if bias is None else bias.expand(*query.shape[:3], key.shape[2])


def _attention(
    fake_mode: FakeTensorMode,
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    lengths = (query.shape[2], key.shape[2])
    with fake_mode:
        if _C.takes_flash_attention(query, key, value, attn_bias, dropout_p, is_causal):
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale
            )
        output, logsumexp, seed, offset = aten._scaled_dot_product_efficient_attention(
            query,
            key,
            value,
            _full_bias(attn_bias, query, key),
            True,
            dropout_p,
            is_causal,
            scale=scale,
        )
        return output, logsumexp, None, None, *lengths, seed, offset, None


def _attention_backward(
    fake_mode: FakeTensorMode,
    func: Any,
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    grad_input_mask: list[bool],
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Any,
    philox_offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    with fake_mode:
        if _C.takes_flash_attention(query, key, value, attn_bias, dropout_p, is_causal):
            return *(torch.empty_like(each) for each in (query, key, value)), None
        *gradients, of_bias = aten._scaled_dot_product_efficient_attention_backward(
            gradient,
            query,
            key,
            value,
            _full_bias(attn_bias, query, key),
            out,
            logsumexp,
            philox_seed,
            philox_offset,
            dropout_p,
            grad_input_mask,
            is_causal,
            scale=scale,
        )
        return *gradients, None if of_bias is None else of_bias.sum_to_size(attn_bias.shape)


# ---- LSTM ---------------------------------------------------------------------------------------


def _trace_lstm(device_type: str) -> None:
    from torch._decomp.decompositions import lstm_impl

    key = getattr(DispatchKey, "AutogradCUDA" if device_type == "cuda" else "AutogradPrivateUse1")
    operator = aten.lstm.input

    # Only tracers dispatch to Python's implementation.
    @operator.py_impl(key)
    def lstm(
        input: torch.Tensor, hx: list[torch.Tensor], params: list[torch.Tensor], *options: Any
    ) -> Any:
        needs_gradients = any(each.requires_grad for each in (input, *hx, *params))
        if torch.is_grad_enabled() and needs_gradients:
            return lstm_impl(input, hx, params, *options)
        return operator._op_dk(key, input, hx, params, *options)
