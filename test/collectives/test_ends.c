/* Ranks that are late, that leave, and that abort the group; and which calls of the others succeed.
 */
#include "collectives/comm.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

enum { SHORT_NS = 50000000, LARGE = 1 << 20 };

/* Shared by all ranks of a test. */
struct board {
  _Atomic int done;
};

static struct board *board;

static openreg_collective call_of(openreg_collective_kind kind, uint64_t timeout_ns) {
  return (openreg_collective){.kind = kind, .timeout_ns = timeout_ns};
}

static openreg_status run_barrier(rank *self, uint64_t timeout_ns) {
  openreg_collective barrier = call_of(OPENREG_COLLECTIVE_BARRIER, timeout_ns);
  return openreg_comm_run(self->comm, &barrier);
}

static openreg_status reduce_bytes(rank *self, size_t count, uint64_t timeout_ns) {
  openreg_comm_buffer in = {self->memory, count}, out = {self->memory + MEMORY_BYTES / 2, count};
  openreg_collective sum = call_of(OPENREG_COLLECTIVE_ALL_REDUCE, timeout_ns);
  sum.dtype = OPENREG_DTYPE_UINT8;
  sum.inputs = &in;
  sum.outputs = &out;
  sum.input_count = sum.output_count = 1;
  return openreg_comm_run(self->comm, &sum);
}

static openreg_status pass(rank *self, bool is_send, int peer, size_t count, uint64_t timeout_ns) {
  openreg_message message = {is_send, peer, OPENREG_DTYPE_UINT8, {self->memory, count}, false};
  return openreg_comm_exchange(self->comm, &message, 1, timeout_ns);
}

static void await_done(int count) {
  while (atomic_load(&board->done) < count)
    usleep(1000);
}

/* ---- late ------------------------------------------------------------------------------------ */

static void be_late(rank *self) {
  static const char expected[] = "openreg: ranks 1, 3 of 4 did not reach all_reduce #2 (sum, "
                                 "uint8, 10 elements) of group 'test' within 0.05 s";
  REQUIRE_OK(run_barrier(self, AGES_NS));
  if (self->rank % 2 == 1)
    await_done(2);
  /* Rank 0 gives up after rank 2 has arrived. */
  while (self->rank == 0 && atomic_load(&self->comm->shm->members[2].arrived_round) < 2)
    usleep(1000);
  require_failure(reduce_bytes(self, 10, self->rank == 0 ? SHORT_NS : AGES_NS), expected);
  require_failure(openreg_comm_check(self->comm), expected);
  atomic_fetch_add(&board->done, 1);
}

static void be_late_everywhere(void) {
  board = share_memory(sizeof *board);
  run_as_processes(4, 1, be_late, NULL);
  board = share_memory(sizeof *board);
  run_as_threads(4, be_late, NULL);
}

static void a_late_rank_is_named(void **state) {
  (void)state;
  child_expect_pass(be_late_everywhere, MANY_DEVICES);
}

static void wait_for_message(rank *self) {
  if (self->rank == 0)
    require_failure(pass(self, false, 1, 7, SHORT_NS),
                    "openreg: rank 1 did not send message #1 (uint8, 7 elements) to rank 0 of "
                    "group 'test' within 0.05 s");
  else
    await_done(1);
  atomic_fetch_add(&board->done, 1);
}

static void wait_for_receiver(rank *self) {
  if (self->rank == 0) {
    REQUIRE_OK(pass(self, true, 1, 7, SHORT_NS));
    require_failure(pass(self, true, 1, LARGE, SHORT_NS),
                    "openreg: rank 1 did not receive message #2 (uint8, 1048576 elements) from "
                    "rank 0 of group 'test' within 0.05 s");
  } else {
    await_done(1);
    REQUIRE(pass(self, false, 0, 7, AGES_NS) == OPENREG_COMMUNICATION_FAILURE);
  }
  atomic_fetch_add(&board->done, 1);
}

static void pass_late(void) {
  board = share_memory(sizeof *board);
  run_as_processes(2, 1, wait_for_message, NULL);
  board = share_memory(sizeof *board);
  run_as_processes(2, 1, wait_for_receiver, NULL);
}

static void a_message_without_its_counterpart_names_the_peer(void **state) {
  (void)state;
  child_expect_pass(pass_late, MANY_DEVICES);
}

static void call_with_names(rank *self) {
  if (self->rank == 0)
    require_failure(run_barrier(self, SHORT_NS),
                    "openreg: rank 30 did not reach barrier #1 of group 'tp' within 0.05 s");
  else
    await_done(1);
  atomic_fetch_add(&board->done, 1);
}

static void name_ranks(void) {
  static const int names[] = {10, 30};
  static const openreg_comm_options options = {
      .name = "tp", .timeout_ns = AGES_NS, .rank_names = names};
  join_options = &options;
  board = share_memory(sizeof *board);
  run_as_processes(2, 1, call_with_names, NULL);
}

