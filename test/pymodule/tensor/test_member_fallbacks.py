"""Operators that a program registers for sparse, quantized or nested CPU tensors run on a device.

The first use of the devices registers their fallbacks. So each check runs in its own process, whose
first operator on such a tensor is the program's.
"""

import pytest

from device import DEVICE

MAKE = {
    "SparseCPU": "x.to_sparse()",
    "SparseCsrCPU": "torch.sparse_csr_tensor(x.new_tensor([0, 1, 2]).long(),"
    " x.new_tensor([0, 1]).long(), x.new_tensor([1.0, 2.0]), (2, 2))",
    "QuantizedCPU": "torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)",
    "NestedTensorCPU": "torch.nested.as_nested_tensor([x, x])",
}


@pytest.mark.parametrize("key", MAKE)
def test_an_operator_of_a_program_runs_on_a_device(python, key):
    code = f"""
        import torch
        library = torch.library.Library("fallback_test", "DEF")
        library.define("same(Tensor x) -> Tensor")
        library.impl("same", lambda x: x, {key!r})
        x = torch.eye(2, device="{DEVICE}")
        kind = {MAKE[key]}
        with torch._C._AutoDispatchBelowAutograd():  # PyTorch has no autograd for nested ones
            result = torch.ops.fallback_test.same(kind)
        assert result.device == x.device and result.layout == kind.layout, result
        assert result.is_quantized == kind.is_quantized and result.is_nested == kind.is_nested
        """
    python(code)


def test_fallbacks_are_registered_at_the_first_use_of_the_devices(python):
    code = """
        import torch
        from device import KEY, module
        library = torch.library.Library("fallback_test", "DEF")
        library.define("same(Tensor x) -> Tensor")

        def keys():
            table = torch._C._dispatch_dump_table("fallback_test::same").splitlines()
            return {line.split(":")[0] for line in table if "boxed.cpp" in line}

        assert keys() == {KEY}, keys()
        module.init()
        kinds = ("", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
        assert keys() == {kind + KEY for kind in kinds}, keys()
        """
    python(code)
