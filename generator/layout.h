/* layout.h: the order in which an operator visits the elements of a strided output.
 *
 * A layout has the dimensions of an output in some order, smallest step first, and merged where
 * they are adjacent in memory. The formulas of the distributions count "element i" of a layout: the
 * first dimension varies fastest. Dimensions of one element are omitted.
 */
#ifndef OPENREG_GENERATOR_LAYOUT_H
#define OPENREG_GENERATOR_LAYOUT_H

#include "generator/generator.h"

#pragma GCC visibility push(hidden)

typedef struct layout {
  char *data;    /* of the output; not read while only words are counted */
  int64_t start; /* the offset of element 0, in items */
  size_t item_bytes;
  uint64_t n; /* the product of the sizes */
  int dimensions;
  int64_t sizes[OPENREG_MAX_DIMENSIONS]; /* > 1, unless n is 0 */
  int64_t strides[OPENREG_MAX_DIMENSIONS];
} layout;

/* Orders by ascending stride: memory order, as PyTorch's iterator does. */
void openreg_layout_in_memory_order(layout *layout, const openreg_output *output);

/* Keeps the order of the sizes, the last dimension fastest. */
void openreg_layout_in_row_major_order(layout *layout, const openreg_output *output);

/* Whether element i lies i items behind element 0. */
bool openreg_layout_is_dense(const layout *layout);

/* Returns the address of element i of a dense layout. */
void *openreg_layout_dense_element(const layout *layout, uint64_t i);

/* Stores `count` values as elements first, first + 1, ... */
void openreg_layout_store(const layout *layout, uint64_t first, size_t count, const void *values);

/* What a signed 32-bit index reaches on CUDA. */
#define LAYOUT_INDEX_LIMIT ((uint64_t)INT32_MAX)

/* Whether both the number of elements, and the bytes from the first to the last element plus 1, are
 * within `limit`. */
bool openreg_layout_is_within(const layout *layout, uint64_t limit);

/* Visits a layout within `limit` as it is. Splits a larger one in two at the dimension with the
 * largest extent, the first half rounded down, and continues with each half in order. */
typedef void layout_visitor(const layout *part, void *context);
void openreg_layout_for_each_part(const layout *layout, uint64_t limit, layout_visitor *visit,
                                  void *context);

#pragma GCC visibility pop
#endif
