/* Unwritten bytes, compared with an array that has a flag for each byte. */
#include "player.h"
#include "random.h"

#include <string.h>

enum { BYTES = 300, BLOCKS = 3, APART = 4096, PROGRAMS = 1500, STEPS = 60, MAX_ELEMENTS = 256 };

static openreg_sanitizer_thread *stream;

static void allocate_unwritten(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes) {
  openreg_sanitizer_block block = {.address = address, .bytes = bytes, .call_site = 3};
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, false));
}

static openreg_sanitizer *begin(openreg_sanitizer_options options) {
  openreg_sanitizer *sanitizer = make_sanitizer(options);
  stream = make_stream(sanitizer, 1);
  return sanitizer;
}

/* Copies one region to another in a launch. */
static void move(openreg_sanitizer *sanitizer, openreg_sanitizer_region to,
                 openreg_sanitizer_region from, uint64_t call_site) {
  openreg_sanitizer_access accesses[] = {
      {.region = to, .mode = WRITE, .is_moved = true, .source = 1},
      {.region = from, .mode = READ | OPENREG_SANITIZER_MOVED},
  };
  openreg_sanitizer_launch launch = {
      .thread = stream, .call_site = call_site, .accesses = accesses, .count = 2};
  ASSERT_OK(openreg_sanitizer_check_launch(sanitizer, &launch));
}

static bool read_is_found(openreg_sanitizer *sanitizer, openreg_sanitizer_region region) {
  openreg_sanitizer_findings_clear(sanitizer);
  access_region(sanitizer, stream, region, READ, 9);
  return openreg_sanitizer_finding_count(sanitizer) > 0;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void the_first_unwritten_byte_is_named_and_found_once(void **state) {
  (void)state;
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 100);
  access_bytes(sanitizer, stream, 1000, 40, WRITE, 1);
  access_bytes(sanitizer, stream, 1000, 40, READ, 2);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, stream, 1020, 60, READ, 4);
  access_bytes(sanitizer, stream, 1020, 60, READ, 4);
  access_bytes(sanitizer, stream, 1020, 60, READ, 5);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_UNINITIALISED_READ);
  assert_int_equal(finding.count, 1);
  assert_int_equal(finding.bytes.begin, 1040);
  assert_int_equal(finding.bytes.end, 1080);
  assert_int_equal(finding.second.call_site, 4);
  assert_int_equal(finding.second.tag, 1004);
  assert_int_equal(finding.second.block.call_site, 3);
  assert_int_equal(finding.first.call_site, 3);
  assert_int_equal(finding.first.mode, 0);
  assert_true(read_is_found(sanitizer, bytes_at(1099, 1)));
  openreg_sanitizer_destroy(sanitizer);
}

static void memory_from_outside_is_written(void **state) {
  (void)state;
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate(sanitizer, 1000, 100, 3);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 100)));
  allocate_unwritten(sanitizer, 2000, 100);
  openreg_sanitizer_initialise(sanitizer, 1900, 150);
  assert_false(read_is_found(sanitizer, bytes_at(2000, 50)));
  assert_true(read_is_found(sanitizer, bytes_at(2049, 2)));
  openreg_sanitizer_destroy(sanitizer);
}

static void memory_that_is_allocated_again_is_unwritten_again(void **state) {
  (void)state;
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 100);
  access_bytes(sanitizer, stream, 1000, 100, WRITE, 1);
  openreg_sanitizer_free(sanitizer, 1000, 0);
  allocate_unwritten(sanitizer, 1000, 100);
  assert_true(read_is_found(sanitizer, bytes_at(1000, 100)));
  openreg_sanitizer_destroy(sanitizer);
}

static void a_launch_reads_before_it_writes(void **state) {
  (void)state;
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 100);
  access_bytes(sanitizer, stream, 1000, 100, BOTH, 1); /* in place */
  assert_int_equal(only_finding(sanitizer).kind, OPENREG_SANITIZER_UNINITIALISED_READ);
  openreg_sanitizer_destroy(sanitizer);
}

static void a_conversion_makes_whole_elements_unwritten(void **state) {
  (void)state;
  int64_t sizes[] = {10}, wide[] = {4}, narrow[] = {2};
  openreg_sanitizer_region from = {1000, 4, 1, sizes, wide}, to = {2000, 2, 1, sizes, narrow};
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 40);
  allocate_unwritten(sanitizer, 2000, 20);
  access_bytes(sanitizer, stream, 1000, 17, WRITE, 1); /* four elements and a quarter */
  access_bytes(sanitizer, stream, 1024, 16, WRITE, 1);
  move(sanitizer, to, from, 2);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  assert_false(read_is_found(sanitizer, bytes_at(2000, 8)));
  assert_false(read_is_found(sanitizer, bytes_at(2012, 8)));
  assert_true(read_is_found(sanitizer, bytes_at(2008, 1)));
  openreg_sanitizer_destroy(sanitizer);
}

