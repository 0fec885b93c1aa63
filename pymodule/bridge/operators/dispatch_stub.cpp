// abs through a DispatchStub: how a backend supplies only the inner loop of an operator.
//
// PyTorch's own `at::native::abs` does everything around the loop: it finds the result's dtype and
// shape, allocates or resizes it, checks for overlap, and hands a TensorIterator to the stub, which
// looks up the kernel of the iterator's device. Both parts are needed: the stub is reached only
// because the operators are registered for the device, too.
//
// The kernel here points the iterator at kernel addresses and lets the CPU's vectorised loop walk
// it, strided or not. What the iterator does for the CPU only must be done here: conversion, when
// `out` has another dtype than the computation.

#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/abs_native.h>
#include <torch/library.h>

#include "../launch.h"

namespace openreg {

namespace {

void abs_kernel(at::TensorIteratorBase &iterator) {
  LaunchDevice where("aten::abs", "out");
  where.see(iterator.tensor(1));
  where.see(iterator.tensor(0));
  where.index(); // raises what every launch raises
  const auto dtype = iterator.common_dtype();
  if (iterator.dtype(0) != dtype || iterator.dtype(1) != dtype) {
    iterator.tensor(0).copy_(at::abs(iterator.tensor(1).to(dtype)));
    return;
  }
  for (int i = 0; i < iterator.ntensors(); ++i) {
    iterator.unsafe_replace_operand(i, kernel_address(iterator.data_ptr(i)));
  }
  at::native::abs_stub(c10::kCPU, iterator);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("abs", &at::native::abs);
  library.impl("abs_", &at::native::abs_);
  library.impl("abs.out", &at::native::abs_out);
}

} // namespace openreg

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, &::openreg::abs_kernel)

} // namespace at::native
