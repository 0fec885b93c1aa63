"""PyTorch's machinery for device tests, used like the author of an operator uses it.

`instantiate_device_type_tests` turns each generic class below into a test class for the device. The
decorators add devices, dtypes, operators, modules and optimizers. The assertions are those of
PyTorch's own tests that use this machinery. `test/conformance` compares everything with the CPU.
"""

import copy

import torch
from torch.testing import make_tensor
from torch.testing._internal import common_device_type
from torch.testing._internal.common_device_type import (
    CUDATestBase,
    OpDTypes,
    PrivateUse1TestBase,
    deviceCountAtLeast,
    dtypes,
    dtypesIfCUDA,
    dtypesIfPRIVATEUSE1,
    expectedFailureMPS,
    instantiate_device_type_tests,
    onlyCPU,
    onlyCUDA,
    onlyCUDAAndPRIVATEUSE1,
    onlyPRIVATEUSE1,
    ops,
    skipCUDAIf,
    skipPRIVATEUSE1,
)
from torch.testing._internal.common_methods_invocations import (
    binary_ufuncs,
    op_db,
    reduction_ops,
    unary_ufuncs,
)
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase, gradcheck, parametrize
from torch.utils._pytree import tree_map_only

from device import DEVICE, module

# It exists since 2.13.
only_accelerator = getattr(common_device_type, "onlyAccelerator", lambda test: test)

# The machinery's names for the device type.
if DEVICE == "cuda":
    Base, only_here, dtypes_here = CUDATestBase, onlyCUDA, dtypesIfCUDA
    skip_here = skipCUDAIf(True, "a test that skips this backend")
else:
    Base, only_here, dtypes_here = PrivateUse1TestBase, onlyPRIVATEUSE1, dtypesIfPRIVATEUSE1
    skip_here = skipPRIVATEUSE1

# A sample of each database. The conformance runner covers the rest.
FEW_OPERATORS = [
    op
    for op in op_db
    if op.full_name
    in {
        "add",
        "cat",
        "fft.rfft",
        "gather",
        "index_put",
        "linalg.qr",
        "matmul",
        "nn.functional.conv2d",
        "nn.functional.gelu",
        "nn.functional.layer_norm",
        "sort",
        "view",
    }
]
FEW_MODULES = [
    each
    for each in module_db
    if each.name in {"nn.BatchNorm2d", "nn.Conv2d", "nn.Embedding", "nn.Linear", "nn.LSTMCell"}
]
FEW_OPTIMIZERS = [optim for optim in optim_db if optim.name in {"Adam", "AdamW", "RMSprop", "SGD"}]


def to_cpu(value):
    return tree_map_only(torch.Tensor, torch.Tensor.cpu, value)


def train(device, optim_info, kwargs):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 4, generator=generator).to(device).requires_grad_()
    rows = torch.randn(5, 4, generator=generator).to(device)
    optimizer = optim_info.optim_cls([weight], **copy.deepcopy(kwargs))
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.linear(rows, weight).square().sum().backward()
        optimizer.step()
    return weight.detach()


class TestMachinery(TestCase):
    """What the machinery promises a backend."""

    def test_base_class_and_primary_device(self, device):
        self.assertIsInstance(self, Base)
        self.assertEqual(self.device_type, DEVICE)
        self.assertEqual(device, f"{DEVICE}:0")
        if DEVICE != "cuda":
            self.assertIs(self.device_mod, module)

    @only_here
    def test_only_this_backend_runs_here(self, device):
        self.assertEqual(torch.ones(2, device=device).device, torch.device(device))

    @only_accelerator
    def test_a_device_is_an_accelerator(self, device):
        self.assertEqual(torch.accelerator.current_accelerator().type, torch.device(device).type)

    @onlyCUDAAndPRIVATEUSE1
    def test_tests_shared_with_cuda_run_here(self, device):
        self.assertEqual(torch.zeros((), device=device).item(), 0)

    @onlyCPU
    def test_only_cpu_is_skipped(self, device):
        self.fail("a test for the CPU ran on a device")

    @skip_here
    def test_decorators_can_skip_this_backend(self, device):
        self.fail("a test that skips this backend ran on it")

    @expectedFailureMPS
    def test_failures_expected_on_other_devices_are_not_expected(self, device):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

    @deviceCountAtLeast(2)
    def test_several_devices_are_passed(self, devices):
        self.assertEqual(devices, [f"{DEVICE}:{i}" for i in range(len(devices))])
        tensors = [torch.full((2,), i, device=device) for i, device in enumerate(devices)]
        self.assertEqual([tensor.get_device() for tensor in tensors], list(range(len(devices))))

    @dtypes(torch.float32, torch.complex64, torch.int64, torch.bool)
    def test_dtypes_are_filled_in(self, device, dtype):
        tensor = make_tensor((3, 4), device=device, dtype=dtype)
        self.assertEqual((tensor.dtype, tensor.device), (dtype, torch.device(device)))
        self.assertEqual(tensor, tensor.cpu().to(device))

    @dtypes(torch.float32)
    @dtypes_here(torch.float64)
    def test_dtypes_of_this_backend_are_preferred(self, device, dtype):
        self.assertEqual(dtype, torch.float64)

    @parametrize("keepdim", [False, True])
    @dtypes(torch.float32)
    def test_parameters_are_filled_in(self, device, dtype, keepdim):
        tensor = make_tensor((3, 4), device=device, dtype=dtype)
        self.assertEqual(tensor.sum(1, keepdim=keepdim).dim(), 2 if keepdim else 1)

    def test_tensors_on_different_devices_are_not_equal(self, device):
        tensor = torch.ones(2, device=device)
        with self.assertRaisesRegex(AssertionError, "device"):
            self.assertEqual(tensor, tensor.cpu(), exact_device=True)


