/* Kills processes at any moment while they export, open, use and close memory. What they had is
 * released, and other processes lose nothing.
 */
#define _GNU_SOURCE
#include "board.h"
#include "device/ipc/exports.h"
#include "device/ipc/imports.h"

#include <sched.h>
#include <unistd.h>

enum { RANGES = 8, RANGE = 24 * PAGE, ROUNDS = 8 };

static uint64_t seed = 99;

static uint64_t draw(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

/* Waits a random time: none, or a few time slices. */
static void pass_time(void) {
  for (uint64_t i = draw() % 200; i > 0; i--)
    sched_yield();
}

static void require_all(const char *memory, char value) {
  const char *bytes = openreg_kernel_view(memory);
  for (size_t i = 0; i < RANGE; i += 64)
    REQUIRE(bytes[i] == value);
}

static char value_of(int range) {
  return (char)(0x10 + range);
}

static void export_all(void) {
  char *base = base_of(0);
  REQUIRE_OK(openreg_ledger_reserve(0, RANGES * RANGE));
  for (int i = 0; i < RANGES; i++) {
    REQUIRE_OK(openreg_fill(base + i * RANGE, value_of(i), RANGE));
    export_memory(base + i * RANGE, RANGE, &board->handles[i]);
  }
  report(0);
  await_cue();
}

/* Memory that was opened at least once, and that no living process has, is released. */
static void export_and_withdraw(void) {
  struct openreg_export *entries;
  export_all();
  REQUIRE_OK(openreg_exports_map(openreg_arena_file(0), arena_bytes(), &entries));
  for (int i = 0; i < RANGES; i++) {
    bool was_opened = atomic_load(&entries[i].handles_opened) > 0;
    REQUIRE(openreg_ipc_withdraw(base_of(0) + i * RANGE) ==
            (was_opened ? OPENREG_OK : OPENREG_NOT_READY));
  }
}

enum { KEPT = 64 };

static char *kept[KEPT];
static int kept_ranges[KEPT], kept_count;

static void close_kept(void) {
  for (; kept_count > 0; kept_count--) {
    require_all(kept[kept_count - 1], value_of(kept_ranges[kept_count - 1]));
    REQUIRE_OK(openreg_ipc_close(kept[kept_count - 1]));
  }
}

/* The thread closes a file later if another importer was reclaiming it. */
static void await_no_peer_files(void) {
  for (bool is_left = true; is_left; sched_yield()) {
    REQUIRE_OK(openreg_imports_lock());
    is_left = openreg_peer_files != NULL;
    openreg_imports_unlock();
  }
}

/* Opens, uses and closes memory until the exporter is dead. Opens handles more than once. */
static void open_and_close(void) {
  report(0);
  await_cue();
  seed = (uint64_t)getpid();
  for (;;) {
    int range = (int)(draw() % RANGES), device;
    void *address;
    size_t bytes;
    openreg_status status = openreg_ipc_open(&board->handles[range], 0, &address, &bytes, &device);
    if (status == OPENREG_INVALID_ARGUMENT)
      break;
    REQUIRE_OK(status);
    require_all(address, value_of(range));
    kept[kept_count] = address;
    kept_ranges[kept_count++] = range;
    if (kept_count == KEPT || draw() % 8 == 0)
      close_kept();
    atomic_fetch_add(&board->flag, 1);
  }
  close_kept();
  await_no_peer_files();
  report(0);
  await_cue();
}

static void require_nothing_in_use(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(0, &free_bytes, &total_bytes));
  REQUIRE(free_bytes == total_bytes);
}

/* Starts an exporter and two importers and lets them run for a while. */
static void start_all(void (*exporter_body)(void), helper *exporter, helper importers[2]) {
  board->flag = 0;
  *exporter = helper_start(exporter_body);
  importers[0] = helper_start(open_and_close);
  importers[1] = helper_start(open_and_close);
  helper_receive(exporter);
  for (int i = 0; i < 2; i++) {
    helper_receive(&importers[i]);
    helper_cue(&importers[i]);
  }
  while (board->flag < 10)
    sched_yield();
  pass_time();
}

CHILD_TEST(memory_of_killed_importers_is_released) {
  board_make();
  for (int round = 0; round < ROUNDS; round++) {
    helper exporter, importers[2];
    start_all(export_and_withdraw, &exporter, importers);
    helper_kill(&importers[0]);
    pass_time();
    helper_kill(&importers[1]);
    helper_dismiss(&exporter);
  }
  require_nothing_in_use();
}

CHILD_TEST(importers_keep_the_memory_of_a_killed_exporter) {
  board_make();
  for (int round = 0; round < ROUNDS; round++) {
    helper exporter, importers[2];
    start_all(export_all, &exporter, importers);
    bool kill_one_too = round % 2 == 1;
    if (kill_one_too && round % 4 == 1)
      helper_kill(&importers[0]);
    pass_time();
    helper_kill(&exporter);
    pass_time();
    if (kill_one_too && round % 4 == 3)
      helper_kill(&importers[0]);
    for (int i = kill_one_too; i < 2; i++) {
      helper_receive(&importers[i]);
      helper_dismiss(&importers[i]);
    }
  }
  require_nothing_in_use();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_of_killed_importers_is_released),
      cmocka_unit_test(importers_keep_the_memory_of_a_killed_exporter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
