/* test_chaos.c: processes that share device memory are killed at random, many times, and leave
 * nothing behind.
 *
 * chaos_worker.c checks what each process must find while it lives. This file checks that no
 * process stops making progress when others are killed, and that the ledger is consistent at any
 * time. When all are gone, devices must be empty, the control file must have no name, and this
 * process must have what it had before.
 */
#include "chaos.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { DEATHS = 40 };
#else
enum { DEATHS = 200 };
#endif

enum {
  MOST_DEATHS = 50 * DEATHS, /* until every event of interest has happened */
  MOST_STEPS = 400,          /* of a process between two deaths */
  PATIENCE_MS = 90000,       /* until the process that is waited for has progressed far enough */
};

static struct chaos *chaos;
static pid_t workers[CHAOS_WORKERS];
static uint64_t random_state = 20240607;
static int killed, left;

static void start(int place) {
  uint64_t random_seed = chaos_next(&random_state);
  struct chaos_place *at = &chaos->places[place];
  atomic_store(&at->must_leave, false);
  atomic_store(&at->steps, 0);
  atomic_fetch_add(&at->life, 1);
  fflush(NULL);
  workers[place] = fork();
  assert_true(workers[place] >= 0);
  if (workers[place] == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no process outlives a failed test */
    chaos_work(chaos, place, random_seed);
  }
}

/* Notices deaths and publishes them. A death that nobody caused is a failure. */
static void notice_deaths(bool start_again) {
  for (int place = 0; place < CHAOS_WORKERS; place++) {
    int status;
    if (workers[place] == 0 || waitpid(workers[place], &status, WNOHANG) != workers[place])
      continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      killed++;
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && chaos->places[place].must_leave)
      left++;
    else
      fail_msg("process %d of %d ended with wait status %#x", place, CHAOS_WORKERS,
               (unsigned)status);
    workers[place] = 0;
    if (start_again)
      start(place);
    else
      atomic_fetch_add(&chaos->places[place].life, 1);
  }
}

static void pause_a_moment(void) {
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void await_steps(int place, uint64_t steps) {
  pid_t pid = workers[place];
  for (int i = 0; workers[place] == pid && atomic_load(&chaos->places[place].steps) < steps; i++) {
    if (i == PATIENCE_MS)
      fail_msg("process %d has stood still at step %" PRIu64, place,
               atomic_load(&chaos->places[place].steps));
    pause_a_moment();
    notice_deaths(true);
  }
}

/* ---- the ledger, as other processes see it --------------------------------------------------- */

static bool is_ours(const openreg_ledger_snapshot *snapshot) {
  return strstr(snapshot->group, getenv("OPENREG_GROUP")) != NULL;
}

static void check_snapshot(const openreg_ledger_snapshot *snapshot) {
  assert_int_equal(snapshot->device_count, TEST_DEVICES);
  for (int device = 0; device < TEST_DEVICES; device++) {
    uint64_t sum = 0;
    for (int i = 0; i < snapshot->process_count; i++)
      sum += snapshot->processes[i].bytes[device];
    assert_int_equal(snapshot->devices[device].used_bytes, sum);
    assert_int_equal(snapshot->devices[device].total_bytes, CAPACITY);
    assert_true(sum <= CAPACITY);
  }
}

/* Checks the snapshot of our group. Returns its number of processes; -1 if there is no group. */
static int check_ledger(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count, processes = -1;
  assert_ok(openreg_ledger_list(&snapshots, &count, &problem));
  if (problem != NULL && strstr(problem, getenv("OPENREG_GROUP")) != NULL &&
      strstr(problem, "check whether a process of the group is stopped") ==
          NULL) /* or the machine is busy */
    fail_msg("%s", problem);
  for (int i = 0; i < count; i++)
    if (is_ours(&snapshots[i])) {
      check_snapshot(&snapshots[i]);
      processes = snapshots[i].process_count;
    }
  openreg_ledger_free_snapshots(snapshots, count);
  return processes;
}

/* ---- what is left ---------------------------------------------------------------------------- */

static int entries(const char *folder, const char *part) {
  int count = 0;
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
    count += strstr(entry->d_name, part) != NULL;
  closedir(directory);
  return count;
}

/* Runs in its own process, because a process that initializes devices joins the group. */
static void require_empty_devices(void) {
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    for (int device = 0; device < TEST_DEVICES; device++) {
      uint64_t free_bytes, total_bytes;
      openreg_block *block;
      if (openreg_ledger_query(device, &free_bytes, &total_bytes) != OPENREG_OK ||
          free_bytes != CAPACITY || total_bytes != CAPACITY ||
          openreg_block_allocate(device, 0, CAPACITY, &block) != OPENREG_OK)
        _exit(1);
    }
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the test -------------------------------------------------------------------------------- */

static void open_inboxes(void) {
  for (int place = 0; place < CHAOS_WORKERS; place++)
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, chaos->inboxes[place]), 0);
}

