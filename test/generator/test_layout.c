/* test_layout.c: the order of elements, storing in that order, and where large tensors are split.
 */
#include "check.h"
#include "generator/layout.h"

#include <string.h>

static openreg_output output_of(openreg_type type, int dimensions, const int64_t *sizes,
                                const int64_t *strides) {
  return (openreg_output){NULL, type, dimensions, sizes, strides};
}

static layout memory_order(int dimensions, const int64_t *sizes, const int64_t *strides) {
  layout layout;
  const openreg_output output = output_of(OPENREG_FLOAT32, dimensions, sizes, strides);
  openreg_layout_in_memory_order(&layout, &output);
  return layout;
}

static void assert_dimensions(const layout *layout, int dimensions, const int64_t *sizes,
                              const int64_t *strides) {
  assert_int_equal(layout->dimensions, dimensions);
  for (int d = 0; d < dimensions; d++) {
    assert_int_equal(layout->sizes[d], sizes[d]);
    assert_int_equal(layout->strides[d], strides[d]);
  }
}

static void assert_dense(int dimensions, const int64_t *sizes, const int64_t *strides) {
  const layout layout = memory_order(dimensions, sizes, strides);
  assert_true(openreg_layout_is_dense(&layout));
}

static void dense_tensors_of_any_shape_become_one_dimension(void **state) {
  (void)state;
  assert_dense(0, NULL, NULL);
  assert_dense(1, (int64_t[]){7}, (int64_t[]){1});
  assert_dense(3, (int64_t[]){2, 3, 4}, (int64_t[]){12, 4, 1});
  assert_dense(3, (int64_t[]){4, 3, 2}, (int64_t[]){1, 4, 12});
  assert_dense(4, (int64_t[]){2, 3, 5, 7}, (int64_t[]){105, 1, 21, 3});
}

static void dimensions_of_one_element_are_ignored(void **state) {
  (void)state;
  assert_dense(3, (int64_t[]){2, 1, 3}, (int64_t[]){3, 100, 1});
  assert_dense(3, (int64_t[]){2, 1, 3}, (int64_t[]){3, 0, 1});
  assert_dense(2, (int64_t[]){1, 1}, (int64_t[]){17, 5});
}

static void memory_order_is_by_ascending_stride(void **state) {
  (void)state;
  const layout layout = memory_order(3, (int64_t[]){2, 3, 4}, (int64_t[]){10, 40, 2});
  assert_dimensions(&layout, 3, (int64_t[]){4, 2, 3}, (int64_t[]){2, 10, 40});
  assert_int_equal(layout.n, 24);
  assert_false(openreg_layout_is_dense(&layout));
}

static void neighbours_that_follow_each_other_are_merged(void **state) {
  (void)state;
  const layout layout = memory_order(4, (int64_t[]){5, 2, 3, 4}, (int64_t[]){100, 24, 8, 2});
  assert_dimensions(&layout, 2, (int64_t[]){24, 5}, (int64_t[]){2, 100});
}

static void row_major_order_keeps_the_dimensions(void **state) {
  (void)state;
  const int64_t sizes[] = {2, 1, 3, 4}, strides[] = {1, 5, 8, 2};
  const openreg_output output = output_of(OPENREG_FLOAT32, 4, sizes, strides);
  layout layout;
  openreg_layout_in_row_major_order(&layout, &output);
  assert_dimensions(&layout, 2, (int64_t[]){12, 2}, (int64_t[]){2, 1});
}

static void tensor_of_no_elements_is_empty_in_any_order(void **state) {
  (void)state;
  const layout layout = memory_order(3, (int64_t[]){4, 0, 3}, (int64_t[]){3, 3, 1});
  assert_int_equal(layout.n, 0);
  assert_true(openreg_layout_is_within(&layout, 1));
}

static void storing_goes_through_the_dimensions_and_leaves_gaps(void **state) {
  (void)state;
  const openreg_type types[] = {OPENREG_UINT8, OPENREG_INT16, OPENREG_INT32, OPENREG_INT64};
  for (size_t t = 0; t < LENGTH(types); t++) {
    const size_t bytes = openreg_type_bytes(types[t]);
    uint8_t memory[64 * 8], expected[64 * 8], values[12 * 8];
    memset(memory, PATTERN, sizeof memory);
    memset(expected, PATTERN, sizeof expected);
    for (size_t b = 0; b < sizeof values; b++)
      values[b] = (uint8_t)b;
    const int64_t sizes[] = {2, 2, 3}, strides[] = {3, 20, 8};
    for (size_t i = 0; i < 12; i++) {
      const size_t place = i % 2 * 3 + i / 2 % 3 * 8 + i / 6 * 20;
      memcpy(expected + place * bytes, values + i * bytes, bytes);
    }
    openreg_output output = {memory, types[t], 3, sizes, strides};
    layout layout;
    openreg_layout_in_memory_order(&layout, &output);
    openreg_layout_store(&layout, 0, 5, values);
    openreg_layout_store(&layout, 5, 7, values + 5 * bytes);
    assert_memory_equal(memory, expected, sizeof memory);
  }
}

static void storing_densely_is_a_copy(void **state) {
  (void)state;
  int32_t memory[6] = {9, 9, 9, 9, 9, 9};
  const int32_t values[2] = {1, 2}, expected[6] = {9, 9, 9, 1, 2, 9};
  const int64_t sizes[] = {3, 2}, strides[] = {1, 3};
  openreg_output output = {memory, OPENREG_INT32, 2, sizes, strides};
  layout layout;
  openreg_layout_in_memory_order(&layout, &output);
  openreg_layout_store(&layout, 3, 2, values);
  assert_memory_equal(memory, expected, sizeof memory);
}

