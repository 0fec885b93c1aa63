/* layout.h: the order in which an operator goes through the elements of a strided output.
 *
 * A layout is an output whose dimensions have been put in an order, smallest step first, and merged
 * where they follow each other in memory. "Element i" of a layout is what the formulas of the
 * distributions count: index i of the first dimension fastest. Dimensions of one element are gone.
 */
#ifndef OPENREG_GENERATOR_LAYOUT_H
#define OPENREG_GENERATOR_LAYOUT_H

#include "generator/generator.h"

#pragma GCC visibility push(hidden)

typedef struct layout {
  char *data;    /* of the output; not looked at while only words are counted */
  int64_t start; /* element 0 lies so many items behind it */
  size_t item_bytes;
  uint64_t n; /* product of sizes */
  int dimensions;
  int64_t sizes[OPENREG_MAX_DIMENSIONS]; /* > 1, unless n is 0 */
  int64_t strides[OPENREG_MAX_DIMENSIONS];
} layout;

/* By ascending stride: memory order, that of PyTorch's iterator. */
void openreg_layout_in_memory_order(layout *layout, const openreg_output *output);

/* As the sizes stand, the last dimension fastest. */
void openreg_layout_in_row_major_order(layout *layout, const openreg_output *output);

/* Whether element i lies i items behind element 0. */
bool openreg_layout_is_dense(const layout *layout);

/* The address of element i of a dense layout. */
void *openreg_layout_dense_element(const layout *layout, uint64_t i);

/* Stores `count` values as elements first, first + 1, ... */
void openreg_layout_store(const layout *layout, uint64_t first, size_t count, const void *values);

/* What a signed 32-bit index reaches on CUDA. */
#define LAYOUT_INDEX_LIMIT ((uint64_t)INT32_MAX)

/* Whether both the number of elements and the bytes from the first to the last, plus 1, are within
 * `limit`. */
bool openreg_layout_is_within(const layout *layout, uint64_t limit);

/* Visits a layout within `limit` as it is; cuts another in two at the dimension with the greatest
 * extent, the first half (rounded down) before the rest, and goes on with each. */
typedef void layout_visitor(const layout *part, void *context);
void openreg_layout_visit_parts(const layout *layout, uint64_t limit, layout_visitor *visit,
                                void *context);

#pragma GCC visibility pop
#endif
