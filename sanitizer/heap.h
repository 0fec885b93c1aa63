/* heap.h: counts the host memory of one sanitizer. */
#ifndef OPENREG_SANITIZER_HEAP_H
#define OPENREG_SANITIZER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct heap {
  uint64_t bytes;
  uint64_t max; /* a limit for remembered accesses; 0: none */
};

static inline bool openreg_heap_is_full(const struct heap *heap) {
  return heap->max != 0 && heap->bytes > heap->max;
}

/* Like realloc: from `old_bytes` (0: a new allocation) to `bytes` (0: frees it, which cannot fail).
 */
static inline void *openreg_heap_resize(struct heap *heap, void *old, size_t old_bytes,
                                        size_t bytes) {
  void *made = NULL;
  if (bytes == 0) {
    free(old);
  } else {
    made = realloc(old, bytes);
    if (made == NULL)
      return NULL;
  }
  heap->bytes += bytes;
  heap->bytes -= old_bytes;
  return made;
}

static inline void *openreg_heap_take(struct heap *heap, size_t bytes) {
  return openreg_heap_resize(heap, NULL, 0, bytes);
}

static inline void openreg_heap_give(struct heap *heap, void *memory, size_t bytes) {
  if (memory != NULL)
    openreg_heap_resize(heap, memory, bytes, 0);
}

#endif
