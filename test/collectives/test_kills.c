/* Ranks that are killed, or stopped, at each place of a call: the others hear of it, by the
 * watchdog, and get what had all that it needs; and when a call has failed, nobody writes to its
 * rank's memory any more.
 */
#include "collectives/comm.h"
#include "collectives/reduction.h"
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VICTIM = 1, SMALL = 100, LARGE = 1 << 20, SHORT_NS = 50000000 };

/* ---- where a rank dies ----------------------------------------------------------------------- */

enum place {
  NOWHERE,
  BEFORE_ARRIVAL,
  AFTER_ARRIVAL,
  BEFORE_MATCHING,
  WHILE_MOVING, /* has begun, and moved nothing */
  WHILE_REDUCING,
  WHILE_COPYING,
  BEFORE_SECOND_ARRIVAL,
  AFTER_SECOND_ARRIVAL,
  WHILE_MAPPING, /* of joining */
};

static enum place place; /* of this process */
static int signal_number = SIGKILL;

/* When all have come, for what the others get is certain then. */
static void die_after_arrival(openreg_comm *comm, enum place here) {
  while (place == here && atomic_load(&comm->segment->phase) < comm->phase)
    sched_yield();
  if (place == here)
    REQUIRE(raise(signal_number) == 0);
}

static void die_at(enum place here) {
  if (place == here)
    REQUIRE(raise(signal_number) == 0);
}

void __real_openreg_phase_arrive(openreg_comm *comm);
void __wrap_openreg_phase_arrive(openreg_comm *comm);
void __wrap_openreg_phase_arrive(openreg_comm *comm) {
  bool is_second = comm->call.has_moved;
  die_at(is_second ? BEFORE_SECOND_ARRIVAL : BEFORE_ARRIVAL);
  __real_openreg_phase_arrive(comm);
  die_after_arrival(comm, is_second ? AFTER_SECOND_ARRIVAL : AFTER_ARRIVAL);
}

bool __real_openreg_calls_match(openreg_comm *comm);
bool __wrap_openreg_calls_match(openreg_comm *comm);
bool __wrap_openreg_calls_match(openreg_comm *comm) {
  die_at(BEFORE_MATCHING);
  return __real_openreg_calls_match(comm);
}

bool __real_openreg_moving_begin(openreg_comm *comm);
bool __wrap_openreg_moving_begin(openreg_comm *comm);
bool __wrap_openreg_moving_begin(openreg_comm *comm) {
  bool may_move = __real_openreg_moving_begin(comm);
  die_at(WHILE_MOVING);
  return may_move;
}

static _Atomic int *gate; /* not NULL: for the test of writes after an end */

bool __real_openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                           const void *context);
bool __wrap_openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                           const void *context);
bool __wrap_openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                           const void *context) {
  openreg_reduction_job half = *job;
  half.count /= 2;
  if (place == WHILE_REDUCING)
    REQUIRE(__real_openreg_reduce(&half, is_ended, context));
  die_at(WHILE_REDUCING);
  const openreg_comm *comm = context;
  if (gate != NULL && comm->rank == 0) {
    while (!is_ended(context))
      sched_yield();
    for (int i = 0; i < 1000; i++) { /* who does not wait for this rank is done by now */
      REQUIRE(atomic_load(gate) == 0);
      sched_yield();
    }
    REQUIRE(!__real_openreg_reduce(job, is_ended, context));
    return false;
  }
  return __real_openreg_reduce(job, is_ended, context);
}

bool __real_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes);
bool __wrap_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes);
bool __wrap_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes) {
  if (place == WHILE_COPYING)
    REQUIRE(__real_openreg_copy_tiles(comm, destination, source, bytes / 2));
  die_at(WHILE_COPYING);
  return __real_openreg_copy_tiles(comm, destination, source, bytes);
}

