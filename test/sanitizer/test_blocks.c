/* Blocks that are allocated and freed at the same addresses: which earlier accesses are remembered.
 */
#include "player.h"
#include "random.h"

#include <string.h>

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_thread *one, *other;

static void begin_with(openreg_sanitizer_options options) {
  sanitizer = make_sanitizer(options);
  one = make_stream(sanitizer, 2);
  other = make_stream(sanitizer, 3);
}

static int begin(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){0});
  return 0;
}

static int end(void **state) {
  (void)state;
  openreg_sanitizer_destroy(sanitizer);
  return 0;
}

static void an_earlier_block_used_by_another_stream_is_named(void **state) {
  (void)state;
  openreg_sanitizer_block block = {
      .address = 0x1000, .bytes = 512, .call_site = 40, .tag = 41, .owner = 2};
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
  access_bytes(sanitizer, other, 0x1000, 100, READ, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  block.call_site = 50, block.tag = 51;
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
  access_bytes(sanitizer, one, 0x1040, 100, WRITE, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.call_site, 10);
  assert_int_equal(finding.first.tag, 1010);
  assert_int_equal(finding.first.thread, 3);
  assert_int_equal(finding.first.block.call_site, 40);
  assert_int_equal(finding.first.block.tag, 41);
  assert_int_equal(finding.first.block.owner, 2);
  assert_int_equal(finding.first.block.generation, 1);
  assert_int_equal(finding.first.block.freed_call_site, 44);
  assert_true(finding.first.block.is_freed);
  assert_int_equal(finding.second.call_site, 11);
  assert_int_equal(finding.second.thread, 2);
  assert_int_equal(finding.second.block.call_site, 50);
  assert_int_equal(finding.second.block.generation, 2);
  assert_false(finding.second.block.is_freed);
  assert_int_equal(finding.bytes.begin, 0x1040);
  assert_int_equal(finding.bytes.end, 0x1064);
}

static void waiting_for_the_users_of_a_block_is_enough(void **state) {
  (void)state;
  allocate(sanitizer, 0x1000, 512, 40);
  access_bytes(sanitizer, other, 0x1000, 100, READ, 10);
  openreg_sanitizer_order(sanitizer, other, one); /* as after record_stream */
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  allocate(sanitizer, 0x1000, 512, 50);
  access_bytes(sanitizer, one, 0x1000, 512, WRITE, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

static void a_block_of_one_stream_needs_nothing(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 100; i++) {
    allocate(sanitizer, 0x1000, 512, 40);
    access_bytes(sanitizer, one, 0x1000, 500, WRITE, 10);
    access_bytes(sanitizer, one, 0x1000, 500, READ, 11);
    openreg_sanitizer_free(sanitizer, 0x1000, 44);
  }
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  assert_int_equal(counts(sanitizer).freed_blocks, 1);
}

static void earlier_accesses_are_remembered_across_block_sizes(void **state) {
  (void)state;
  allocate(sanitizer, 0x1000, 0x400, 40);
  access_bytes(sanitizer, other, 0x1000, 0x400, WRITE, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  allocate(sanitizer, 0x1100, 0x100, 41); /* in the middle; both ends are left */
  assert_int_equal(counts(sanitizer).freed_blocks, 2);
  allocate(sanitizer, 0x1000, 0x80, 42);
  allocate(sanitizer, 0x1300, 0x200, 43); /* over the end and beyond */
  assert_int_equal(counts(sanitizer).freed_blocks, 2);
  assert_int_equal(counts(sanitizer).blocks, 3);
  access_bytes(sanitizer, one, 0x1400, 0x100, WRITE, 20); /* no accesses */
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, one, 0x1100, 4, READ, 21);
  access_bytes(sanitizer, one, 0x1000, 4, READ, 22);
  access_bytes(sanitizer, one, 0x13fc, 8, READ, 23);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 3);
  openreg_sanitizer_free(sanitizer, 0x1100, 45);
  openreg_sanitizer_free(sanitizer, 0x1000, 45);
  openreg_sanitizer_free(sanitizer, 0x1300, 45);
  allocate(sanitizer, 0x1000, 0x1000, 46); /* over everything that is left */
  assert_int_equal(counts(sanitizer).freed_blocks, 0);
  access_bytes(sanitizer, one, 0x1280, 4, READ, 24);
  openreg_sanitizer_finding finding;
  assert_true(openreg_sanitizer_finding_get(sanitizer, 3, &finding));
  assert_int_equal(finding.first.call_site, 10);
  assert_int_equal(finding.first.block.call_site, 40);
  assert_int_equal(finding.second.block.call_site, 46);
}

static void a_block_over_live_blocks_frees_them(void **state) {
  (void)state;
  openreg_sanitizer_block block;
  allocate(sanitizer, 0x1000, 0x100, 40);
  allocate(sanitizer, 0x1100, 0x100, 41);
  access_bytes(sanitizer, other, 0x1100, 4, WRITE, 10);
  allocate(sanitizer, 0x1080, 0x100, 42);
  assert_int_equal(counts(sanitizer).blocks, 1);
  assert_false(openreg_sanitizer_block_at(sanitizer, 0x1000, &block));
  assert_false(openreg_sanitizer_block_at(sanitizer, 0x1180, &block));
  assert_true(openreg_sanitizer_block_at(sanitizer, 0x117f, &block));
  assert_int_equal(block.call_site, 42);
  access_bytes(sanitizer, one, 0x1100, 4, READ, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.block.freed_call_site, 42);
}

static void accesses_outside_of_blocks_are_ignored(void **state) {
  (void)state;
  allocate(sanitizer, 0x1000, 0x100, 40);
  access_bytes(sanitizer, one, 0x2000, 4, WRITE, 10);
  access_bytes(sanitizer, other, 0x2000, 4, WRITE, 11);
  access_bytes(sanitizer, one, 0x1000, 4, WRITE, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  access_bytes(sanitizer, other, 0x1000, 4, WRITE, 11);
  openreg_sanitizer_free(sanitizer, 0x1004, 44); /* frees nothing */
  openreg_sanitizer_free(sanitizer, 0x9000, 44);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

static void accesses_to_freed_memory_are_reported_on_request(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.report_freed = true});
  allocate(sanitizer, 0x1000, 0x100, 40);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  access_bytes(sanitizer, one, 0x2000, 4, WRITE, 10);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, one, 0x10fe, 4, WRITE, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.call_site, 44);
  assert_int_equal(finding.first.mode, 0);
  assert_int_equal(finding.first.block.call_site, 40);
  assert_int_equal(finding.second.call_site, 11);
  assert_int_equal(finding.bytes.begin, 0x10fe);
  assert_int_equal(finding.bytes.end, 0x1100);
  openreg_sanitizer_destroy(sanitizer);
}

