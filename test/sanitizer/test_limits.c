/* Limits: the sanitizer finds less, reports nothing wrong, and counts what it lost. */
#include "player.h"
#include "random.h"

#include <stdlib.h>

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_thread *one, *other;

/* ---- allocations that fail ------------------------------------------------------------------- */

static long left_to_succeed = -1; /* then one allocation fails; negative: none fails */
static bool has_failed;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static bool fails(void) {
  bool is_last = left_to_succeed == 0;
  left_to_succeed -= left_to_succeed >= 0;
  has_failed |= is_last;
  return is_last;
}

void *__wrap_malloc(size_t bytes) {
  return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
  return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
  return fails() ? NULL : __real_realloc(memory, bytes);
}

/* A call that fails must return an error and change nothing. */
#define OK_OR_NO_MEMORY(call)                                                                      \
  do {                                                                                             \
    bool had_failed = has_failed;                                                                  \
    openreg_status status = call;                                                                  \
    assert_true(status == OPENREG_OK || (status == OPENREG_OUT_OF_MEMORY && !had_failed));         \
  } while (0)

static void ignore(const openreg_sanitizer_finding *finding, void *context) {
  (void)finding, (void)context;
}

static void move_rows(openreg_sanitizer_thread *thread, uint64_t to, uint64_t from) {
  int64_t sizes[] = {6, 3}, strides[] = {40, 8};
  openreg_sanitizer_access accesses[20] = {
      {.region = {to, 4, 2, sizes, strides}, .mode = WRITE, .is_moved = true, .source = 1},
      {.region = {from, 4, 2, sizes, strides}, .mode = READ | OPENREG_SANITIZER_MOVED},
  };
  for (int i = 2; i < 20; i++) {
    accesses[i] = accesses[1];
    accesses[i].region.address += 4;
  }
  openreg_sanitizer_launch launch = {.thread = thread, .accesses = accesses, .count = 20};
  OK_OR_NO_MEMORY(openreg_sanitizer_check_launch(sanitizer, &launch));
}

static void allocate_or_fail(uint64_t address, uint64_t bytes) {
  openreg_sanitizer_block block = {.address = address, .bytes = bytes};
  OK_OR_NO_MEMORY(openreg_sanitizer_alloc(sanitizer, &block, false));
}

static void write_rows(openreg_sanitizer_thread *thread, uint64_t address, uint64_t call_site) {
  int64_t sizes[] = {8}, strides[] = {16};
  for (uint64_t i = 0; i < 5; i++) {
    openreg_sanitizer_access access = {.region = {address + 4 * i, 3, 1, sizes, strides},
                                       .mode = WRITE};
    openreg_sanitizer_launch launch = {
        .thread = thread, .call_site = call_site, .accesses = &access, .count = 1};
    OK_OR_NO_MEMORY(openreg_sanitizer_check_launch(sanitizer, &launch));
  }
}

/* Uses everything that needs memory. Without errors, except for one race if asked for. */
static void play(bool is_right) {
  openreg_sanitizer_thread *threads[20] = {NULL};
  openreg_sanitizer_token *token = NULL;
  for (int i = 0; i < 20; i++) {
    OK_OR_NO_MEMORY(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, i, 0, NULL,
                                                    &threads[i]));
    if (threads[i] == NULL)
      return;
  }
  OK_OR_NO_MEMORY(openreg_sanitizer_token_create(sanitizer, 0, &token));
  if (token == NULL)
    return;
  for (uint64_t i = 0; i < 4; i++)
    allocate_or_fail(0x1000 * (i + 1), 0x400);
  openreg_sanitizer_initialise(sanitizer, 0x1000, 0x20);
  write_rows(threads[3], 0x1000, 1);
  OK_OR_NO_MEMORY(openreg_sanitizer_record(sanitizer, token, threads[3], NULL, 0));
  if (is_right)
    openreg_sanitizer_wait(sanitizer, threads[4], token, NULL, 0);
  write_rows(threads[4], 0x1008, 2);
  openreg_sanitizer_order(sanitizer, threads[4], threads[5]);
  openreg_sanitizer_order(sanitizer, threads[3], threads[5]);
  move_rows(threads[5], 0x2000, 0x1000);
  move_rows(threads[5], 0x3004, 0x2000);
  openreg_sanitizer_free(sanitizer, 0x1000, 0);
  allocate_or_fail(0x1080, 0x100);
  openreg_sanitizer_order(sanitizer, threads[5], threads[6]);
  write_rows(threads[6], 0x1080, 3);
  openreg_sanitizer_token_release(sanitizer, token);
  openreg_sanitizer_forget(sanitizer, 0x1000, 0x40);
  openreg_sanitizer_thread_end(sanitizer, threads[6]);
}

