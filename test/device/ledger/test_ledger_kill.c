/* Kills a process with SIGKILL at every step of its use of the ledger: joining, reserving,
 * releasing, reclaiming, retiring a control file and leaving. What it had is released, and nothing
 * is left behind.
 *
 * Steps are the system calls on the file and the stores in it that other processes see. A process
 * can be killed before and after each step. Functions intercepted by the linker count them.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "device/ledger/control.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PATIENCE_SECONDS = 250 };

static int last_step; /* step at which to die; 0: none */
static int steps;

static void step(void) {
  if (++steps == last_step)
    kill(getpid(), SIGKILL);
}

/* X(result, name, parameters, arguments) */
#define STEPS(X)                                                                                   \
  X(int, fcntl64, (int file, int command, void *lock), (file, command, lock))                      \
  X(int, linkat, (int from, const char *old, int to, const char *new, int flags),                  \
    (from, old, to, new, flags))                                                                   \
  X(int, posix_fallocate64, (int file, off_t offset, off_t bytes), (file, offset, bytes))          \
  X(int, mkdir, (const char *path, mode_t mode), (path, mode))                                     \
  X(ssize_t, pwrite64, (int file, const void *bytes, size_t count, off_t offset),                  \
    (file, bytes, count, offset))                                                                  \
  X(int, unlink, (const char *path), (path))

#define WRAP(result, name, parameters, arguments)                                                  \
  result __real_##name parameters;                                                                 \
  result __wrap_##name parameters;                                                                 \
  result __wrap_##name parameters {                                                                \
    step();                                                                                        \
    result value = __real_##name arguments;                                                        \
    step();                                                                                        \
    return value;                                                                                  \
  }
STEPS(WRAP)

/* No result: before a store is the same as after the previous step. */
#define STORES(X)                                                                                  \
  X(openreg_control_set_bytes, (struct control_file * file, int device, int slot, uint64_t bytes), \
    (file, device, slot, bytes))                                                                   \
  X(openreg_control_set_identity, (struct control_file * file, int slot, uint64_t identity),       \
    (file, slot, identity))                                                                        \
  X(openreg_control_set_used_slots, (struct control_file * file, int used_slots),                  \
    (file, used_slots))

#define WRAP_STORE(name, parameters, arguments)                                                    \
  void __real_##name parameters;                                                                   \
  void __wrap_##name parameters;                                                                   \
  void __wrap_##name parameters {                                                                  \
    step();                                                                                        \
    __real_##name arguments;                                                                       \
    step();                                                                                        \
  }
STORES(WRAP_STORE)

/* ---- processes ------------------------------------------------------------------------------- */

static uint64_t free_on(int device) {
  uint64_t free_bytes, total_bytes;
  REQUIRE_OK(openreg_ledger_query(device, &free_bytes, &total_bytes));
  return free_bytes;
}

/* Ends by exit, and so leaves the group. */
static void live(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 30 * MIB));
  REQUIRE_OK(openreg_ledger_reserve(1, 20 * MIB));
  (void)free_on(0);
  openreg_ledger_release(0, 10 * MIB);
}

static void live_until_the_step(void) {
  steps = 0;
  signal(SIGALRM, SIG_DFL);
  alarm(PATIENCE_SECONDS); /* a lock kept by a dead process would block it forever */
  live();
}

static void live_with_contexts_until_the_step(void) {
  REQUIRE(setenv("OPENREG_GPU_OVERHEAD", "1", 1) == 0);
  live_until_the_step();
}

static void find_everything_free(void) {
  alarm(PATIENCE_SECONDS);
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB));
  REQUIRE_OK(openreg_ledger_reserve(1, 64 * MIB));
}

static void die_with_all(void) {
  uint64_t all = free_on(0);
  REQUIRE_OK(openreg_ledger_reserve(0, all));
  REQUIRE(kill(getpid(), SIGKILL) == 0);
}

static void die_with_other_devices(void) {
  REQUIRE(setenv("OPENREG_DEVICE_MEMORY", "32M", 1) == 0);
  die_with_all();
}

static void wait_for(const helper *helper, int *wait_status) {
  REQUIRE(waitpid(helper->pid, wait_status, 0) == helper->pid);
  close(helper->commands);
  close(helper->reports);
}