static void messages_show_the_rank_names_of_the_larger_group(void **state) {
  (void)state;
  child_expect_pass(name_ranks, MANY_DEVICES);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Rank 2 exits; the others can still exchange messages, and receive what it sent before. */
static void leave_early(rank *self) {
  REQUIRE_OK(run_barrier(self, AGES_NS));
  if (self->rank == 2) {
    memset(see(self->memory), 9, 100);
    REQUIRE_OK(pass(self, true, 0, 100, AGES_NS));
    if (self->context == NULL)
      exit(0); /* without destroying the communicator */
    return;
  }
  require_failure(run_barrier(self, AGES_NS), "openreg: rank 2 of group 'test' has left");
  require_failure(run_barrier(self, AGES_NS), "openreg: rank 2 of group 'test' has left");
  REQUIRE_OK(openreg_comm_check(self->comm));
  if (self->rank == 0) {
    REQUIRE_OK(pass(self, false, 2, 100, AGES_NS));
    REQUIRE(*(unsigned char *)see(self->memory) == 9);
    require_failure(pass(self, false, 2, 100, AGES_NS), "openreg: rank 2 of group 'test' has left");
    REQUIRE_OK(pass(self, true, 1, LARGE, AGES_NS));
  } else {
    REQUIRE_OK(pass(self, false, 0, LARGE, AGES_NS));
  }
}

static void leave_everywhere(void) {
  run_as_processes(3, 1, leave_early, NULL);
  run_as_processes(3, 1, leave_early, "");
  run_as_threads(3, leave_early, "");
}

static void a_rank_that_left_fails_the_ranks_that_wait_for_it(void **state) {
  (void)state;
  child_expect_pass(leave_everywhere, MANY_DEVICES);
}

/* Rank 0 has published a buffer that rank 1 may read, and gives up on rank 2. Rank 1 must not take
 * what rank 0 writes there next for the message. */
static void leave_a_message(rank *self) {
  if (self->rank == 2)
    return;
  if (self->rank == 1) {
    await_done(1);
    require_failure(pass(self, false, 0, LARGE, AGES_NS),
                    "openreg: rank 2 of group 'test' has left");
    return;
  }
  openreg_message both[] = {{true, 1, OPENREG_DTYPE_UINT8, {self->memory, LARGE}, false},
                            {false, 2, OPENREG_DTYPE_UINT8, {self->memory + LARGE, 1}, false}};
  require_failure(openreg_comm_exchange(self->comm, both, 2, AGES_NS),
                  "openreg: rank 2 of group 'test' has left");
  atomic_fetch_add(&board->done, 1);
}

static void leave_a_message_everywhere(void) {
  board = share_memory(sizeof *board);
  run_as_processes(3, 1, leave_a_message, NULL);
}

static void an_unread_message_of_a_failed_call_aborts_the_group(void **state) {
  (void)state;
  child_expect_pass(leave_a_message_everywhere, MANY_DEVICES);
}

/* All arrive in the last round. A slow rank finds that others have left, and succeeds. */
static void end_together(rank *self) {
  for (int i = 0; i < 20; i++)
    REQUIRE_OK(reduce_bytes(self, i % 2 == 0 ? 10 : 50000, AGES_NS));
}

static void end_together_often(void) {
  for (int i = 0; i < 8; i++)
    run_as_processes(4, 1, end_together, NULL);
}

static void a_call_that_has_all_it_needs_succeeds_when_others_have_left(void **state) {
  (void)state;
  child_expect_pass(end_together_often, MANY_DEVICES);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void abort_it(rank *self) {
  static const char expected[] = "openreg: rank 1 of group 'test' aborted the group: no more data";
  if (self->rank == 1)
    openreg_comm_abort(self->comm, "no more data");
  if (self->rank == 2)
    require_failure(pass(self, false, 0, 10, AGES_NS), expected);
  require_failure(run_barrier(self, AGES_NS), expected);
  openreg_comm_abort(self->comm, "the first reason stays");
  require_failure(openreg_comm_check(self->comm), expected);
}

static void abort_everywhere(void) {
  run_as_processes(3, 1, abort_it, NULL);
  run_as_threads(3, abort_it, NULL);
}

static void an_abort_wakes_all_with_its_reason(void **state) {
  (void)state;
  child_expect_pass(abort_everywhere, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_late_rank_is_named),
      cmocka_unit_test(a_message_without_its_counterpart_names_the_peer),
      cmocka_unit_test(messages_show_the_rank_names_of_the_larger_group),
      cmocka_unit_test(a_rank_that_left_fails_the_ranks_that_wait_for_it),
      cmocka_unit_test(an_unread_message_of_a_failed_call_aborts_the_group),
      cmocka_unit_test(a_call_that_has_all_it_needs_succeeds_when_others_have_left),
      cmocka_unit_test(an_abort_wakes_all_with_its_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
