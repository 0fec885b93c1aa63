/* red_zone.c: the red zone behind a block, which debug.c and the race sanitizer both watch.
 *
 * A block is a multiple of 512 bytes, so there is often memory behind the requested bytes that
 * belongs to nobody. A red zone is that memory, filled with a pattern: a byte that differs later
 * was written by somebody who wrote past the end of the block.
 */
#include "allocator/internal.h"

#include <string.h>

size_t openreg_red_zone_bytes(size_t requested_bytes) {
  return round_up(requested_bytes + red_zone_bytes(), UNIT_BYTES) - requested_bytes;
}

void openreg_pattern_fill(void *address, size_t bytes, int value) {
  memset(openreg_kernel_view(address), value, bytes);
}

bool openreg_pattern_find_damage(const void *address, size_t bytes, int value, size_t *begin,
                                 size_t *end) {
  const unsigned char *memory = openreg_kernel_view((void *)address);
  if (bytes == 0 || (memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0))
    return false;
  *begin = 0;
  while (memory[*begin] == value)
    ++*begin;
  *end = bytes;
  while (memory[*end - 1] == value)
    --*end;
  return true;
}