static void end_all(void) {
  for (int place = 0; place < CHAOS_WORKERS; place++)
    if (workers[place] != 0)
      kill(workers[place], SIGKILL);
  for (int place = 0; place < CHAOS_WORKERS;) {
    notice_deaths(false);
    if (workers[place] == 0)
      place++;
    else
      pause_a_moment();
  }
}

/* Whether every event that must be survived has happened. Chance and the machine's speed decide how
 * many deaths that takes. */
static bool has_seen_enough(void) {
  const struct chaos_counts *counts = &chaos->counts;
  return killed >= DEATHS && left > 0 && counts->opened > DEATHS && counts->verified > DEATHS &&
         counts->events_recorded > 0 && counts->events_waited_for > 0;
}

static void kill_at_random(void) {
  while (!has_seen_enough()) {
    assert_true(killed < MOST_DEATHS);
    int place = (int)(chaos_next(&random_state) % CHAOS_WORKERS);
    await_steps(place, chaos_next(&random_state) % MOST_STEPS);
    if (chaos_next(&random_state) % 8 == 0)
      atomic_store(&chaos->places[place].must_leave, true);
    else
      kill(workers[place], SIGKILL);
    int processes = check_ledger();
    assert_true(processes <= 2 * CHAOS_WORKERS); /* including those that exited and are still
                                                  * recorded */
    notice_deaths(true);
  }
}

static void print_counts(void) {
  const struct chaos_counts *counts = &chaos->counts;
  print_message("%d killed, %d left; %" PRIu64 " parcels sent, %" PRIu64 " blocks opened, %" PRIu64
                " verified, %" PRIu64 " events recorded, %" PRIu64
                " waited for; of the dead %" PRIu64 " refused, %" PRIu64 " failed; %" PRIu64
                " times out of memory\n",
                killed, left, counts->sent, counts->opened, counts->verified,
                counts->events_recorded, counts->events_waited_for, counts->refused_of_the_dead,
                counts->failed_with_the_dead, counts->out_of_memory);
}

static void processes_that_are_killed_leave_nothing_behind(void **state) {
  (void)state;
  int files_before = entries("/proc/self/fd", ""), threads_before = entries("/proc/self/task", "");
  chaos = mmap(NULL, sizeof *chaos, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(chaos, MAP_FAILED);
  open_inboxes();
  for (int place = 0; place < CHAOS_WORKERS; place++)
    start(place);
  kill_at_random();
  end_all();
  print_counts();

  assert_int_equal(check_ledger(), -1);
  char control_files[64];
  snprintf(control_files, sizeof control_files, "/dev/shm/openreg-%u", geteuid());
  assert_int_equal(entries(control_files, getenv("OPENREG_GROUP")), 0);
  require_empty_devices();
  assert_int_equal(check_ledger(), -1);
  for (int place = 0; place < CHAOS_WORKERS; place++)
    for (int end = 0; end < 2; end++)
      close(chaos->inboxes[place][end]);
  assert_int_equal(entries("/proc/self/fd", ""), files_before);
  assert_int_equal(entries("/proc/self/task", ""), threads_before);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processes_that_are_killed_leave_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