static void be_dead(void (*body)(void)) {
  helper other = helper_start(body);
  int wait_status;
  wait_for(&other, &wait_status);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

/* Returns false if the process ended by itself, because it has no such step. */
static bool die_living(void (*life)(void), int step_number) {
  last_step = step_number;
  helper other = helper_start(life);
  last_step = 0;
  int wait_status;
  wait_for(&other, &wait_status);
  REQUIRE(wait_status == 0 || (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL));
  return wait_status != 0;
}

static bool die_at(int step_number) {
  return die_living(live_until_the_step, step_number);
}

static bool has_control_file(void) {
  return access(child_control_file(child_group()), F_OK) == 0;
}

static void require_nothing_left(void) {
  helper next = helper_start(find_everything_free);
  helper_finish(&next);
  REQUIRE(!has_control_file());
}

/* ---- tests ----------------------------------------------------------------------------------- */

enum { FEWEST_STEPS = 100 }; /* fewer would mean that steps are not counted any more */

/* A synthetic machine starts processes faster. */
#define KILL_TEST(name)                                                                            \
  CHILD_TEST_IN(name, ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M",           \
                                  "HWLOC_SYNTHETIC=core:2 pu:1"))

KILL_TEST(a_process_alone_may_die_at_each_step) {
  int number = 1;
  for (; die_at(number); number++)
    require_nothing_left();
  REQUIRE(number > FEWEST_STEPS);
  REQUIRE(!has_control_file());
}

/* The contexts of this profile have 2 MiB. */
static void has_contexts_body(void) {
  int number = 1;
  for (; die_living(live_with_contexts_until_the_step, number); number++)
    require_nothing_left();
  REQUIRE(number > FEWEST_STEPS);
  REQUIRE(!has_control_file());
}

static void a_process_with_contexts_may_die_at_each_step(void **state) {
  (void)state;
  child_expect_pass(has_contexts_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M",
                                "OPENREG_PROFILE=1x256", "HWLOC_SYNTHETIC=core:2 pu:1"));
}

static void stay(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 4 * MIB));
  for (;;) {
    report(free_on(0));
    await_cue();
  }
}

KILL_TEST(a_process_that_shares_devices_may_die_at_each_step) {
  helper other = helper_start(stay);
  REQUIRE(helper_receive(&other) == 60 * MIB);
  int number = 1;
  for (; die_at(number); number++) {
    helper_cue(&other);
    REQUIRE(helper_receive(&other) == 60 * MIB);
  }
  REQUIRE(number > FEWEST_STEPS);
  helper_kill(&other);
  require_nothing_left();
}

KILL_TEST(a_process_that_reclaims_from_the_dead_may_die_at_each_step) {
  int number = 1;
  for (bool died = true; died; number++) {
    be_dead(die_with_all);
    died = die_at(number);
    require_nothing_left();
  }
  REQUIRE(number > FEWEST_STEPS);
}

KILL_TEST(a_process_that_replaces_a_control_file_may_die_at_each_step) {
  int number = 1;
  for (bool died = true; died; number++) {
    be_dead(die_with_other_devices);
    died = die_at(number);
    require_nothing_left();
  }
  REQUIRE(number > FEWEST_STEPS);
}

/* ---- random kills ---------------------------------------------------------------------------- */

enum { KILLS = 200, SEED = 20260713 };

static uint64_t random_state = SEED;

static uint32_t random_below(uint32_t end) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((random_state >> 32) * end >> 32);
}

static void take_and_give_for_ever(void) {
  alarm(PATIENCE_SECONDS);
  for (;;) {
    uint64_t bytes = random_below(16 * MIB);
    int device = (int)random_below(2);
    if (openreg_ledger_reserve(device, bytes) == OPENREG_OK)
      openreg_ledger_release(device, bytes);
    report(0);
  }
}

/* The machine determines where processes are when they are killed; the seed determines how far they
 * may run. */
KILL_TEST(processes_may_die_at_any_time) {
  enum { AT_ONCE = 3 };
  helper others[AT_ONCE];
  for (int i = 0; i < KILLS + AT_ONCE; i++) {
    if (i >= AT_ONCE)
      helper_kill(&others[i % AT_ONCE]);
    if (i < KILLS) {
      others[i % AT_ONCE] = helper_start(take_and_give_for_ever);
      for (uint32_t turns = random_below(40); turns > 0; turns--)
        helper_receive(&others[i % AT_ONCE]);
    }
  }
  require_nothing_left();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_alone_may_die_at_each_step),
      cmocka_unit_test(a_process_with_contexts_may_die_at_each_step),
      cmocka_unit_test(a_process_that_shares_devices_may_die_at_each_step),
      cmocka_unit_test(a_process_that_reclaims_from_the_dead_may_die_at_each_step),
      cmocka_unit_test(a_process_that_replaces_a_control_file_may_die_at_each_step),
      cmocka_unit_test(processes_may_die_at_any_time),
  };
  print_message("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
