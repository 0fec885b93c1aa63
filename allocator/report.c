/* report.c: the sentence of a request that did not fit, with every figure that explains why. */
#include "allocator/stats.h"

#include <inttypes.h>
#include <stdio.h>

enum { SIZE_TEXT_BYTES = 32 };

/* "512 bytes", "1.50 MiB": as PyTorch prints sizes in its own sentences. */
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

openreg_status openreg_report_out_of_memory(struct allocator *allocator,
                                            const struct request *request) {
  const openreg_memory_stats *stats = &allocator->stats;
  openreg_stats_add_up(allocator);
  uint64_t reserved = (uint64_t)stats->reserved_bytes[OPENREG_POOL_ALL].current;
  uint64_t allocated = (uint64_t)stats->allocated_bytes[OPENREG_POOL_ALL].current;
  uint64_t free_bytes, capacity;
  openreg_status status = openreg_ledger_query(allocator->device, &free_bytes, &capacity);
  if (status != OPENREG_OK)
    return status;
  openreg_observe_memory(&(openreg_memory_event){.action = OPENREG_MEMORY_EXHAUSTED,
                                                 .device = allocator->device,
                                                 .stream = request->stream,
                                                 .address = free_bytes,
                                                 .bytes = request->bytes,
                                                 .mempool = request->mempool});
  char request_text[SIZE_TEXT_BYTES], capacity_text[SIZE_TEXT_BYTES], free_text[SIZE_TEXT_BYTES],
      allowed_text[SIZE_TEXT_BYTES], allocated_text[SIZE_TEXT_BYTES], idle_text[SIZE_TEXT_BYTES],
      reserved_text[SIZE_TEXT_BYTES];
  return openreg_fail(
      OPENREG_OUT_OF_MEMORY,
      "openreg out of memory. Tried to allocate %s (%zu bytes). Device %d has a capacity of %s, of "
      "which %s is free. This process may reserve %s and has reserved %s: %s is allocated, %s is "
      "reserved but unallocated.",
      size_text(request->bytes, request_text), request->bytes, allocator->device,
      size_text(capacity, capacity_text), size_text(free_bytes, free_text),
      size_text(allocator->allowed_bytes, allowed_text), size_text(reserved, reserved_text),
      size_text(allocated, allocated_text), size_text(reserved - allocated, idle_text));
}