static int play_with_failures(bool is_right) {
  openreg_sanitizer_options options = {.callback = ignore};
  int findings = 0;
  has_failed = true;
  for (long at = 0; has_failed; at++) {
    has_failed = false;
    left_to_succeed = at;
    openreg_status status = openreg_sanitizer_create(&options, &sanitizer);
    assert_true(status == OPENREG_OK || (has_failed && status == OPENREG_OUT_OF_MEMORY));
    if (status != OPENREG_OK)
      continue;
    play(is_right);
    left_to_succeed = -1;
    findings = (int)openreg_sanitizer_finding_count(sanitizer);
    if (is_right)
      assert_int_equal(findings, 0);
    openreg_sanitizer_destroy(sanitizer);
    assert_true(at < 10000);
  }
  return findings;
}

static void failed_allocations_cause_no_false_reports(void **state) {
  (void)state;
  assert_int_equal(play_with_failures(true), 0);
}

static void failed_allocations_only_lose_findings(void **state) {
  (void)state;
  assert_true(play_with_failures(false) > 0);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void begin_with(openreg_sanitizer_options options) {
  sanitizer = make_sanitizer(options);
  one = make_stream(sanitizer, 2);
  other = make_stream(sanitizer, 3);
}

static bool conflicts(uint64_t address) {
  openreg_sanitizer_region region = bytes_at(address, 1);
  return openreg_sanitizer_would_conflict(sanitizer, other, &region, READ);
}

static void the_oldest_accesses_are_forgotten(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.max_records = 32});
  allocate(sanitizer, 0x1000, 0x1000, 0);
  for (uint64_t i = 0; i < 100; i++) /* with gaps, so that they are not merged */
    access_bytes(sanitizer, one, 0x1000 + 16 * i, 8, WRITE, 7);
  assert_true(conflicts(0x1000 + 16 * 99));
  assert_true(conflicts(0x1000 + 16 * 80));
  assert_false(conflicts(0x1000));
  assert_in_range(counts(sanitizer).forgotten_records, 68, 80);
  access_bytes(sanitizer, other, 0x1000, 16 * 60, READ, 8);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  openreg_sanitizer_destroy(sanitizer);
}

static void rows_of_one_call_site_are_merged(void **state) {
  (void)state;
  int64_t sizes[] = {4}, strides[] = {0x400};
  begin_with((openreg_sanitizer_options){.max_records = 8});
  allocate(sanitizer, 0x1000, 0x2000, 0);
  for (uint64_t i = 0; i < 64; i++) {
    openreg_sanitizer_region row = {0x1000 + 16 * i, 16, 1, sizes, strides}; /* like a cache */
    access_region(sanitizer, one, row, WRITE, 7);
    access_bytes(sanitizer, one, 0x2000 + 16 * (63 - i), 16, WRITE, 8);
    access_region(sanitizer, one, row, WRITE, 7);
  }
  for (uint64_t i = 0; i < 64; i++)
    for (uint64_t k = 0; k < 4; k++)
      assert_true(conflicts(0x1000 + 0x400 * k + 16 * i + 15));
  assert_false(conflicts(0x2400));
  assert_int_equal(counts(sanitizer).forgotten_records, 0);
  openreg_sanitizer_destroy(sanitizer);
}

static void accesses_of_different_epochs_are_not_merged(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){0});
  make_stream(sanitizer, 4); /* acquires nothing */
  allocate(sanitizer, 0x1000, 0x1000, 0);
  for (uint64_t i = 0; i < 32; i++) {
    access_bytes(sanitizer, one, 0x1000 + 16 * i, 16, WRITE, 7);
    if (i == 15)
      openreg_sanitizer_order(sanitizer, one, other);
  }
  for (uint64_t i = 0; i < 32; i++)
    assert_int_equal(conflicts(0x1000 + 16 * i), i > 15);
  openreg_sanitizer_destroy(sanitizer);
}

