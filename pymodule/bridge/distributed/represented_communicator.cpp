#include "distributed/represented_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>

#include "tensor/known_values.h"

namespace openreg {

namespace {

class RepresentedCommunicator final : public Communicator {
public:
  RepresentedCommunicator(int rank, int size)
      : rank_(static_cast<size_t>(rank)), size_(static_cast<size_t>(size)) {}

  openreg_status run(const openreg_collective &collective) override {
    if (!collective.only_checks && collective.output_count > 0 && collective.input_count > 0) {
      if (openreg_collective_traits_of(collective.kind)->reduces) {
        reduce(collective);
      } else {
        move(collective);
      }
    }
    return OPENREG_OK;
  }
  openreg_status exchange(const std::vector<openreg_message> &, uint64_t) override {
    return OPENREG_OK;
  }
  openreg_status begin(const openreg_collective &) override { return OPENREG_NOT_READY; }
  openreg_status finish(uint64_t) override { return OPENREG_OK; }
  bool has_core_per_rank() const override { return false; }
  openreg_status check() const override { return OPENREG_OK; }
  void abort(const std::string &) override {}

private:
  // The part of a list that belongs to a rank: its buffer, or its share of the only buffer.
  openreg_comm_buffer part_of(const openreg_comm_buffer *buffers, int count, size_t rank,
                              openreg_dtype dtype) const {
    if (static_cast<size_t>(count) == size_) {
      return buffers[rank];
    }
    const auto share = buffers[0].count / size_;
    return {static_cast<unsigned char *>(buffers[0].address) +
                rank * share * openreg_dtype_bytes(dtype),
            share};
  }

  void move(const openreg_collective &call) const {
    const bool splits_input =
        openreg_collective_traits_of(call.kind)->inputs != OPENREG_BUFFERS_ONE &&
        call.kind != OPENREG_COLLECTIVE_BROADCAST;
    const bool splits_output =
        openreg_collective_traits_of(call.kind)->outputs != OPENREG_BUFFERS_ONE;
    for (size_t rank = 0; rank < (splits_output ? size_ : 1); ++rank) {
      const auto from =
          splits_input ? part_of(call.inputs, call.input_count, rank_, call.dtype) : call.inputs[0];
      const auto to = splits_output ? part_of(call.outputs, call.output_count, rank, call.dtype)
                                    : call.outputs[0];
      const auto bytes = std::min(from.count, to.count) * openreg_dtype_bytes(call.dtype);
      std::memmove(openreg_kernel_view(to.address), openreg_kernel_view(from.address), bytes);
    }
  }

  void reduce(const openreg_collective &call) const {
    const bool has_parts = call.kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
    const auto from =
        has_parts ? part_of(call.inputs, call.input_count, rank_, call.dtype) : call.inputs[0];
    const std::vector<const void *> sources(size_, openreg_kernel_view(from.address));
    const std::vector<double> factors(size_, call.factor);
    void *const destination = openreg_kernel_view(call.outputs[0].address);
    const openreg_reduction_job job{
        .reduction = call.reduction,
        .dtype = call.dtype,
        .source_count = static_cast<int>(size_),
        .destination_count = 1,
        .sources = sources.data(),
        .destinations = &destination,
        .factors = call.reduction == OPENREG_REDUCE_PREMUL_SUM ? factors.data() : nullptr,
        .divisor = 0,
        .count = std::min(from.count, call.outputs[0].count),
    };
    openreg_reduce(&job, nullptr, nullptr);
  }

  size_t rank_, size_;
};

} // namespace

bool have_absent_rank(const std::vector<int> &ranks) {
  const char *const chosen = is_dry() ? std::getenv("OPENREG_DRY_REPRESENT") : nullptr;
  if (chosen == nullptr || *chosen == '\0') {
    return false;
  }
  std::set<int> running;
  std::istringstream list(chosen);
  for (std::string rank; std::getline(list, rank, ',');) {
    running.insert(std::atoi(rank.c_str()));
  }
  return !std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return running.contains(rank); });
}

CommunicatorPtr make_represented_communicator(int rank, int size) {
  return std::make_shared<RepresentedCommunicator>(rank, size);
}

} // namespace openreg