static void a_partial_read_is_found_if_everything_is_unwritten(void **state) {
  (void)state;
  enum { PARTIAL = OPENREG_SANITIZER_PARTIAL };
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 100);
  access_bytes(sanitizer, stream, 1010, 80, READ | PARTIAL | OPENREG_SANITIZER_MOVED, 1);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, stream, 1010, 80, READ | PARTIAL, 2);
  access_bytes(sanitizer, stream, 1010, 80, READ | PARTIAL, 3);
  assert_int_equal(only_finding(sanitizer).second.call_site, 2);
  access_bytes(sanitizer, stream, 1000, 100, READ | PARTIAL, 4); /* may read the middle only */
  access_bytes(sanitizer, stream, 1000, 100, READ | WRITE | PARTIAL, 5);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 1);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 100)));
  allocate_unwritten(sanitizer, 2000, 100);
  access_bytes(sanitizer, stream, 2000, 100, READ | WRITE | PARTIAL, 6);
  assert_int_equal(only_finding(sanitizer).second.call_site, 6);
  openreg_sanitizer_destroy(sanitizer);
}

static void sets_with_too_many_runs_count_as_written(void **state) {
  (void)state;
  int64_t sizes[] = {100}, strides[] = {10};
  openreg_sanitizer_region column = {1000, 4, 1, sizes, strides};
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){.max_intervals = 50});
  allocate_unwritten(sanitizer, 1000, 2000);
  access_region(sanitizer, stream, column, WRITE, 1);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 994)));
  assert_true(read_is_found(sanitizer, bytes_at(1994, 1)));
  assert_int_equal(counts(sanitizer).forgotten_bytes, 994);
  openreg_sanitizer_destroy(sanitizer);
}

static void heavily_interleaved_regions_count_as_written(void **state) {
  (void)state;
  int64_t sizes[] = {30, 30}, strides[] = {7, 11};
  openreg_sanitizer_region interlaced = {1000, 2, 2, sizes, strides};
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
  allocate_unwritten(sanitizer, 1000, 2000);
  assert_false(read_is_found(sanitizer, interlaced));
  assert_true(counts(sanitizer).unknown > 0);
  assert_true(read_is_found(sanitizer, bytes_at(1524, 1)));
  openreg_sanitizer_destroy(sanitizer);
}

static void unwritten_bytes_are_not_tracked_if_they_are_not_reported(void **state) {
  (void)state;
  unsigned all = OPENREG_SANITIZER_ALL_KINDS;
  unsigned others = all & ~OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_UNINITIALISED_READ);
  openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){.kinds = others});
  allocate_unwritten(sanitizer, 1000, 100);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 100)));
  openreg_sanitizer_set_kinds(sanitizer, all);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 100)));
  allocate_unwritten(sanitizer, 1000, 100);
  openreg_sanitizer_set_kinds(sanitizer, others);
  assert_false(read_is_found(sanitizer, bytes_at(1000, 50)));
  openreg_sanitizer_set_kinds(sanitizer, all);
  assert_true(read_is_found(sanitizer, bytes_at(1050, 50)));
  openreg_sanitizer_destroy(sanitizer);
}

/* ---- by chance ------------------------------------------------------------------------------- */

struct model {
  unsigned char unwritten[BLOCKS][BYTES];
};

static uint64_t block_at(uint64_t block) {
  return (block + 1) * APART;
}

static int64_t elements_of(const openreg_sanitizer_region *region) {
  int64_t elements = 1;
  for (int i = 0; i < region->dims; i++)
    elements *= region->sizes[i];
  return elements;
}

/* Makes a region in one block, like random_region, but with few enough runs for the sanitizer to
 * track. `made->region` points into `made`. */
static void pick_region(uint64_t *random, uint64_t *block, struct random_region *made) {
  *block = random_below(random, BLOCKS);
  do
    random_region(random, BYTES, made);
  while (elements_of(&made->region) > MAX_ELEMENTS);
  if (random_once_in(random, 4))
    made->region = bytes_at(random_below(random, BYTES / 2), random_below(random, BYTES / 2));
}

/* The region in its block, as in the model, and with its address. */
static openreg_sanitizer_region at(const struct random_region *made, uint64_t block) {
  openreg_sanitizer_region region = made->region;
  region.address += block_at(block);
  return region;
}

struct elements {
  uint64_t addresses[MAX_ELEMENTS], count;
};

static void list_element(uint64_t address, void *context) {
  struct elements *elements = context;
  elements->addresses[elements->count++] = address;
}

static void clear_region(const openreg_sanitizer_region *region, unsigned char unwritten[]) {
  unsigned char marks[BYTES] = {0};
  mark_region(region, marks, 1);
  for (int i = 0; i < BYTES; i++)
    unwritten[i] &= !marks[i];
}

static int first_unwritten(const openreg_sanitizer_region *region,
                           const unsigned char unwritten[]) {
  unsigned char marks[BYTES] = {0};
  mark_region(region, marks, 1);
  for (int i = 0; i < BYTES; i++)
    if (marks[i] & unwritten[i])
      return i;
  return -1;
}