openreg_status __real_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena);
openreg_status __wrap_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena);
openreg_status __wrap_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena) {
  die_at(WHILE_MAPPING);
  return __real_openreg_ipc_open_arena(handle, arena);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static openreg_status run(rank *self, openreg_collective_kind kind, size_t count,
                          uint64_t timeout_ns) {
  size_t all = count * (size_t)self->size;
  openreg_part one = {self->memory, count}, out = {self->memory + MEMORY_BYTES / 2, all};
  if (kind == OPENREG_COLLECTIVE_ALL_REDUCE)
    out.count = count;
  openreg_collective what = {.kind = kind,
                             .dtype = OPENREG_DTYPE_UINT8,
                             .inputs = &one,
                             .outputs = &out,
                             .input_count = 1,
                             .output_count = 1,
                             .timeout_ns = timeout_ns};
  return openreg_comm_run(self->comm, &what);
}

static openreg_status pass(rank *self, bool is_send, int peer, size_t count, uint64_t timeout_ns) {
  openreg_message message = {is_send, peer, OPENREG_DTYPE_UINT8, {self->memory, count}};
  return openreg_comm_exchange(self->comm, &message, 1, timeout_ns);
}

/* ---- killed ---------------------------------------------------------------------------------- */

/* Where a rank dies in which call, and whether the others get what they called. */
struct death {
  enum place place;
  openreg_collective_kind kind;
  size_t count;
  bool others_succeed;
};

static const struct death deaths[] = {
    {BEFORE_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, false},
    {AFTER_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, true},
    {BEFORE_MATCHING, OPENREG_COLLECTIVE_ALL_GATHER, SMALL, true},
    {BEFORE_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {AFTER_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {BEFORE_MATCHING, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {WHILE_MOVING, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {WHILE_REDUCING, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {WHILE_COPYING, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {BEFORE_SECOND_ARRIVAL, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {AFTER_SECOND_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, true},
};

static void see_death(rank *self) {
  const struct death *death = self->context;
  REQUIRE_OK(run(self, death->kind, death->count, AGES_NS));
  if (self->rank == VICTIM)
    place = death->place;
  openreg_status status = run(self, death->kind, death->count, AGES_NS);
  REQUIRE(self->rank != VICTIM);
  if (death->others_succeed)
    REQUIRE_OK(status);
  else
    require_failure(status, "openreg: rank 1 of group 'test' has died (process ");
  require_failure(run(self, death->kind, death->count, AGES_NS), "rank 1 of group 'test' has died");
}

static void run_with_victim(int size, void (*body)(rank *), const void *context) {
  pid_t pids[MOST_RANKS];
  start_ranks(size, body, context, pids);
  expect_killed(pids[VICTIM]);
  for (int rank = 0; rank < size; rank++)
    if (rank != VICTIM)
      expect_exit(pids[rank]);
}

static void die_everywhere(void) {
  for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
    run_with_victim(4, see_death, &deaths[i]);
}

static void a_rank_killed_anywhere_in_a_call_ends_it_for_all(void **state) {
  (void)state;
  child_expect_pass(die_everywhere, MANY_DEVICES);
}

/* With system calls refused that watch a process, it is looked for. */
int __real_openreg_process_watch(int pid);
int __wrap_openreg_process_watch(int pid);
static bool has_no_pidfds;
int __wrap_openreg_process_watch(int pid) {
  return has_no_pidfds ? -1 : __real_openreg_process_watch(pid);
}

static void die_without_pidfds(void) {
  has_no_pidfds = true;
  run_with_victim(3, see_death, &deaths[0]);
}

static void it_is_seen_without_pidfds_too(void **state) {
  (void)state;
  child_expect_pass(die_without_pidfds, MANY_DEVICES);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void die_receiving(rank *self) {
  if (self->rank == VICTIM) {
    place = WHILE_COPYING;
    (void)pass(self, false, 0, LARGE, AGES_NS);
    REQUIRE(!"reached");
  }
  require_failure(pass(self, true, VICTIM, LARGE, AGES_NS), "rank 1 of group 'test' has died");
}

/* What it sent before is received all the same, if the letter was written before its death was
 * seen: the receiver has looked for nothing yet. */
static void die_sending(rank *self) {
  if (self->rank == VICTIM) {
    REQUIRE_OK(pass(self, true, 0, SMALL, AGES_NS));
    raise(SIGKILL);
  }
  openreg_status status = pass(self, false, VICTIM, SMALL, AGES_NS);
  if (status != OPENREG_OK)
    require_failure(status, "rank 1 of group 'test' has died");
  require_failure(pass(self, false, VICTIM, SMALL, AGES_NS), "rank 1 of group 'test' has died");
}

static void die_with_messages(void) {
  run_with_victim(2, die_receiving, NULL);
  run_with_victim(2, die_sending, NULL);
}

static void a_peer_killed_ends_messages(void **state) {
  (void)state;
  child_expect_pass(die_with_messages, MANY_DEVICES);
}

/* ---- joining --------------------------------------------------------------------------------- */

static openreg_comm_id id;

static void join_and_see_death(int number) {
  openreg_comm *comm;
  openreg_comm_options options = {.timeout_ns = AGES_NS};
  if (number == VICTIM)
    place = WHILE_MAPPING;
  openreg_status status = openreg_comm_init(&id, 3, number, number, &options, &comm);
  if (status == OPENREG_COMMUNICATION_FAILURE)
    require_failure(status, "openreg: rank ");
  else /* the memory of who died cannot be reached any more */
    REQUIRE(status == OPENREG_INVALID_ARGUMENT || status == OPENREG_SYSTEM);
  exit(0);
}

static void die_joining(void) {
  pid_t pids[3];
  REQUIRE_OK(openreg_comm_id_create(3, &id));
  for (int i = 0; i < 3; i++) {
    pids[i] = fork();
    REQUIRE(pids[i] >= 0);
    if (pids[i] == 0)
      join_and_see_death(i);
  }
  expect_killed(pids[VICTIM]);
  expect_exit(pids[0]);
  expect_exit(pids[2]);
}

static void a_rank_killed_while_it_maps_fails_joining(void **state) {
  (void)state;
  child_expect_pass(die_joining, MANY_DEVICES);
}

/* ---- writes after an end --------------------------------------------------------------------- */

/* What it points to stays as it is. */
static openreg_status begin_large(rank *self) {
  static openreg_part in, out; /* one rank of a test does this */
  in = (openreg_part){self->memory, LARGE};
  out = (openreg_part){self->memory + MEMORY_BYTES / 2, LARGE};
  openreg_collective what = {.kind = OPENREG_COLLECTIVE_ALL_REDUCE,
                             .dtype = OPENREG_DTYPE_UINT8,
                             .inputs = &in,
                             .outputs = &out,
                             .input_count = 1,
                             .output_count = 1,
                             .timeout_ns = AGES_NS};
  return openreg_comm_begin(self->comm, &what);
}

/* Rank 0 moves until the group is ended, and then a little longer. */
static void fail_while_others_move(rank *self) {
  if (self->rank == 2) {
    REQUIRE_OK(begin_large(self));
    REQUIRE(openreg_comm_finish(self->comm, SHORT_NS) == OPENREG_NOT_READY);
    openreg_comm_abort(self->comm, "enough");
    require_failure(openreg_comm_finish(self->comm, UINT64_MAX), "enough");
    atomic_store(gate, 1);
    return;
  }
  require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS), "enough");
}

static void fail_and_wait(void) {
  gate = share_memory(sizeof *gate);
  run_as_processes(3, 1, fail_while_others_move, NULL);
  atomic_store(gate, 0);
  run_as_threads(3, fail_while_others_move, NULL);
}

static void a_failed_call_waits_for_those_who_move(void **state) {
  (void)state;
  child_expect_pass(fail_and_wait, MANY_DEVICES);
}

/* ---- stopped --------------------------------------------------------------------------------- */

/* A rank that is stopped in the middle of its move is late; the others do not wait for it long.
 * Rank 2 gives up when rank 0 has moved its share, and has seen the victim move. */
static void see_stopped(rank *self) {
  static const char expected[] = "openreg: rank 1 of 3 did not finish all_reduce #2 (sum, uint8, "
                                 "1048576 elements) of group 'test' within 300 s";
  openreg_comm *comm = self->comm;
  const struct openreg_member *members = comm->segment->members;
  REQUIRE_OK(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS));
  if (self->rank == VICTIM) {
    place = WHILE_MOVING;
    signal_number = SIGSTOP;
  }
  if (self->rank != 2) {
    require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS), expected);
    return;
  }
  REQUIRE_OK(begin_large(self));
  while (openreg_comm_finish(comm, 0) == OPENREG_NOT_READY)
    if (atomic_load(&members[0].arrived) == 4 && atomic_load(&members[VICTIM].moving) == 1)
      comm->call.deadline_ns = 0;
  require_failure(openreg_comm_check(comm), expected);
}

static void stop_one(void) {
  pid_t pids[3];
  start_ranks(3, see_stopped, NULL, pids);
  expect_exit(pids[0]);
  expect_exit(pids[2]);
  REQUIRE(kill(pids[VICTIM], SIGCONT) == 0);
  expect_exit(pids[VICTIM]);
}

static void a_stopped_rank_is_late_and_hears_of_it(void **state) {
  (void)state;
  child_expect_pass(stop_one, MANY_DEVICES);
}

/* Who ends a group writes a sentence, and may be killed in the middle of it. */
static void end_without_sentence(rank *self) {
  atomic_store(&self->comm->segment->end, OPENREG_END_BEGINS);
  require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, AGES_NS),
                  "died before it said why");
}

static void end_in_the_middle(void) {
  run_as_processes(2, 1, end_without_sentence, NULL);
}

static void an_end_without_a_sentence_is_one_too(void **state) {
  (void)state;
  child_expect_pass(end_in_the_middle, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_killed_anywhere_in_a_call_ends_it_for_all),
      cmocka_unit_test(it_is_seen_without_pidfds_too),
      cmocka_unit_test(a_peer_killed_ends_messages),
      cmocka_unit_test(a_rank_killed_while_it_maps_fails_joining),
      cmocka_unit_test(a_failed_call_waits_for_those_who_move),
      cmocka_unit_test(a_stopped_rank_is_late_and_hears_of_it),
      cmocka_unit_test(an_end_without_a_sentence_is_one_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
