/* Blocks that come and go at the same addresses: what is remembered of earlier ones. */
#include "player.h"
#include "random.h"

#include <string.h>

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_actor *one, *other;

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
      .address = 0x1000, .bytes = 512, .site = 40, .tag = 41, .owner = 2};
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
  access_bytes(sanitizer, other, 0x1000, 100, READ, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  block.site = 50, block.tag = 51;
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
  access_bytes(sanitizer, one, 0x1040, 100, WRITE, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.site, 10);
  assert_int_equal(finding.first.tag, 1010);
  assert_int_equal(finding.first.actor, 3);
  assert_int_equal(finding.first.block.site, 40);
  assert_int_equal(finding.first.block.tag, 41);
  assert_int_equal(finding.first.block.owner, 2);
  assert_int_equal(finding.first.block.generation, 1);
  assert_int_equal(finding.first.block.freed_site, 44);
  assert_true(finding.first.block.is_freed);
  assert_int_equal(finding.second.site, 11);
  assert_int_equal(finding.second.actor, 2);
  assert_int_equal(finding.second.block.site, 50);
  assert_int_equal(finding.second.block.generation, 2);
  assert_false(finding.second.block.is_freed);
  assert_int_equal(finding.bytes.begin, 0x1040);
  assert_int_equal(finding.bytes.end, 0x1064);
}

static void a_block_that_waited_for_its_users_is_silent(void **state) {
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

static void an_earlier_owner_is_remembered_through_other_sizes(void **state) {
  (void)state;
  allocate(sanitizer, 0x1000, 0x400, 40);
  access_bytes(sanitizer, other, 0x1000, 0x400, WRITE, 10);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  allocate(sanitizer, 0x1100, 0x100, 41); /* in the middle, leaving both ends */
  assert_int_equal(counts(sanitizer).freed_blocks, 2);
  allocate(sanitizer, 0x1000, 0x80, 42);
  allocate(sanitizer, 0x1300, 0x200, 43); /* over the end and beyond */
  assert_int_equal(counts(sanitizer).freed_blocks, 2);
  assert_int_equal(counts(sanitizer).blocks, 3);
  access_bytes(sanitizer, one, 0x1400, 0x100, WRITE, 20); /* nobody was there */
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, one, 0x1100, 4, READ, 21);
  access_bytes(sanitizer, one, 0x1000, 4, READ, 22);
  access_bytes(sanitizer, one, 0x13fc, 8, READ, 23);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 3);
  openreg_sanitizer_free(sanitizer, 0x1100, 45);
  openreg_sanitizer_free(sanitizer, 0x1000, 45);
  openreg_sanitizer_free(sanitizer, 0x1300, 45);
  allocate(sanitizer, 0x1000, 0x1000, 46); /* over all that is left */
  assert_int_equal(counts(sanitizer).freed_blocks, 0);
  access_bytes(sanitizer, one, 0x1280, 4, READ, 24);
  openreg_sanitizer_finding finding;
  assert_true(openreg_sanitizer_finding_get(sanitizer, 3, &finding));
  assert_int_equal(finding.first.site, 10);
  assert_int_equal(finding.first.block.site, 40);
  assert_int_equal(finding.second.block.site, 46);
}

static void a_block_laid_over_live_ones_ends_them(void **state) {
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
  assert_int_equal(block.site, 42);
  access_bytes(sanitizer, one, 0x1100, 4, READ, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.block.freed_site, 42);
}

static void what_lies_in_no_block_is_not_looked_at(void **state) {
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

static void freed_memory_may_not_be_used_where_that_is_asked_for(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.report_freed = true});
  allocate(sanitizer, 0x1000, 0x100, 40);
  openreg_sanitizer_free(sanitizer, 0x1000, 44);
  access_bytes(sanitizer, one, 0x2000, 4, WRITE, 10);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, one, 0x10fe, 4, WRITE, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_USE_AFTER_FREE);
  assert_int_equal(finding.first.site, 44);
  assert_int_equal(finding.first.mode, 0);
  assert_int_equal(finding.first.block.site, 40);
  assert_int_equal(finding.second.site, 11);
  assert_int_equal(finding.bytes.begin, 0x10fe);
  assert_int_equal(finding.bytes.end, 0x1100);
  openreg_sanitizer_destroy(sanitizer);
}

static void what_is_forgotten_is_not_found(void **state) {
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
  assert_int_equal(only_finding(sanitizer).first.site, 11);
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
  assert_int_equal(blocks[0].site, 41);
  assert_int_equal(blocks[1].site, 45);
  assert_int_equal(blocks[1].bytes, 0x200);
  assert_int_equal(blocks[1].tag, 5);
}

static void a_block_beyond_the_last_address_is_refused(void **state) {
  (void)state;
  openreg_sanitizer_block block = {.address = UINT64_MAX - 10, .bytes = 100};
  assert_int_equal(openreg_sanitizer_alloc(sanitizer, &block, true), OPENREG_INVALID_ARGUMENT);
  assert_non_null(strstr(openreg_last_error(), "100 bytes at 0xfffffffffffffff5"));
}

/* Which block has which address, against an array. */
static void any_blocks_are_where_they_were_laid(void **state) {
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
        for (uint64_t k = 0, site = sites[i]; site != 0 && k < SPACE; k++)
          if (sites[k] == site)
            sites[k] = 0;
      for (uint64_t i = begin; i < begin + bytes; i++)
        sites[i] = step, begins[i] = begin;
      if (random_once_in(&random, 2))
        access_bytes(sanitizer, random_once_in(&random, 2) ? one : other, base + begin, bytes, READ,
                     7);
    }
    for (uint64_t i = 0; i < 20; i++) {
      uint64_t at = random_below(&random, SPACE);
      openreg_sanitizer_block block = {.site = 0};
      assert_int_equal(openreg_sanitizer_block_at(sanitizer, base + at, &block), sites[at] != 0);
      assert_int_equal(block.site, sites[at]);
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
      TEST(a_block_that_waited_for_its_users_is_silent),
      TEST(a_block_of_one_stream_needs_nothing),
      TEST(an_earlier_owner_is_remembered_through_other_sizes),
      TEST(a_block_laid_over_live_ones_ends_them),
      TEST(what_lies_in_no_block_is_not_looked_at),
      cmocka_unit_test(freed_memory_may_not_be_used_where_that_is_asked_for),
      TEST(what_is_forgotten_is_not_found),
      TEST(blocks_are_listed_by_address),
      TEST(a_block_beyond_the_last_address_is_refused),
      TEST(any_blocks_are_where_they_were_laid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