/* Regions of one shape next to each other: the sanitizer still knows which bytes were written. */
static void merged_accesses_have_the_same_bytes(void **state) {
  (void)state;
  enum { BYTES = 400, PROGRAMS = 1500 };
  uint64_t random = 41;
  for (int i = 0; i < PROGRAMS; i++) {
    unsigned char bytes[BYTES] = {0};
    struct random_region made;
    begin_with((openreg_sanitizer_options){.max_records = 100000});
    allocate(sanitizer, 0x1000, BYTES, 0);
    random_region(&random, BYTES / 2, &made);
    for (int k = 0; k < 12; k++) {
      openreg_sanitizer_region region = made.region;
      region.address += random_below(&random, 10) * random_below(&random, 10);
      if (!is_within(&region, BYTES))
        continue;
      mark_region(&region, bytes, 1);
      region.address += 0x1000;
      access_region(sanitizer, one, region, WRITE, 7);
    }
    for (uint64_t at = 0; at < BYTES; at++)
      assert_int_equal(conflicts(0x1000 + at), bytes[at]);
    openreg_sanitizer_destroy(sanitizer);
  }
}

static void accesses_before_all_threads_are_dropped(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.max_records = 8});
  allocate(sanitizer, 0x1000, 0x1000, 0);
  for (uint64_t i = 0; i < 100; i++) {
    access_bytes(sanitizer, one, 0x1000 + 16 * i, 8, WRITE, 7);
    openreg_sanitizer_order(sanitizer, one, other);
  }
  assert_int_equal(counts(sanitizer).forgotten_records, 0);
  uint64_t before = openreg_sanitizer_shadow_bytes(sanitizer);
  openreg_sanitizer_free(sanitizer, 0x1000, 0);
  assert_int_equal(counts(sanitizer).freed_blocks, 0);
  assert_true(openreg_sanitizer_shadow_bytes(sanitizer) < before);
  openreg_sanitizer_destroy(sanitizer);
}

static void the_oldest_freed_blocks_are_forgotten(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.max_freed = 10});
  for (uint64_t i = 0; i < 30; i++) {
    allocate(sanitizer, 0x1000 * (i + 1), 0x1000, 0);
    access_bytes(sanitizer, one, 0x1000 * (i + 1), 0x1000, WRITE, 7);
    openreg_sanitizer_free(sanitizer, 0x1000 * (i + 1), 0);
  }
  assert_int_equal(counts(sanitizer).freed_blocks, 10);
  assert_int_equal(counts(sanitizer).forgotten_blocks, 20);
  allocate(sanitizer, 0x1000, 0x1000, 0);
  allocate(sanitizer, 0x1000 * 30, 0x1000, 0);
  assert_false(conflicts(0x1000));
  assert_true(conflicts(0x1000 * 30));
  openreg_sanitizer_destroy(sanitizer);
}

static void memory_stays_about_within_its_limit(void **state) {
  (void)state;
  enum { LIMIT = 200000 };
  begin_with((openreg_sanitizer_options){.max_bytes = LIMIT});
  for (uint64_t i = 0; i < 300; i++) {
    allocate(sanitizer, 0x1000 * (i + 1), 0x1000, 0);
    for (uint64_t k = 0; k < 100; k++)
      access_bytes(sanitizer, one, 0x1000 * (i + 1) + 16 * k, 8, WRITE, k);
    assert_true(conflicts(0x1000 * (i + 1) + 16 * 99));
    if (i % 2 == 0)
      openreg_sanitizer_free(sanitizer, 0x1000 * (i + 1), 0);
  }
  assert_in_range(openreg_sanitizer_shadow_bytes(sanitizer), LIMIT / 2, LIMIT * 3 / 2);
  assert_true(counts(sanitizer).forgotten_records > 0);
  assert_true(counts(sanitizer).forgotten_blocks > 0);
  openreg_sanitizer_destroy(sanitizer);
}

