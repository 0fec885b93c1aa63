/* Importers of a dead process release memory page by page. The last importer releases it, at a cost
 * that does not depend on how much is left.
 */
#define _GNU_SOURCE
#include "device/ipc/imports.h"
#include "peers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANGES = 200, IMPORTERS = 2 };

static struct range ranges[RANGES];
static openreg_ipc_handle *handles; /* shared: RANGES for each importer, opened once each */

/* Ranges from a few blocks in one page to several pages, with and without gaps. */
static void draw_ranges(void) {
  size_t offset = 0;
  for (int i = 0; i < RANGES; i++) {
    size_t blocks = rand() % 3 == 0 ? 1 + (size_t)rand() % 40 : 1 + (size_t)rand() % 4;
    offset += rand() % 3 == 0 ? OPENREG_EXPORT_ALIGNMENT * ((size_t)rand() % 30) : 0;
    ranges[i] = (struct range){offset, OPENREG_EXPORT_ALIGNMENT * blocks};
    offset += ranges[i].bytes;
  }
}

static void export_ranges(void) {
  char *base = base_of(1);
  REQUIRE_OK(openreg_ledger_reserve(1, 8 * MIB));
  REQUIRE_OK(openreg_fill(base, PATTERN, 8 * MIB));
  for (int i = 0; i < IMPORTERS * RANGES; i++) {
    const struct range *range = &ranges[i % RANGES];
    export_memory(base + range->offset, range->bytes, &handles[i]);
  }
  report(0);
  await_cue();
}

static void prepare(void) {
  board_make();
  handles = mmap(NULL, IMPORTERS * RANGES * sizeof *handles, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(handles != MAP_FAILED);
  draw_ranges();
}

/* ---- system calls ---------------------------------------------------------------------------- */

static _Atomic int lock_calls;

int __real_fcntl64(int file, int command, void *argument);
int __wrap_fcntl64(int file, int command, void *argument);
int __wrap_fcntl64(int file, int command, void *argument) {
  atomic_fetch_add(&lock_calls, 1);
  return __real_fcntl64(file, command, argument);
}

CHILD_TEST(closing_takes_the_same_number_of_calls_for_each_range) {
  enum { CALLS_EACH = 16 };
  char *imported[RANGES];
  prepare();
  helper exporter = helper_start(export_ranges);
  helper_receive(&exporter);
  for (int i = 0; i < RANGES; i++)
    imported[i] = open_memory(&handles[i]);
  helper_kill(&exporter);
  REQUIRE_OK(
      openreg_ipc_close(imported[0])); /* the first close finds that there are no other importers */
  int before = lock_calls;
  for (int i = 1; i < RANGES; i++)
    REQUIRE_OK(openreg_ipc_close(imported[i]));
  REQUIRE(lock_calls - before <= CALLS_EACH * RANGES);
  REQUIRE(used_on(1) == 0);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static bool has[IMPORTERS][RANGES];

static uint64_t bytes_of_all(void) {
  static bool pages[8 * MIB / PAGE];
  uint64_t bytes = 0;
  size_t page_size = page_bytes();
  memset(pages, 0, sizeof pages);
  for (int i = 0; i < RANGES; i++)
    for (size_t page = ranges[i].offset / page_size;
         (has[0][i] || has[1][i]) && page * page_size < ranges[i].offset + ranges[i].bytes; page++)
      pages[page] = true;
  for (size_t page = 0; page < sizeof pages; page++)
    bytes += pages[page] ? page_size : 0;
  return bytes;
}

/* Closes the range named in board->numbers[0]. */
static void be_the_other_importer(void) {
  char *imported[RANGES];
  report(0);
  await_cue();
  for (int i = 0; i < RANGES; i++)
    imported[i] = has[1][i] ? open_memory(&handles[RANGES + i]) : NULL;
  for (;;) {
    report(0);
    await_cue();
    if (board->numbers[0] >= RANGES)
      return;
    REQUIRE_OK(openreg_ipc_close(imported[board->numbers[0]]));
  }
}

static int draw_one_that(int importer) {
  int range = rand() % RANGES;
  while (!has[importer][range])
    range = (range + 1) % RANGES;
  has[importer][range] = false;
  return range;
}

static int count(int importer) {
  int sum = 0;
  for (int i = 0; i < RANGES; i++)
    sum += has[importer][i];
  return sum;
}

/* The importers close ranges in turns. The other importer is killed when it has `left_at_death`
 * ranges left. */
static void share_what_is_left(int percent_of_other, int left_at_death) {
  char *imported[RANGES];
  prepare();
  for (int i = 0; i < RANGES; i++) {
    has[0][i] = rand() % 3 != 0;
    has[1][i] = rand() % 100 < percent_of_other;
  }
  helper exporter = helper_start(export_ranges), other = helper_start(be_the_other_importer);
  helper_receive(&exporter);
  helper_receive(&other);
  for (int i = 0; i < RANGES; i++)
    imported[i] = has[0][i] ? open_memory(&handles[i]) : NULL;
  helper_step(&other);
  helper_kill(&exporter);
  await_used_on(1, bytes_of_all());
  for (bool lives = true; count(0) + count(1) > 0;) {
    if (lives && count(1) == left_at_death && count(0) > 0) {
      helper_kill(&other);
      memset(has[1], 0, sizeof has[1]);
      lives = false;
    }
    if (count(1) > 0 && (count(0) == 0 || rand() % 2 == 0)) {
      board->numbers[0] = (uint64_t)draw_one_that(1);
      helper_step(&other);
    } else {
      REQUIRE_OK(openreg_ipc_close(imported[draw_one_that(0)]));
    }
    await_used_on(1, bytes_of_all());
  }
  await_used_on(1, 0);
}

CHILD_TEST(a_sole_importer_releases_what_it_closes) {
  share_what_is_left(0, 0);
}

CHILD_TEST(importers_release_memory_that_both_have_closed) {
  share_what_is_left(50, 0);
}

CHILD_TEST(an_importer_releases_memory_of_a_killed_one) {
  share_what_is_left(80, RANGES / 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(closing_takes_the_same_number_of_calls_for_each_range),
      cmocka_unit_test(a_sole_importer_releases_what_it_closes),
      cmocka_unit_test(importers_release_memory_that_both_have_closed),
      cmocka_unit_test(an_importer_releases_memory_of_a_killed_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