class TestOperators(TestCase):
    @ops(FEW_OPERATORS, dtypes=OpDTypes.any_common_cpu_cuda_one)
    def test_samples_made_on_the_device_agree_with_the_cpu(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            host = sample.transform(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x)
            actual = op(sample.input, *sample.args, **sample.kwargs)
            expected = op(host.input, *host.args, **host.kwargs)
            self.assertEqual(to_cpu(actual), expected)

    @ops(FEW_OPERATORS, allowed_dtypes=(torch.float64,))
    def test_gradients_agree_with_finite_differences(self, device, dtype, op):
        if not op.supports_autograd:
            self.skipTest("not differentiable")
        samples = list(op.sample_inputs(device, dtype, requires_grad=True))
        for sample in samples[:2]:

            def function(first, sample=sample):
                return sample.output_process_fn_grad(op(first, *sample.args, **sample.kwargs))

            if isinstance(sample.input, torch.Tensor) and sample.input.numel() <= 200:
                self.assertTrue(gradcheck(function, sample.input, fast_mode=True))

    @ops([op for op in unary_ufuncs if op.name in {"abs", "exp", "sigmoid"}])
    def test_unary_operators_agree_with_numpy(self, device, dtype, op):
        if dtype is torch.complex32:
            self.skipTest("NumPy has no complex32")
        for sample in op.sample_inputs(device, dtype):
            actual = op(sample.input, *sample.args, **sample.kwargs)
            self.compare_with_reference(actual, op.ref(sample.numpy().input))

    @ops(
        [op for op in binary_ufuncs if op.full_name in {"add", "maximum", "mul"}],
        allowed_dtypes=(torch.float32, torch.int64),
    )
    def test_operators_write_into_out(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            expected = op(sample.input, *sample.args, **sample.kwargs)
            out = torch.full_like(expected, 7)
            address = out.data_ptr()
            result = op(sample.input, *sample.args, **sample.kwargs, out=out)
            self.assertIs(result, out)
            self.assertEqual((out.data_ptr(), out), (address, expected))

    @ops([op for op in reduction_ops if op.full_name in {"amax", "sum"}], dtypes=OpDTypes.supported)
    def test_reductions_of_empty_slices_keep_their_shape(self, device, dtype, op):
        empty = make_tensor((0, 3), device=device, dtype=dtype)
        self.assertEqual(op(empty, dim=1).shape, (0,))

    @ops([op for op in op_db if op.name in {"cat", "gather", "narrow"}], dtypes=OpDTypes.none)
    def test_expected_errors_are_raised(self, device, op):
        errors = list(op.error_inputs(device))
        self.assertTrue(errors)
        for error in errors:
            sample = error.sample_input
            with self.assertRaisesRegex(error.error_type, error.error_regex):
                op(sample.input, *sample.args, **sample.kwargs)

    def compare_with_reference(self, actual, reference):
        expected = torch.as_tensor(reference).to(actual.dtype)
        self.assertEqual(actual.cpu(), expected, rtol=2e-2, atol=1e-2)


class TestModules(TestCase):
    @modules(FEW_MODULES, allowed_dtypes=(torch.float32,))
    def test_modules_agree_with_the_cpu(self, device, dtype, module_info, training):
        inputs = module_info.module_inputs_func(
            module_info, device="cpu", dtype=dtype, requires_grad=False, training=training
        )
        for each in inputs:
            made = each.constructor_input
            host = module_info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            there = copy.deepcopy(host).to(device)
            given = each.forward_input
            moved = tree_map_only(torch.Tensor, lambda t: t.to(device), (given.args, given.kwargs))
            expected = host(*given.args, **given.kwargs)
            actual = there(*moved[0], **moved[1])
            self.assertEqual(to_cpu(actual), expected)
            self.assertEqual(to_cpu(dict(there.state_dict())), dict(host.state_dict()))


class TestOptimizers(TestCase):
    @optims(FEW_OPTIMIZERS, dtypes=[torch.float32])
    def test_every_implementation_agrees_with_the_cpu(self, device, dtype, optim_info):
        for each in optim_info.optim_inputs_func(device="cpu"):
            expected = train("cpu", optim_info, each.kwargs)
            ways = [{}, {"foreach": False}]
            if not isinstance(
                each.kwargs.get("lr"), torch.Tensor
            ):  # foreach implementations take numbers only
                ways.append({"foreach": True})
            if "fused" in optim_info.supported_impls:
                ways.append({"fused": True})
            for way in ways:
                actual = train(device, optim_info, each.kwargs | way)
                self.assertEqual(to_cpu(actual), expected)


# PyTorch learns a backend's name when it sets up the first class that needs a device, and it makes
# the tests of a class in the order of a set. Without this, the dtypes of a test would be random.
Base.setUpClass()
for generic in (TestMachinery, TestOperators, TestModules, TestOptimizers):
    instantiate_device_type_tests(generic, globals(), only_for=DEVICE)
