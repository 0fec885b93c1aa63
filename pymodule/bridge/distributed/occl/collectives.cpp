// The collectives of ProcessGroupOccl: they check PyTorch's arguments and make a Request of them.

#include "distributed/occl/process_group_occl.h"

#include "compat/collective_arguments.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

// The tensor itself if it is contiguous in its memory format, or a copy.
at::Tensor as_contiguous(const at::Tensor &tensor) {
  return tensor.is_contiguous(tensor.suggest_memory_format()) ? tensor : tensor.contiguous();
}

} // namespace

ProcessGroupOccl::WorkPtr ProcessGroupOccl::broadcast(Tensors &tensors,
                                                      const c10d::BroadcastOptions &options) {
  const auto &tensor = single_tensor(tensors);
  check_tensor(tensor);
  const auto root = options.rootRank + options.rootTensor;
  check_rank("broadcast", root, size_);
  Request request{c10d::OpType::BROADCAST, "broadcast", nullptr, options.asyncOp,
                  options.timeout,         tensors,     tensors};
  auto &collective = request.add(OPENREG_COLLECTIVE_BROADCAST, dtype_of(tensor, true));
  collective.call.root = static_cast<int>(root);
  if (root == rank_) {
    collective.inputs = {input_buffer(tensor)};
  } else {
    collective.outputs = {output_buffer(tensor)};
  }
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::allreduce(Tensors &tensors,
                                                      const c10d::AllreduceOptions &options) {
  const auto &tensor = single_tensor(tensors);
  check_tensor(tensor);
  Request request{c10d::OpType::ALLREDUCE, "all_reduce", "allreduce", options.asyncOp,
                  options.timeout,         tensors,      tensors};
  auto &collective = request.add(OPENREG_COLLECTIVE_ALL_REDUCE, OPENREG_DTYPE_BYTES);
  set_reduction(collective, "all_reduce", tensor, options.reduceOp, true, request.kept);
  collective.inputs = collective.outputs = {output_buffer(tensor)};
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::allreduce_sparse(Tensors &,
                                                             const c10d::AllreduceOptions &) {
  TORCH_CHECK(false, backend_title(),
              " does not support all_reduce with sparse tensors. Please use dense tensors "
              "instead.");
}

ProcessGroupOccl::WorkPtr
ProcessGroupOccl::allreduce_coalesced(Tensors &tensors,
                                      const c10d::AllreduceCoalescedOptions &options) {
  check_same_device(tensors);
  Request request{c10d::OpType::COALESCED,
                  "allreduce_coalesced",
                  nullptr,
                  options.asyncOp,
                  options.timeout,
                  tensors,
                  tensors};
  for (const auto &tensor : tensors) {
    auto &collective = request.add(OPENREG_COLLECTIVE_ALL_REDUCE, OPENREG_DTYPE_BYTES);
    set_reduction(collective, "all_reduce", tensor, options.reduceOp, false, request.kept);
    collective.inputs = collective.outputs = {output_buffer(tensor)};
  }
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::reduce(Tensors &tensors,
                                                   const c10d::ReduceOptions &options) {
  const auto &tensor = single_tensor(tensors);
  check_tensor(tensor);
  const auto root = options.rootRank + options.rootTensor;
  check_rank("reduce", root, size_);
  Request request{c10d::OpType::REDUCE, "reduce", nullptr, options.asyncOp,
                  options.timeout,      tensors,  tensors};
  auto &collective = request.add(OPENREG_COLLECTIVE_REDUCE, OPENREG_DTYPE_BYTES);
  set_reduction(collective, "reduce", tensor, options.reduceOp, true, request.kept);
  collective.call.root = static_cast<int>(root);
  collective.inputs = {input_buffer(tensor)};
  if (root == rank_) {
    collective.outputs = {output_buffer(tensor)};
  }
  return submit(std::move(request));
}

// ---- gathering ----------------------------------------------------------------------------------

ProcessGroupOccl::WorkPtr ProcessGroupOccl::allgather(TensorLists &outputs, Tensors &inputs,
                                                      const c10d::AllgatherOptions &options) {
  const auto &input = single_tensor(inputs);
  check_tensor(input);
  const auto &list = single_list(outputs);
  check_list(list, input, size_);
  TORCH_CHECK_VALUE(list[rank_].numel() == input.numel(), "Output tensor ", rank_, " has ",
                    list[rank_].numel(), " elements, and the input of rank ", rank_, " has ",
                    input.numel());
  Request request{c10d::OpType::ALLGATHER, "all_gather", nullptr, options.asyncOp,
                  options.timeout,         inputs,       list};
  auto &collective = request.add(OPENREG_COLLECTIVE_ALL_GATHER, dtype_of(input));
  collective.inputs = {input_buffer(input)};
  for (const auto &output : list) {
    if (output.is_contiguous(output.suggest_memory_format())) {
      collective.outputs.push_back(output_buffer(output));
    } else {
      const auto &[to, from] =
          request.copies.emplace_back(output, at::empty_like(output, at::MemoryFormat::Contiguous));
      collective.outputs.push_back(output_buffer(from));
    }
  }
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                            const c10d::AllgatherOptions &options) {
  check_tensor(input);
  check_tensor(output);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(),
                   "output tensor must have the same type as input tensor");
  TORCH_CHECK_VALUE(input.numel() * size_ == output.numel(),
                    "output tensor size must be equal to world_size times input tensor size");
  TORCH_CHECK_VALUE(input.device() == output.device(),
                    "Expected list of tensors on the same device");
  Request request{c10d::OpType::_ALLGATHER_BASE,
                  "_all_gather_base",
                  "_allgather_base",
                  options.asyncOp,
                  options.timeout,
                  {input},
                  {output}};
  auto &collective = request.add(OPENREG_COLLECTIVE_ALL_GATHER, dtype_of(input));
  collective.inputs = {input_buffer(input)};
  collective.outputs = {output_buffer(output)};
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::allgather_coalesced(TensorLists &, Tensors &,
                                                                const c10d::AllgatherOptions &) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ProcessGroup", backend_title(),
                              " does not support allgather_coalesced");
}

ProcessGroupOccl::WorkPtr
ProcessGroupOccl::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                  const c10d::AllgatherOptions &options) {
  check_same_device(inputs);
  check_same_device(outputs);
  TORCH_CHECK_VALUE(inputs.size() == outputs.size(),
                    "requires input/output tensor lists to have the same length");
  Request request{c10d::OpType::COALESCED,
                  "all_gather_into_tensor_coalesced",
                  "allgather_into_tensor_coalesced",
                  options.asyncOp,
                  options.timeout,
                  inputs,
                  outputs};
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK_VALUE(inputs[i].numel() * size_ == outputs[i].numel(),
                      "output tensor size must be equal to world_size times input tensor size");
    auto &collective = request.add(OPENREG_COLLECTIVE_ALL_GATHER, dtype_of(inputs[i]));
    collective.inputs = {input_buffer(inputs[i])};
    collective.outputs = {output_buffer(outputs[i])};
  }
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::gather(TensorLists &outputs, Tensors &inputs,
                                                   const c10d::GatherOptions &options) {
  const auto refuse = [](const std::string &what) {
    TORCH_CHECK_VALUE(false, "ProcessGroup", backend_title(), "::gather: ", what);
  };
  c10d::assertRootRank(refuse, options.rootRank, size_);
  const auto &input = single_tensor(inputs);
  check_tensor(input);
  Request request{c10d::OpType::GATHER, "gather", nullptr, options.asyncOp,
                  options.timeout,      inputs,   {}};
  auto &collective = request.add(OPENREG_COLLECTIVE_GATHER, dtype_of(input));
  collective.call.root = static_cast<int>(options.rootRank);
  collective.inputs = {input_buffer(input)};
  if (rank_ == options.rootRank) {
    assertGatherOutputTensorList(refuse, outputs, size_);
    c10d::assertTypeAndSizesMatch(refuse, outputs[0], input.options(), input.sizes());
    request.outputs = outputs[0];
    for (const auto &output : outputs[0]) {
      check_tensor(output);
      collective.outputs.push_back(output_buffer(output));
    }
  } else {
    assertEmptyOutputTensorList(refuse, outputs);
  }
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::scatter(Tensors &outputs, TensorLists &inputs,
                                                    const c10d::ScatterOptions &options) {
  const auto refuse = [](const std::string &what) {
    TORCH_CHECK_VALUE(false, "ProcessGroup", backend_title(), "::scatter: ", what);
  };
  c10d::assertRootRank(refuse, options.rootRank, size_);
  const auto &output = single_tensor(outputs);
  check_tensor(output);
  Request request{c10d::OpType::SCATTER, "scatter", nullptr, options.asyncOp,
                  options.timeout,       {},        outputs};
  auto &collective = request.add(OPENREG_COLLECTIVE_SCATTER, dtype_of(output));
  collective.call.root = static_cast<int>(options.rootRank);
  collective.outputs = {output_buffer(output)};
  if (rank_ == options.rootRank) {
    assertScatterInputTensorList(refuse, inputs, size_);
    c10d::assertTypeAndSizesMatch(refuse, inputs[0], output.options(), output.sizes());
    request.inputs = inputs[0];
    for (const auto &input : inputs[0]) {
      check_tensor(input);
      collective.inputs.push_back(input_buffer(input));
    }
  } else {
    assertEmptyInputTensorList(refuse, inputs);
  }
  return submit(std::move(request));
}

// ---- reduce_scatter -----------------------------------------------------------------------------

ProcessGroupOccl::WorkPtr
ProcessGroupOccl::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                 const c10d::ReduceScatterOptions &options) {
  const auto &output = single_tensor(outputs);
  check_tensor(output);
  const auto &list = single_list(inputs);
  check_list(list, output, size_);
  TORCH_CHECK_VALUE(list[rank_].numel() == output.numel(), "Input tensor ", rank_, " has ",
                    list[rank_].numel(), " elements, and the output of rank ", rank_, " has ",
                    output.numel());
  Request request{c10d::OpType::REDUCE_SCATTER,
                  "reduce_scatter",
                  nullptr,
                  options.asyncOp,
                  options.timeout,
                  list,
                  outputs};
  auto &collective = request.add(OPENREG_COLLECTIVE_REDUCE_SCATTER, OPENREG_DTYPE_BYTES);
  set_reduction(collective, "reduce_scatter", output, options.reduceOp, false, request.kept);
  for (const auto &input : list) {
    request.kept.push_back(as_contiguous(input));
    collective.inputs.push_back(input_buffer(request.kept.back()));
  }
  collective.outputs = {output_buffer(output)};
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr
ProcessGroupOccl::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                       const c10d::ReduceScatterOptions &options) {
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(),
                   "input tensor must be the same type as the output tensor.");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size_,
                    "input tensor must be the same size as output size times world size");
  check_tensor(input);
  check_tensor(output);
  TORCH_CHECK_VALUE(input.device() == output.device(),
                    "Expected list of tensors on the same device");
  Request request{c10d::OpType::_REDUCE_SCATTER_BASE,
                  "_reduce_scatter_base",
                  nullptr,
                  options.asyncOp,
                  options.timeout,
                  {input},
                  {output}};
  auto &collective = request.add(OPENREG_COLLECTIVE_REDUCE_SCATTER, OPENREG_DTYPE_BYTES);
  set_reduction(collective, "reduce_scatter", output, options.reduceOp, false, request.kept);
  collective.inputs = {input_buffer(input)};
  collective.outputs = {output_buffer(output)};
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr
ProcessGroupOccl::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                  const c10d::ReduceScatterOptions &options) {
  check_same_device(inputs);
  check_same_device(outputs);
  TORCH_CHECK_VALUE(inputs.size() == outputs.size(),
                    "requires input/output tensor lists to have the same length");
  Request request{c10d::OpType::COALESCED,
                  "reduce_scatter_tensor_coalesced",
                  nullptr,
                  options.asyncOp,
                  options.timeout,
                  inputs,
                  outputs};
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_,
                      "input tensor must be the same size as output size times world size");
    auto &collective = request.add(OPENREG_COLLECTIVE_REDUCE_SCATTER, OPENREG_DTYPE_BYTES);
    set_reduction(collective, "reduce_scatter", outputs[i], options.reduceOp, false, request.kept);
    collective.inputs = {input_buffer(inputs[i])};
    collective.outputs = {output_buffer(outputs[i])};
  }
  return submit(std::move(request));
}

