/* Compares large copies and fills with memcpy and memset. Bytes around them must not change. */
#define _GNU_SOURCE
#include "child.h"
#include "device/memory/bulk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, MARGIN = 256 };

static unsigned char pattern(size_t i) {
  return (unsigned char)(i * 2654435761u >> 13);
}

static unsigned char *fresh_pages(size_t bytes) {
  void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(pages, MAP_FAILED);
  return pages;
}

static void expect_margins(const unsigned char *target, size_t offset, size_t bytes,
                           unsigned char margin) {
  for (size_t i = 0; i < MARGIN; i++) {
    assert_int_equal(target[offset - MARGIN + i], margin);
    assert_int_equal(target[offset + bytes + i], margin);
  }
}

static void streaming_copies_every_size_and_alignment(void **state) {
  (void)state;
  static const size_t sizes[] = {0,     1,     63,    64,    65,    16383, 16384,
                                 16385, 16447, 16448, 32768, 49153, 100000};
  enum { LARGEST = 100000, ROOM = LARGEST + 4 * MARGIN };
  unsigned char *source = malloc(ROOM), *target = malloc(ROOM);
  for (size_t i = 0; i < ROOM; i++)
    source[i] = pattern(i);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    for (size_t shift = 0; shift < 64; shift += 7) {
      memset(target, 0xAA, ROOM);
      unsigned char *to = target + MARGIN + shift, *from = source + 64 - shift;
      openreg_bulk_copy_streaming(to, from, sizes[s]);
      assert_memory_equal(to, from, sizes[s]);
      expect_margins(target, MARGIN + shift, sizes[s], 0xAA);
    }
  }
  free(source);
  free(target);
}

/* 64 MiB and more: bypasses the caches on committed pages, but not on uncommitted ones. */
static void expect_large_copy(bool committed) {
  size_t bytes = 65 * MIB + 12345, room = bytes + 2 * MARGIN + 4096;
  unsigned char *source = fresh_pages(room), *target = fresh_pages(room);
  for (size_t i = 0; i < room; i++)
    source[i] = pattern(i);
  if (committed)
    memset(target, 0xAA, room);
  openreg_bulk_copy(target + MARGIN + 33, source + 17, bytes);
  assert_memory_equal(target + MARGIN + 33, source + 17, bytes);
  expect_margins(target, MARGIN + 33, bytes, committed ? 0xAA : 0);
  munmap(source, room);
  munmap(target, room);
}

static void large_copies_to_committed_pages_are_right(void **state) {
  (void)state;
  expect_large_copy(true);
}

static void large_copies_to_fresh_pages_are_right(void **state) {
  (void)state;
  expect_large_copy(false);
}

static void copies_to_pages_half_committed_are_right(void **state) {
  (void)state;
  size_t bytes = 3 * MIB;
  unsigned char *source = fresh_pages(bytes), *target = fresh_pages(bytes);
  for (size_t i = 0; i < bytes; i++)
    source[i] = pattern(i);
  for (size_t i = 0; i < bytes; i += 8192)
    target[i] = 0xAA;
  openreg_bulk_copy(target, source, bytes);
  assert_memory_equal(target, source, bytes);
  munmap(source, bytes);
  munmap(target, bytes);
}

static void large_fills_are_right(void **state) {
  (void)state;
  size_t bytes = 3 * MIB + 777, room = bytes + 2 * MARGIN;
  unsigned char *target = fresh_pages(room);
  openreg_bulk_fill(target + MARGIN, 0x155, bytes);
  for (size_t i = 0; i < bytes; i++)
    assert_int_equal(target[MARGIN + i], 0x55);
  expect_margins(target, MARGIN, bytes, 0);
  munmap(target, room);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(streaming_copies_every_size_and_alignment),
      cmocka_unit_test(large_copies_to_committed_pages_are_right),
      cmocka_unit_test(large_copies_to_fresh_pages_are_right),
      cmocka_unit_test(copies_to_pages_half_committed_are_right),
      cmocka_unit_test(large_fills_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