static void limit_counts_elements_and_reach_in_bytes(void **state) {
  (void)state;
  const int64_t one = 1, two = 2;
  int64_t n = INT64_C(1) << 29;
  layout layout = memory_order(1, &n, &one);
  assert_true(openreg_layout_is_within(&layout, LAYOUT_INDEX_LIMIT));
  n++;
  layout = memory_order(1, &n, &one);
  assert_false(openreg_layout_is_within(&layout, LAYOUT_INDEX_LIMIT));
  n = (INT64_C(1) << 28) + 1;
  layout = memory_order(1, &n, &two);
  assert_false(openreg_layout_is_within(&layout, LAYOUT_INDEX_LIMIT));
  openreg_output bytes = output_of(OPENREG_UINT8, 1, &n, &one);
  n = INT32_MAX;
  openreg_layout_in_memory_order(&layout, &bytes);
  assert_true(openreg_layout_is_within(&layout, LAYOUT_INDEX_LIMIT));
  n++;
  openreg_layout_in_memory_order(&layout, &bytes);
  assert_false(openreg_layout_is_within(&layout, LAYOUT_INDEX_LIMIT));
}

typedef struct parts {
  int count;
  int64_t starts[128];
  uint64_t lengths[128];
} parts;

static void note(const layout *part, void *context) {
  parts *parts = context;
  assert_true(parts->count < 128);
  parts->starts[parts->count] = part->start;
  parts->lengths[parts->count] = part->n;
  parts->count++;
}

static void assert_parts(const layout *layout, uint64_t limit, int count, const int64_t *starts,
                         const uint64_t *lengths) {
  parts parts = {0};
  openreg_layout_for_each_part(layout, limit, note, &parts);
  assert_int_equal(parts.count, count);
  for (int i = 0; i < count; i++) {
    assert_int_equal(parts.starts[i], starts[i]);
    assert_int_equal(parts.lengths[i], lengths[i]);
  }
}

static void layout_within_the_limit_is_one_part(void **state) {
  (void)state;
  const layout layout = memory_order(1, (int64_t[]){5}, (int64_t[]){1});
  assert_parts(&layout, 17, 1, (int64_t[]){0}, (uint64_t[]){5});
  assert_parts(&layout, 16, 2, (int64_t[]){0, 2}, (uint64_t[]){2, 3});
}

static void dense_layout_is_halved_until_it_fits(void **state) {
  (void)state;
  const layout layout = memory_order(1, (int64_t[]){11}, (int64_t[]){1});
  assert_parts(&layout, 12, 4, (int64_t[]){0, 2, 5, 8}, (uint64_t[]){2, 3, 3, 3});
}

static void the_widest_dimension_is_split(void **state) {
  (void)state;
  const layout layout = memory_order(2, (int64_t[]){3, 2}, (int64_t[]){2, 100});
  assert_parts(&layout, 24, 2, (int64_t[]){0, 100}, (uint64_t[]){3, 3});
}

static void the_fastest_dimension_can_be_split(void **state) {
  (void)state;
  const layout layout = memory_order(2, (int64_t[]){50, 2}, (int64_t[]){2, 3});
  assert_parts(&layout, 400, 2, (int64_t[]){0, 50}, (uint64_t[]){50, 50});
}

static void of_equally_wide_dimensions_the_slowest_is_split(void **state) {
  (void)state;
  const layout layout = memory_order(2, (int64_t[]){7, 3}, (int64_t[]){2, 6});
  assert_parts(&layout, 80, 2, (int64_t[]){0, 6}, (uint64_t[]){7, 14});
}

static void parts_cover_every_element_once(void **state) {
  (void)state;
  const int64_t sizes[] = {5, 7, 3}, strides[] = {40, 4, 1};
  for (uint64_t limit = 16; limit < 1000; limit += 7) {
    const layout layout = memory_order(3, sizes, strides);
    parts parts = {0};
    openreg_layout_for_each_part(&layout, limit, note, &parts);
    uint64_t sum = 0;
    for (int i = 0; i < parts.count; i++) {
      sum += parts.lengths[i];
      assert_true(i == 0 || parts.starts[i] > parts.starts[i - 1]);
    }
    assert_int_equal(sum, 105);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense_tensors_of_any_shape_become_one_dimension),
      cmocka_unit_test(dimensions_of_one_element_are_ignored),
      cmocka_unit_test(memory_order_is_by_ascending_stride),
      cmocka_unit_test(neighbours_that_follow_each_other_are_merged),
      cmocka_unit_test(row_major_order_keeps_the_dimensions),
      cmocka_unit_test(tensor_of_no_elements_is_empty_in_any_order),
      cmocka_unit_test(storing_goes_through_the_dimensions_and_leaves_gaps),
      cmocka_unit_test(storing_densely_is_a_copy),
      cmocka_unit_test(limit_counts_elements_and_reach_in_bytes),
      cmocka_unit_test(layout_within_the_limit_is_one_part),
      cmocka_unit_test(dense_layout_is_halved_until_it_fits),
      cmocka_unit_test(the_widest_dimension_is_split),
      cmocka_unit_test(the_fastest_dimension_can_be_split),
      cmocka_unit_test(of_equally_wide_dimensions_the_slowest_is_split),
      cmocka_unit_test(parts_cover_every_element_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
