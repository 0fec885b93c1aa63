/* Makes each system call of the device layer fail once, at each place where it is called.
 *
 * A scenario is a list of steps. It runs repeatedly in separate processes, with the first, second,
 * ... call of a kind failing, until no call is left to fail. Each time, every step must either
 * succeed, or fail with a message and succeed when it is repeated. At the end nothing may be in
 * use, no descriptor open, and no process in the group.
 */
#define _GNU_SOURCE
#include "base/status.h"
#include "child.h"
#include "device/device.h"
#include "faults.h"
#include "scenarios.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CALLS = 2000, PATIENCE_SECONDS = 250 };

static char group_variable[64]; /* the same for all runs of this program */

/* Results of a run, for the process that started it. */
typedef struct outcome {
  int expected_files, files; /* open descriptors at the end; -1: unknown */
  int failures;
  openreg_status status; /* of the last failure */
  char step[64], message[OPENREG_MESSAGE_BYTES];
} outcome;

enum { FIRST, SECOND, ROLES };

static outcome *outcomes;    /* shared memory: one per process of a scenario */
static outcome *own_outcome; /* of this process */

/* ---- one run --------------------------------------------------------------------------------- */

/* A handle is rejected, as if it were forged, if its exporter cannot be examined. Memory is not
 * released yet if its users are unknown. */
static bool is_plausible(const scenario_step *step, openreg_status status) {
  const char *message = openreg_last_error();
  switch (status) {
  case OPENREG_SYSTEM:
  case OPENREG_OUT_OF_MEMORY:
  case OPENREG_INVALID_CONFIGURATION:
    return strncmp(message, "openreg: ", 9) == 0 && strlen(message) > 20;
  case OPENREG_INVALID_ARGUMENT:
    return strncmp(message, "openreg: the handle is rejected: ", 33) == 0;
  case OPENREG_NOT_READY:
    return strcmp(step->name, "withdraw") == 0;
  default:
    return false;
  }
}

static void note_failure(const scenario_step *step, openreg_status status) {
  own_outcome->failures++;
  own_outcome->status = status;
  snprintf(own_outcome->step, sizeof own_outcome->step, "%s", step->name);
  snprintf(own_outcome->message, sizeof own_outcome->message, "%s", openreg_last_error());
}

/* The reclaimer's thread closes descriptors of ended processes, possibly later because of a fault,
 * so this waits. A descriptor that is never closed shows up as one too many. */
static int await_files(int expected) {
  enum { LOOKS = 20000 };
  const struct timespec pause = {.tv_nsec = 1000000};
  int files = count_descriptors();
  for (int looks = 0; expected >= 0 && files > expected && looks < LOOKS; looks++) {
    nanosleep(&pause, NULL);
    files = count_descriptors();
  }
  return files;
}

static void walk(const scenario_step *steps) {
  alarm(PATIENCE_SECONDS); /* ends the process if it hangs */
  for (const scenario_step *step = steps; step->name != NULL; step++) {
    snprintf(own_outcome->step, sizeof own_outcome->step, "%s", step->name);
    openreg_status status = step->take();
    if (status == OPENREG_OK)
      continue;
    REQUIRE(atomic_load(&fault_current->struck) && own_outcome->failures == 0);
    REQUIRE(fault_current->error != EINTR); /* an interrupted call is not an error */
    note_failure(step, status);
    REQUIRE(is_plausible(step, status));
    REQUIRE_OK(step->take());
  }
  bool armed = atomic_exchange(&fault_armed, false);
  own_outcome->files = await_files(own_outcome->expected_files);
  atomic_store(&fault_armed, armed); /* for the exit of the process */
}

static void alone_body(void) {
  atomic_store(&fault_armed, true);
  walk(scenario_alone);
}

/* The second process is a child of the first. */
static void run_two(const scenario_step *first, const scenario_step *second, int armed) {
  int ends[2], wait_status;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  int role = child == 0 ? SECOND : FIRST;
  scenario_channel = ends[role];
  close(ends[1 - role]); /* so that each sees the death of the other */
  own_outcome = &outcomes[role];
  atomic_store(&fault_armed, role == armed);
  walk(role == FIRST ? first : second);
  if (child == 0)
    exit(0);
  /* Unless a step of the first process waited for it. */
  if (waitpid(child, &wait_status, 0) == child)
    REQUIRE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

static void exporter_body(void) {
  run_two(scenario_exporter, scenario_importer, FIRST);
}

static void importer_body(void) {
  run_two(scenario_exporter, scenario_importer, SECOND);
}

static void importer_that_stays_body(void) {
  run_two(scenario_importer_that_stays, scenario_exporter_that_ends, FIRST);
}

/* ---- all runs -------------------------------------------------------------------------------- */

typedef struct tally {
  int runs, survived, reported;
} tally;

static void group_is_empty_body(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count;
  REQUIRE_OK(openreg_ledger_list(&snapshots, &count, &problem));
  for (int i = 0; i < count; i++)
    REQUIRE(strcmp(snapshots[i].group + strlen("group-"), strchr(group_variable, '=') + 1) != 0);
  openreg_ledger_free_snapshots(snapshots, count);
}

/* Runs in another process, so that this one stays uninitialized. */
static bool group_is_empty(void) {
  static child_result result;
  child_run(&result, group_is_empty_body, NULL);
  return result.wait_status == 0;
}

/* Runs a scenario with one call failing. Returns false if there was no such call. */
static bool run_once(void (*body)(void), enum fault kind, int error, int call,
                     const int files[ROLES], child_result *result) {
  for (int role = 0; role < ROLES; role++)
    outcomes[role] = (outcome){.expected_files = files[role], .files = -1};
  *fault_current = (fault_plan){.kind = kind, .error = error, .call = call};
  child_run(result, body,
            ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=16M", group_variable,
                        "HWLOC_SYNTHETIC=numa:2 core:1 pu:1", "HWLOC_THISSYSTEM=1"));
  return atomic_load(&fault_current->struck);
}

