/* report.c: reports a request that did not fit, with every value that explains why. */
#include "allocator/stats.h"

#include <inttypes.h>
#include <stdio.h>

enum { SIZE_TEXT_BYTES = 32 };

/* Dynamic thread-local storage: the static kind is scarce in a library that is loaded late. */
static _Thread_local openreg_out_of_memory_info last_info
    __attribute__((tls_model("global-dynamic")));

void openreg_memory_last_out_of_memory(openreg_out_of_memory_info *info) {
  *info = last_info;
}

/* Formats sizes as PyTorch does in its messages: "512 bytes", "1.50 MiB". */
static const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES]) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  if (bytes <= 1024) {
    snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64 " bytes", bytes);
    return text;
  }
  double value = (double)bytes / 1024;
  size_t unit = 0;
  for (; value > 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
    value /= 1024;
  snprintf(text, SIZE_TEXT_BYTES, "%.2f %s", value, units[unit]);
  return text;
}

static uint64_t free_bytes_of(const struct private_pool *pool) {
  uint64_t bytes = 0;
  for (int kind = OPENREG_POOL_SMALL; kind <= OPENREG_POOL_LARGE; kind++) {
    struct block *tree = pool->pools[kind].free, *block;
    for (block = openreg_tree_at_least(tree, 0, 0); block; block = openreg_tree_after(tree, block))
      bytes += block->base.bytes;
  }
  return bytes;
}

static openreg_status fill_refusal(struct allocator *allocator, const struct request *request,
                                   openreg_out_of_memory_info *info) {
  const openreg_memory_stats *stats = &allocator->stats;
  *info = (openreg_out_of_memory_info){
      .bytes = request->bytes,
      .rounded_bytes = request->rounded_bytes,
      .tried_bytes = request->segment_bytes,
      .allowed_bytes = allocator->allowed_bytes == SIZE_MAX ? UINT64_MAX : allocator->allowed_bytes,
      .allocated_bytes = (uint64_t)stats->allocated_bytes[OPENREG_POOL_ALL].current,
      .reserved_bytes = (uint64_t)stats->reserved_bytes[OPENREG_POOL_ALL].current};
  for (const struct private_pool *pool = allocator->private_pools; pool; pool = pool->next)
    info->mempool_bytes += free_bytes_of(pool);
  return openreg_ledger_query(allocator->device, &info->free_bytes, &info->capacity_bytes);
}

openreg_status openreg_report_out_of_memory(struct allocator *allocator,
                                            const struct request *request) {
  openreg_out_of_memory_info *info = &last_info;
  openreg_status status = fill_refusal(allocator, request, info);
  if (status != OPENREG_OK)
    return status;
  info->is_rejection = request->is_rejected;
  if (request->is_rejected) {
    allocator->stats.oom_rejections += request->bytes < MOST_REQUESTED_BYTES;
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: a request for %zu bytes was rejected: it would exceed the memory "
                        "limit of this process",
                        request->bytes);
  }
  allocator->stats.ooms++;
  openreg_observe_memory(&(openreg_memory_event){.action = OPENREG_MEMORY_EXHAUSTED,
                                                 .device = allocator->device,
                                                 .stream = request->stream,
                                                 .address = info->free_bytes,
                                                 .bytes = request->rounded_bytes,
                                                 .block_bytes = request->rounded_bytes,
                                                 .mempool = request->mempool});
  char request_text[SIZE_TEXT_BYTES], capacity_text[SIZE_TEXT_BYTES], free_text[SIZE_TEXT_BYTES],
      allocated_text[SIZE_TEXT_BYTES], idle_text[SIZE_TEXT_BYTES], reserved_text[SIZE_TEXT_BYTES];
  return openreg_fail(
      OPENREG_OUT_OF_MEMORY,
      "openreg out of memory. Tried to allocate %s (%zu bytes). Device %d has a capacity of %s, of "
      "which %s is free. This process has reserved %s: %s is allocated, %s is reserved but "
      "unallocated.",
      size_text(request->bytes, request_text), request->bytes, allocator->device,
      size_text(info->capacity_bytes, capacity_text), size_text(info->free_bytes, free_text),
      size_text(info->reserved_bytes, reserved_text),
      size_text(info->allocated_bytes, allocated_text),
      size_text(info->reserved_bytes - info->allocated_bytes, idle_text));
}