static void forgotten_accesses_are_not_found(void **state) {
  (void)state;
  allocate(sanitizer, 0x1000, 0x300, 40);
  access_bytes(sanitizer, other, 0x1000, 0x300, WRITE, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  openreg_sanitizer_forget(sanitizer, 0x1100, 0x100);
  allocate(sanitizer, 0x1100, 0x100, 41);
  access_bytes(sanitizer, one, 0x1100, 0x100, WRITE, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  openreg_sanitizer_forget(sanitizer, 0, UINT64_MAX);
  allocate(sanitizer, 0x1000, 0x300, 42);
  access_bytes(sanitizer, other, 0x1000, 0x100, WRITE, 12);
  access_bytes(sanitizer, other, 0x1200, 0x100, WRITE, 12);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, other, 0x1100, 0x100, WRITE, 13); /* its block was live */
  assert_int_equal(only_finding(sanitizer).first.call_site, 11);
}

static void blocks_are_listed_by_address(void **state) {
  (void)state;
  openreg_sanitizer_block blocks[2] = {{.address = 0}};
  allocate(sanitizer, 0x3000, 0x100, 43);
  allocate(sanitizer, 0x1000, 0x100, 41);
  allocate(sanitizer, 0x2000, 0x100, 42);
  allocate(sanitizer, 0x4000, 0, 44);
  openreg_sanitizer_free(sanitizer, 0x2000, 0);
  allocate(sanitizer, 0x2000, 0x200, 45);
  assert_int_equal(openreg_sanitizer_blocks(sanitizer, blocks, 2), 3);
  assert_int_equal(blocks[0].call_site, 41);
  assert_int_equal(blocks[1].call_site, 45);
  assert_int_equal(blocks[1].bytes, 0x200);
  assert_int_equal(blocks[1].tag, 5);
}

static void a_block_beyond_the_last_address_is_an_error(void **state) {
  (void)state;
  openreg_sanitizer_block block = {.address = UINT64_MAX - 10, .bytes = 100};
  assert_int_equal(openreg_sanitizer_alloc(sanitizer, &block, true), OPENREG_INVALID_ARGUMENT);
  assert_non_null(strstr(openreg_last_error(), "100 bytes at 0xfffffffffffffff5"));
}

/* Compares which block is at which address with an array. */
static void random_blocks_are_found_by_their_addresses(void **state) {
  (void)state;
  enum { SPACE = 600, STEPS = 20000 };
  uint64_t random = 31, base = 0x10000, sites[SPACE] = {0}, begins[SPACE] = {0};
  for (uint64_t step = 1; step <= STEPS; step++) {
    uint64_t begin = random_below(&random, SPACE), bytes = 1 + random_below(&random, 60);
    if (begin + bytes > SPACE)
      continue;
    uint64_t last = 0;
    if (random_once_in(&random, 3)) {
      openreg_sanitizer_free(sanitizer, base + begin, 0);
      for (uint64_t i = 0; i < SPACE; i++)
        if (sites[i] != 0 && begins[i] == begin)
          sites[i] = 0;
    } else {
      allocate(sanitizer, base + begin, bytes, step);
      for (uint64_t i = begin; i < begin + bytes; i++)
        for (uint64_t k = 0, call_site = sites[i]; call_site != 0 && k < SPACE; k++)
          if (sites[k] == call_site)
            sites[k] = 0;
      for (uint64_t i = begin; i < begin + bytes; i++)
        sites[i] = step, begins[i] = begin;
      if (random_once_in(&random, 2))
        access_bytes(sanitizer, random_once_in(&random, 2) ? one : other, base + begin, bytes, READ,
                     7);
    }
    for (uint64_t i = 0; i < 20; i++) {
      uint64_t at = random_below(&random, SPACE);
      openreg_sanitizer_block block = {.call_site = 0};
      assert_int_equal(openreg_sanitizer_block_at(sanitizer, base + at, &block), sites[at] != 0);
      assert_int_equal(block.call_site, sites[at]);
    }
    size_t count = 0;
    for (uint64_t i = 0; i < SPACE; i++) {
      count += sites[i] != 0 && sites[i] != last;
      last = sites[i];
    }
    assert_int_equal(openreg_sanitizer_blocks(sanitizer, NULL, 0), count);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(an_earlier_block_used_by_another_stream_is_named),
      TEST(waiting_for_the_users_of_a_block_is_enough),
      TEST(a_block_of_one_stream_needs_nothing),
      TEST(earlier_accesses_are_remembered_across_block_sizes),
      TEST(a_block_over_live_blocks_frees_them),
      TEST(accesses_outside_of_blocks_are_ignored),
      cmocka_unit_test(accesses_to_freed_memory_are_reported_on_request),
      TEST(forgotten_accesses_are_not_found),
      TEST(blocks_are_listed_by_address),
      TEST(a_block_beyond_the_last_address_is_an_error),
      TEST(random_blocks_are_found_by_their_addresses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