static bool is_good(const child_result *result, const int files[ROLES]) {
  return result->wait_status == 0 && outcomes[FIRST].files == files[FIRST] &&
         outcomes[SECOND].files == files[SECOND] && group_is_empty();
}

static void print_bad(const child_result *result, enum fault kind, int call, int error,
                      const int files[ROLES]) {
  print_message("%s, call %d, %s: wait status %#x, group %s\n", fault_name(kind), call,
                strerror(error), (unsigned)result->wait_status,
                group_is_empty() ? "empty" : "not empty");
  for (int role = 0; role < ROLES && files[role] >= 0; role++)
    print_message("  process %d: %d descriptors of %d, last step '%s', failed with: %s\n", role,
                  outcomes[role].files, files[role], outcomes[role].step, outcomes[role].message);
  print_message("%s\n", result->errors);
}

/* Returns the number of bad runs and prints a few lines about each. */
static int run_all_of(void (*body)(void), enum fault kind, int error, const int files[ROLES],
                      tally *tally) {
  static child_result result;
  int bad = 0;
  for (int call = 0; call < MOST_CALLS && run_once(body, kind, error, call, files, &result);
       call++) {
    bool reported = outcomes[FIRST].failures + outcomes[SECOND].failures > 0;
    tally->runs++;
    tally->reported += reported;
    tally->survived += !reported;
    if (!is_good(&result, files)) {
      bad++;
      print_bad(&result, kind, call, error, files);
    }
  }
  return bad;
}

static void fail_everything(void (*body)(void)) {
  static child_result result;
  int bad = 0;
  int files[ROLES] = {-1, -1};
  bool struck = run_once(body, FAULT_mmap64, ENOMEM, -1, files, &result);
  for (int role = 0; role < ROLES; role++)
    files[role] = outcomes[role].files;
  if (struck || files[FIRST] < 0 || !is_good(&result, files))
    fail_msg("without any fault: wait status %#x at '%s' and '%s': %s",
             (unsigned)result.wait_status, outcomes[FIRST].step, outcomes[SECOND].step,
             result.errors);
  for (enum fault kind = 0; kind < FAULT_KINDS; kind++) {
    tally tally = {0};
    for (int i = 0; fault_error(kind, i) != 0; i++)
      bad += run_all_of(body, kind, fault_error(kind, i), files, &tally);
    if (tally.runs > 0)
      print_message("%-24s %4d runs: %4d went well, %4d reported an error\n", fault_name(kind),
                    tally.runs, tally.survived, tally.reported);
  }
  assert_int_equal(bad, 0);
}

static void a_process_alone_survives_each_fault(void **state) {
  (void)state;
  fail_everything(alone_body);
}

static void an_exporter_survives_each_fault(void **state) {
  (void)state;
  fail_everything(exporter_body);
}

static void an_importer_survives_each_fault(void **state) {
  (void)state;
  fail_everything(importer_body);
}

static void an_importer_survives_each_fault_after_the_end_of_the_exporter(void **state) {
  (void)state;
  fail_everything(importer_that_stays_body);
}

static void without_room_body(void) {
  atomic_store(&fault_armed, true);
  REQUIRE(openreg_fail(OPENREG_SYSTEM, "openreg: lost") == OPENREG_SYSTEM);
  REQUIRE(strstr(openreg_last_error(), "out of host memory while reporting") != NULL);
  REQUIRE(openreg_fail(OPENREG_SYSTEM, "openreg: kept") == OPENREG_SYSTEM);
  REQUIRE(strcmp(openreg_last_error(), "openreg: kept") == 0);
}

static void a_failure_without_memory_for_its_message_says_so(void **state) {
  (void)state;
  *fault_current = (fault_plan){.kind = FAULT_malloc, .error = ENOMEM, .call = 0};
  child_expect_pass(without_room_body, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_alone_survives_each_fault),
      cmocka_unit_test(an_exporter_survives_each_fault),
      cmocka_unit_test(an_importer_survives_each_fault),
      cmocka_unit_test(an_importer_survives_each_fault_after_the_end_of_the_exporter),
      cmocka_unit_test(a_failure_without_memory_for_its_message_says_so),
  };
  fault_prepare();
  snprintf(group_variable, sizeof group_variable, "OPENREG_GROUP=test-faults-%d-%lld",
           (int)getpid(), (long long)time(NULL));
  outcomes = mmap(NULL, ROLES * sizeof *outcomes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  own_outcome = outcomes;
  return outcomes == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