static void model_move(struct model *model, uint64_t to_block, const openreg_sanitizer_region *to,
                       uint64_t from_block, const openreg_sanitizer_region *from) {
  static struct elements sources, targets;
  struct model before = *model;
  sources.count = targets.count = 0;
  visit_elements(from, 0, from->address, list_element, &sources);
  visit_elements(to, 0, to->address, list_element, &targets);
  clear_region(to, model->unwritten[to_block]);
  for (uint64_t i = 0; i < targets.count; i++)
    for (uint64_t byte = 0; byte < to->element_bytes; byte++)
      model->unwritten[to_block][targets.addresses[i] + byte] |=
          before.unwritten[from_block][sources.addresses[i] + byte];
}

static bool has_distinct_elements(const openreg_sanitizer_region *region) {
  static unsigned char counted[BYTES];
  static struct elements elements;
  memset(counted, 0, sizeof counted);
  elements.count = 0;
  visit_elements(region, 0, region->address, list_element, &elements);
  for (uint64_t i = 0; i < elements.count; i++)
    for (uint64_t byte = 0; byte < region->element_bytes; byte++)
      if (counted[elements.addresses[i] + byte]++)
        return false;
  return true;
}

/* Copies to a region of distinct elements, from one of the same sizes with any strides. */
static void play_move(openreg_sanitizer *sanitizer, struct model *model, uint64_t *random) {
  uint64_t to_block, from_block = random_below(random, BLOCKS);
  struct random_region to, from;
  do
    pick_region(random, &to_block, &to);
  while (!has_distinct_elements(&to.region));
  do {
    from = to;
    from.region.sizes = to.sizes;
    from.region.strides = from.strides;
    from.region.address = random_below(random, BYTES);
    for (int i = 0; i < from.region.dims; i++)
      if (random_once_in(random, 2))
        from.strides[i] = (int64_t)random_below(random, 40) - 8;
  } while (!is_within(&from.region, BYTES));
  to.region.strides = to.strides;
  if (to.region.dims == 0)
    to.region.sizes = to.region.strides = from.region.sizes = from.region.strides = NULL;
  move(sanitizer, at(&to, to_block), at(&from, from_block), 1);
  model_move(model, to_block, &to.region, from_block, &from.region);
}

static void play_read(openreg_sanitizer *sanitizer, struct model *model, uint64_t *random) {
  struct random_region made;
  openreg_sanitizer_finding finding;
  uint64_t block;
  pick_region(random, &block, &made);
  int first = first_unwritten(&made.region, model->unwritten[block]);
  assert_int_equal(read_is_found(sanitizer, at(&made, block)), first >= 0);
  if (first >= 0) {
    assert_true(openreg_sanitizer_finding_get(sanitizer, 0, &finding));
    assert_int_equal(finding.bytes.begin, block_at(block) + (uint64_t)first);
    assert_true(finding.bytes.end > finding.bytes.begin);
    for (uint64_t i = finding.bytes.begin; i < finding.bytes.end; i++)
      assert_true(model->unwritten[block][i - block_at(block)]);
  }
  clear_region(&made.region, model->unwritten[block]);
}

static void play_step(openreg_sanitizer *sanitizer, struct model *model, uint64_t *random) {
  struct random_region made;
  uint64_t block;
  switch (random_below(random, 8)) {
  case 0:
    pick_region(random, &block, &made);
    access_region(sanitizer, stream, at(&made, block), WRITE, 1);
    clear_region(&made.region, model->unwritten[block]);
    break;
  case 1:
    block = random_below(random, BLOCKS);
    allocate_unwritten(sanitizer, block_at(block), BYTES);
    memset(model->unwritten[block], 1, BYTES);
    break;
  case 2:
  case 3:
    play_read(sanitizer, model, random);
    break;
  default:
    play_move(sanitizer, model, random);
  }
}

static void random_writes_copies_and_reads_are_tracked_exactly(void **state) {
  (void)state;
  uint64_t random = 21;
  for (int i = 0; i < PROGRAMS; i++) {
    struct model model;
    openreg_sanitizer *sanitizer = begin((openreg_sanitizer_options){0});
    memset(&model, 1, sizeof model);
    for (uint64_t block = 0; block < BLOCKS; block++)
      allocate_unwritten(sanitizer, block_at(block), BYTES);
    for (int step = 0; step < STEPS; step++)
      play_step(sanitizer, &model, &random);
    assert_int_equal(counts(sanitizer).forgotten_bytes, 0);
    openreg_sanitizer_destroy(sanitizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_unwritten_byte_is_named_and_found_once),
      cmocka_unit_test(memory_from_outside_is_written),
      cmocka_unit_test(memory_that_is_allocated_again_is_unwritten_again),
      cmocka_unit_test(a_launch_reads_before_it_writes),
      cmocka_unit_test(a_conversion_makes_whole_elements_unwritten),
      cmocka_unit_test(a_partial_read_is_found_if_everything_is_unwritten),
      cmocka_unit_test(sets_with_too_many_runs_count_as_written),
      cmocka_unit_test(heavily_interleaved_regions_count_as_written),
      cmocka_unit_test(unwritten_bytes_are_not_tracked_if_they_are_not_reported),
      cmocka_unit_test(random_writes_copies_and_reads_are_tracked_exactly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