// ---- all to all ---------------------------------------------------------------------------------

ProcessGroupOccl::WorkPtr ProcessGroupOccl::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                          std::vector<int64_t> &output_rows,
                                                          std::vector<int64_t> &input_rows,
                                                          const c10d::AllToAllOptions &options) {
  check_tensor(output);
  check_tensor(input);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "Tensors must have identical type");
  TORCH_CHECK(input.device() == output.device(), "Tensors must be on the same device");
  c10d::checkSplitSizes(input_rows, input, size_);
  c10d::checkSplitSizes(output_rows, output, size_);
  Request request{c10d::OpType::ALLTOALL_BASE,
                  "all_to_all",
                  "all_to_allv",
                  options.asyncOp,
                  options.timeout,
                  {input},
                  {output}};
  auto &collective = request.add(OPENREG_COLLECTIVE_ALL_TO_ALL, dtype_of(input));
  collective.inputs = split_rows(input_buffer(input), input, input_rows, size_);
  collective.outputs = split_rows(output_buffer(output), output, output_rows, size_);
  request.input_rows = input_rows;
  request.output_rows = output_rows;
  return submit(std::move(request));
}

ProcessGroupOccl::WorkPtr ProcessGroupOccl::alltoall(Tensors &outputs, Tensors &inputs,
                                                     const c10d::AllToAllOptions &options) {
  TORCH_CHECK_VALUE(!outputs.empty(), "Tensor list must be nonempty");
  check_list(outputs, outputs[0], size_);
  check_list(inputs, outputs[0], size_);
  Request request{c10d::OpType::ALLTOALL, "all_to_all", nullptr, options.asyncOp,
                  options.timeout,        inputs,       outputs};
  auto &collective = request.add(OPENREG_COLLECTIVE_ALL_TO_ALL, dtype_of(outputs[0]));
  for (int rank = 0; rank < size_; ++rank) {
    check_tensor(inputs[rank]);
    check_tensor(outputs[rank]);
    collective.inputs.push_back(input_buffer(inputs[rank]));
    collective.outputs.push_back(output_buffer(outputs[rank]));
  }
  return submit(std::move(request));
}

// ---- barrier ------------------------------------------------------------------------------------

// A barrier is work on a stream, like all collectives: it runs behind what was queued before.
// Waiting for it blocks the host.
ProcessGroupOccl::WorkPtr ProcessGroupOccl::barrier(const c10d::BarrierOptions &options) {
  Request request{c10d::OpType::ALLREDUCE,
                  "all_reduce_barrier",
                  "barrier",
                  options.asyncOp,
                  options.timeout,
                  {},
                  {}};
  request.device = options.device_ids.empty()
                       ? guess_device()
                       : device_index(static_cast<int>(options.device_ids[0]));
  request.add(OPENREG_COLLECTIVE_BARRIER, OPENREG_DTYPE_BYTES);
  request.is_barrier = true;
  const auto device = request.device;
  auto work = submit(std::move(request));
  if (work == nullptr) {
    int stream = OPENREG_STREAM_DEFAULT;
    check(openreg_stream_current(device, &stream));
    wait_for_stream(device, stream);
  }
  return work;
}

} // namespace openreg
