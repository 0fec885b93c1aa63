// PyTorch kernels that the bridge calls by their C++ names, because dispatching costs as much as
// they do, or would lead back to the bridge. PyTorch generates names and signatures from
// native_functions.yaml.
#pragma once

#include <ATen/ops/_conj_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_neg_view_native.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_unsafe_view_native.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/channel_shuffle_native.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/detach_native.h>
#include <ATen/ops/diagonal_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/expand_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/native_dropout_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/slice_native.h>
#include <ATen/ops/squeeze_native.h>
#include <ATen/ops/t_native.h>
#include <ATen/ops/transpose_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

namespace openreg::native {

// views
using at::native::_conj;
using at::native::_neg_view;
using at::native::_reshape_alias;
using at::native::_unsafe_view;
using at::native::alias;
using at::native::as_strided_tensorimpl;
using at::native::detach;
using at::native::diagonal;
using at::native::expand;
using at::native::permute;
using at::native::select_symint;
using at::native::slice;
using at::native::squeeze;
using at::native::t;
using at::native::transpose;
using at::native::unfold;
using at::native::unsqueeze;
using at::native::view;
using at::native::view_as_complex;
using at::native::view_as_real;
using at::native::view_dtype;

// nested tensors
using at::native::_nested_tensor_size;
using at::native::_nested_tensor_storage_offsets;
using at::native::_nested_tensor_strides;
using at::native::_nested_view_from_buffer;
using at::native::_to_copy_nested;
using at::native::copy_nested_;
using at::native::empty_like_nested;
using at::native::native_dropout_nested;
using at::native::nested_from_padded_generic;
using at::native::normal_nested_;

// quantized tensors
using at::native::empty_like_quantized;
using at::native::empty_per_channel_affine_quantized;
using at::native::empty_quantized;

// kernels that openreg's kernels wrap
using at::native::abs;
using at::native::abs_;
using at::native::abs_out;
using at::native::channel_shuffle;
using at::native::convolution;
using at::native::foreach_tensor_add_tensor_kernel_slow;
using at::native::foreach_tensor_add_tensor_kernel_slow_;
using at::native::lstm;
using at::native::math_channel_shuffle;
using at::native::math_pixel_shuffle;
using at::native::math_pixel_unshuffle;

} // namespace openreg::native