static void forgotten_blocks_release_all_memory(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){0});
  uint64_t before = openreg_sanitizer_shadow_bytes(sanitizer);
  for (int turn = 0; turn < 3; turn++) {
    for (uint64_t i = 1; i <= 50; i++) {
      openreg_sanitizer_block block = {.address = 0x1000 * i, .bytes = 0x1000};
      ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, false));
      write_rows(one, 0x1000 * i, 1);
      move_rows(one, 0x1000 * i, 0x1000 * i + 512);
    }
    for (uint64_t i = 1; i <= 50; i++)
      openreg_sanitizer_free(sanitizer, 0x1000 * i, 0);
  }
  openreg_sanitizer_forget(sanitizer, 0, UINT64_MAX);
  assert_int_equal(openreg_sanitizer_shadow_bytes(sanitizer), before);
  openreg_sanitizer_destroy(sanitizer);
}

/* ---- invalid accesses ------------------------------------------------------------------------ */

static void expect_error(openreg_sanitizer_access access, const char *sentence) {
  openreg_sanitizer_access accesses[] = {{.region = bytes_at(0x1000, 8), .mode = WRITE},
                                         access,
                                         {.region = bytes_at(0, 8), .mode = WRITE}};
  openreg_sanitizer_launch launch = {.thread = one, .accesses = accesses, .count = 3};
  assert_int_equal(openreg_sanitizer_check_launch(sanitizer, &launch), OPENREG_INVALID_ARGUMENT);
  assert_string_equal(openreg_last_error(), sentence);
}

static void invalid_accesses_are_errors(void **state) {
  (void)state;
  int64_t negative[] = {-1}, two[] = {2}, stride[] = {8}, far[] = {INT64_MIN};
  begin_with((openreg_sanitizer_options){0});
  allocate(sanitizer, 0x1000, 0x1000, 0);
  const char *beyond =
      "openreg: access 1 of a launch has a negative size, or an address beyond 2^63";
  expect_error((openreg_sanitizer_access){.region = {0x1000, 8, 1, negative, stride}, .mode = READ},
               beyond);
  expect_error((openreg_sanitizer_access){.region = {0x1000, 8, 1, two, far}, .mode = READ},
               beyond);
  expect_error((openreg_sanitizer_access){.region = bytes_at(UINT64_MAX, 8), .mode = READ}, beyond);
  expect_error((openreg_sanitizer_access){.region = bytes_at(0x1000, 8), .mode = 4},
               "openreg: access 1 of a launch must be a READ, a WRITE, or both");
  expect_error(
      (openreg_sanitizer_access){.region = {0x1000, 8, 65, NULL, NULL}, .mode = READ},
      "openreg: access 1 of a launch has an invalid number of dimensions: expected 0 to 64");
  const char *no_source =
      "openreg: access 1 of a launch is a copy: it must be a WRITE, and its source a READ";
  openreg_sanitizer_access moved = {.region = bytes_at(0x1000, 8), .mode = WRITE, .is_moved = true};
  moved.source = 3;
  expect_error(moved, no_source);
  moved.source = 2;
  expect_error(moved, no_source);
  assert_false(conflicts(0x1000)); /* nothing was changed */
  openreg_sanitizer_access pair[] = {
      {.region = {0x1000, 8, 1, two, stride}, .mode = WRITE, .is_moved = true, .source = 1},
      {.region = bytes_at(0x1100, 8), .mode = READ}};
  openreg_sanitizer_launch launch = {.thread = one, .accesses = pair, .count = 2};
  assert_int_equal(openreg_sanitizer_check_launch(sanitizer, &launch), OPENREG_INVALID_ARGUMENT);
  openreg_sanitizer_destroy(sanitizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failed_allocations_cause_no_false_reports),
      cmocka_unit_test(failed_allocations_only_lose_findings),
      cmocka_unit_test(the_oldest_accesses_are_forgotten),
      cmocka_unit_test(rows_of_one_call_site_are_merged),
      cmocka_unit_test(accesses_of_different_epochs_are_not_merged),
      cmocka_unit_test(merged_accesses_have_the_same_bytes),
      cmocka_unit_test(accesses_before_all_threads_are_dropped),
      cmocka_unit_test(the_oldest_freed_blocks_are_forgotten),
      cmocka_unit_test(memory_stays_about_within_its_limit),
      cmocka_unit_test(forgotten_blocks_release_all_memory),
      cmocka_unit_test(invalid_accesses_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
