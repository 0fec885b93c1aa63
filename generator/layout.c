/* layout.c: orders, merges and splits strided outputs. See layout.h.
 *
 * Invariant: an output whose elements fill a memory range without gaps has one dimension of stride
 * 1 in memory order, whatever its shape was. So dense, transposed and channels-last tensors take
 * the same fast path and get the same numbers in memory order. Where CUDA splits a tensor affects
 * its numbers, because each part takes its own words.
 */
#include "generator/layout.h"

#include <assert.h>
#include <string.h>

/* Appends the dimensions, the fastest last, without those of one element. */
static void start(layout *layout, const openreg_output *output) {
  assert(output->dimensions >= 0 && output->dimensions <= OPENREG_MAX_DIMENSIONS);
  layout->data = output->data;
  layout->start = 0;
  layout->item_bytes = openreg_type_bytes(output->type);
  layout->n = 1;
  layout->dimensions = 0;
  for (int d = output->dimensions - 1; d >= 0; d--) {
    assert(output->sizes[d] >= 0 && output->strides[d] >= 0);
    layout->n *= (uint64_t)output->sizes[d];
    if (output->sizes[d] == 1)
      continue;
    layout->sizes[layout->dimensions] = output->sizes[d];
    layout->strides[layout->dimensions] = output->strides[d];
    layout->dimensions++;
  }
}

/* Insertion sort: it is stable, and there are few dimensions. */
static void sort_by_stride(layout *layout) {
  for (int i = 1; i < layout->dimensions; i++) {
    int64_t size = layout->sizes[i], stride = layout->strides[i];
    int j = i;
    for (; j > 0 && layout->strides[j - 1] > stride; j--) {
      layout->sizes[j] = layout->sizes[j - 1];
      layout->strides[j] = layout->strides[j - 1];
    }
    layout->sizes[j] = size;
    layout->strides[j] = stride;
  }
}

/* Merges neighbors where the slower one starts at the end of the faster one. */
static void merge(layout *layout) {
  int kept = 0;
  for (int d = 0; d < layout->dimensions; d++) {
    int64_t size = layout->sizes[d], stride = layout->strides[d];
    if (size == 1)
      continue;
    if (kept > 0 && layout->sizes[kept - 1] * layout->strides[kept - 1] == stride) {
      layout->sizes[kept - 1] *= size;
    } else {
      layout->sizes[kept] = size;
      layout->strides[kept] = stride;
      kept++;
    }
  }
  layout->dimensions = kept;
}

void openreg_layout_in_memory_order(layout *layout, const openreg_output *output) {
  start(layout, output);
  sort_by_stride(layout);
  merge(layout);
}

void openreg_layout_in_row_major_order(layout *layout, const openreg_output *output) {
  start(layout, output);
  merge(layout);
}

bool openreg_layout_is_dense(const layout *layout) {
  return layout->dimensions == 0 || (layout->dimensions == 1 && layout->strides[0] == 1);
}

static char *item(const layout *layout, int64_t place) {
  return layout->data + place * (int64_t)layout->item_bytes;
}

void *openreg_layout_dense_element(const layout *layout, uint64_t i) {
  assert(openreg_layout_is_dense(layout));
  return item(layout, layout->start + (int64_t)i);
}

static void copy_item(char *to, const char *from, size_t bytes) {
  switch (bytes) {
  case 1:
    memcpy(to, from, 1);
    break;
  case 2:
    memcpy(to, from, 2);
    break;
  case 4:
    memcpy(to, from, 4);
    break;
  default:
    memcpy(to, from, 8);
  }
}

void openreg_layout_store(const layout *layout, uint64_t first, size_t count, const void *values) {
  assert(first <= layout->n && count <= layout->n - first);
  const size_t bytes = layout->item_bytes;
  const char *from = values;
  if (openreg_layout_is_dense(layout)) {
    memcpy(openreg_layout_dense_element(layout, first), from, count * bytes);
    return;
  }
  int64_t index[OPENREG_MAX_DIMENSIONS];
  int64_t place = layout->start;
  for (int d = 0; d < layout->dimensions; d++) {
    index[d] = (int64_t)(first % (uint64_t)layout->sizes[d]);
    first /= (uint64_t)layout->sizes[d];
    place += index[d] * layout->strides[d];
  }
  for (size_t j = 0; j < count; j++, from += bytes) {
    copy_item(item(layout, place), from, bytes);
    for (int d = 0; d < layout->dimensions; d++) {
      place += layout->strides[d];
      if (++index[d] < layout->sizes[d])
        break;
      place -= layout->sizes[d] * layout->strides[d];
      index[d] = 0;
    }
  }
}

static uint64_t extent(const layout *layout, int dimension) {
  return (uint64_t)(layout->sizes[dimension] - 1) * (uint64_t)layout->strides[dimension];
}

bool openreg_layout_is_within(const layout *layout, uint64_t limit) {
  if (layout->n > limit)
    return false;
  uint64_t reach = 1;
  for (int d = 0; d < layout->dimensions; d++)
    reach += extent(layout, d) * layout->item_bytes;
  return layout->n == 0 || reach <= limit;
}

/* Returns the dimension to split: the one with the largest extent, among equals the slowest. */
static int widest(const layout *layout) {
  int best = layout->dimensions - 1;
  for (int d = best - 1; d >= 0; d--) {
    if (extent(layout, d) > extent(layout, best))
      best = d;
  }
  return best;
}

static layout piece(const layout *whole, int dimension, int64_t first, int64_t size) {
  layout part = *whole;
  part.start += first * whole->strides[dimension];
  part.n = whole->n / (uint64_t)whole->sizes[dimension] * (uint64_t)size;
  part.sizes[dimension] = size;
  merge(&part);
  return part;
}

/* The recursion depth is at most the number of halvings: 63 per dimension, about 40 in practice. */
void openreg_layout_for_each_part(const layout *whole, uint64_t limit, layout_visitor *visit,
                                  void *context) {
  if (openreg_layout_is_within(whole, limit) || whole->n < 2) {
    visit(whole, context);
    return;
  }
  int dimension = widest(whole);
  int64_t size = whole->sizes[dimension];
  layout part = piece(whole, dimension, 0, size / 2);
  openreg_layout_for_each_part(&part, limit, visit, context);
  part = piece(whole, dimension, size / 2, size - size / 2);
  openreg_layout_for_each_part(&part, limit, visit, context);
}
