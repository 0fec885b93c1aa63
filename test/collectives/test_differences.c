/* Ranks that call different collectives under one number abort the communicator, and the message
 * names two of them. A call with wrong arguments is rejected and does not reach the other ranks. */
#include "ranks.h"

#include <stdio.h>
#include <string.h>

static openreg_comm_buffer host_memory;

static openreg_collective reduce_floats(rank *self, size_t count) {
  static _Thread_local openreg_comm_buffer in, out;
  in = (openreg_comm_buffer){self->memory, count};
  out = (openreg_comm_buffer){self->memory + (MEMORY_BYTES / 2), count};
  return (openreg_collective){.kind = OPENREG_COLLECTIVE_ALL_REDUCE,
                              .dtype = OPENREG_DTYPE_FLOAT32,
                              .inputs = &in,
                              .outputs = &out,
                              .input_count = 1,
                              .output_count = 1,
                              .timeout_ns = AGES_NS};
}

/* How rank 2 of 3 changes its call, and the expected message. */
struct difference {
  void (*change)(openreg_collective *what);
  const char *message;
};

static void other_kind(openreg_collective *what) {
  what->kind = OPENREG_COLLECTIVE_BROADCAST;
  what->root = 2;
}

static void other_dtype(openreg_collective *what) {
  what->dtype = OPENREG_DTYPE_INT32;
}

static void other_reduction(openreg_collective *what) {
  what->reduction = OPENREG_REDUCE_MAX;
}

static void other_count(openreg_collective *what) {
  ((openreg_comm_buffer *)what->inputs)->count--;
  ((openreg_comm_buffer *)what->outputs)->count--;
}

static void barrier_instead(openreg_collective *what) {
  what->kind = OPENREG_COLLECTIVE_BARRIER;
  what->input_count = what->output_count = 0;
}

#define RANK_0                                                                                     \
  "openreg: rank 0 called all_reduce #2 (sum, float32, 1024 elements) of group 'test', "

static const struct difference differences[] = {
    {other_kind, RANK_0 "rank 2 called broadcast #2 (float32, 1024 elements, root 2)"},
    {other_dtype, RANK_0 "rank 2 called all_reduce #2 (sum, int32, 1024 elements)"},
    {other_reduction, RANK_0 "rank 2 called all_reduce #2 (max, float32, 1024 elements)"},
    {other_count, RANK_0 "rank 2 called all_reduce #2 (sum, float32, 1023 elements)"},
    {barrier_instead, RANK_0 "rank 2 called barrier #2"},
};

static void differ(rank *self) {
  const struct difference *difference = self->context;
  openreg_collective what = reduce_floats(self, 1024);
  REQUIRE(openreg_comm_next_number(self->comm) == 1);
  REQUIRE_OK(openreg_comm_run(self->comm, &what));
  if (self->rank == 2)
    difference->change(&what);
  require_failure(openreg_comm_run(self->comm, &what), difference->message);
  require_failure(openreg_comm_check(self->comm), difference->message);
  require_failure(openreg_comm_run(self->comm, &what), difference->message);
}

static void differ_in_each(void) {
  for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
    run_as_processes(3, 1, differ, &differences[i]);
}

static void a_difference_names_two_ranks_and_both_calls(void **state) {
  (void)state;
  child_expect_pass(differ_in_each, MANY_DEVICES);
}

static void differ_in_root(rank *self) {
  openreg_collective what = reduce_floats(self, 10);
  what.kind = OPENREG_COLLECTIVE_BROADCAST;
  what.input_count = self->rank == 0;
  what.root = 0;
  if (self->rank == 1) {
    what.root = 1;
    what.input_count = 1;
  }
  require_failure(openreg_comm_run(self->comm, &what),
                  "rank 1 called broadcast #1 (float32, 10 elements, root 1)");
}

static void differ_in_lengths(rank *self) {
  openreg_comm_buffer in[] = {{self->memory, 10}, {self->memory, 20}}, out = {self->memory, 0};
  if (self->rank == 1)
    in[0].count = 20, in[1].count = 10;
  out.count = in[self->rank].count;
  openreg_collective what = reduce_floats(self, 10);
  what.kind = OPENREG_COLLECTIVE_REDUCE_SCATTER;
  what.inputs = in;
  what.input_count = 2;
  what.outputs = &out;
  require_failure(openreg_comm_run(self->comm, &what), "the lengths for each rank differ");
}

/* Rank 0 sends a length that rank 1 does not expect: both report it, in all three collectives. */
static void differ_in_exchange(rank *self) {
  openreg_comm_buffer in[] = {{self->memory, 8}, {self->memory, 9}};
  openreg_comm_buffer out[] = {{self->memory + 1024, 8}, {self->memory + 2048, 8}};
  if (self->rank == 1)
    in[0].count = in[1].count = 8;
  openreg_collective what = reduce_floats(self, 10);
  what.kind = OPENREG_COLLECTIVE_ALL_TO_ALL;
  what.inputs = in;
  what.outputs = out;
  what.input_count = what.output_count = 2;
  require_failure(openreg_comm_run(self->comm, &what),
                  "openreg: in all_to_all #1 of group 'test' rank 0 sends 9 elements of float32 to "
                  "rank 1, which expects 8");
}

static void differ_in_scatter(rank *self) {
  openreg_comm_buffer in[] = {{self->memory, 8}, {self->memory, 9}}, out = {self->memory + 1024, 8};
  openreg_collective what = reduce_floats(self, 10);
  what.kind = OPENREG_COLLECTIVE_SCATTER;
  what.inputs = in;
  what.input_count = self->rank == 0 ? 2 : 0;
  what.outputs = &out;
  require_failure(openreg_comm_run(self->comm, &what),
                  "rank 0 sends 9 elements of float32 to rank 1, which expects 8");
}

static void differ_in_gather(rank *self) {
  openreg_comm_buffer out[] = {{self->memory, 8}, {self->memory + 1024, 9}},
                      in = {self->memory + 2048, 8};
  openreg_collective what = reduce_floats(self, 10);
  what.kind = OPENREG_COLLECTIVE_GATHER;
  what.outputs = out;
  what.output_count = self->rank == 0 ? 2 : 0;
  what.inputs = &in;
  require_failure(openreg_comm_run(self->comm, &what),
                  "rank 1 sends 8 elements of float32 to rank 0, which expects 9");
}

static void differ_by_pairs(void) {
  run_as_processes(2, 1, differ_in_root, NULL);
  run_as_processes(2, 1, differ_in_lengths, NULL);
  run_as_processes(2, 1, differ_in_exchange, NULL);
  run_as_processes(2, 1, differ_in_scatter, NULL);
  run_as_processes(2, 1, differ_in_gather, NULL);
}

static void roots_and_lengths_must_match(void **state) {
  (void)state;
  child_expect_pass(differ_by_pairs, MANY_DEVICES);
}

/* ---- rejected -------------------------------------------------------------------------------- */

static void require_refused(rank *self, openreg_status expected, const openreg_collective *what) {
  REQUIRE(openreg_comm_begin(self->comm, what) == expected);
  REQUIRE(openreg_comm_run(self->comm, what) == expected);
  REQUIRE(openreg_comm_next_number(self->comm) == 1);
}

static void call_wrongly(rank *self) {
  openreg_comm_buffer one = {self->memory, 4}, other = {self->memory, 5}, host = {&host_memory, 1};
  openreg_comm_buffer beyond = {self->memory + 8, (size_t)1 << 40}, odd = {self->memory + 1, 1};
  openreg_comm_buffer many = {self->memory, SIZE_MAX / 2}, neighbour = {NULL, 1};
  openreg_comm_buffer three[] = {one, one, one};
  openreg_collective good = reduce_floats(self, 4), what = good;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(self->device + 2, &neighbour.address, &bytes));

  what.outputs = &other;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.input_count = 0;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.output_count = 2;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.kind = OPENREG_COLLECTIVE_COUNT;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.dtype = OPENREG_DTYPE_COUNT;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.reduction = OPENREG_REDUCTION_COUNT;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.reduction = OPENREG_REDUCE_BAND;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.dtype = OPENREG_DTYPE_FLOAT8;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.kind = OPENREG_COLLECTIVE_REDUCE, what.root = 2;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what.root = -1;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what = good, what.kind = OPENREG_COLLECTIVE_ALL_TO_ALL, what.inputs = three, what.input_count = 3;
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);
  what.inputs = &other, what.input_count = 1; /* 5 elements for 2 ranks */
  require_refused(self, OPENREG_INVALID_ARGUMENT, &what);

  const openreg_comm_buffer *const bad[] = {&host, &beyond, &odd, &many, &neighbour};
  for (int i = 0; i < 5; i++) {
    bool is_too_long = bad[i] == &beyond || bad[i] == &many;
    what = good, what.inputs = what.outputs = bad[i];
    require_refused(self, is_too_long ? OPENREG_INVALID_ARGUMENT : OPENREG_INVALID_ADDRESS, &what);
  }
  what = good, what.reduction = OPENREG_REDUCE_PREMUL_SUM, what.factor_address = &host_memory;
  require_refused(self, OPENREG_INVALID_ADDRESS, &what);

  REQUIRE(openreg_comm_finish(self->comm, 0) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_comm_run(self->comm, &good));
}

static void call_wrongly_everywhere(void) {
  run_as_processes(2, 1, call_wrongly, NULL);
}

static void wrong_arguments_are_rejected_and_use_no_number(void **state) {
  (void)state;
  child_expect_pass(call_wrongly_everywhere, MANY_DEVICES);
}

/* ---- in two steps ---------------------------------------------------------------------------- */

static void begin_and_finish(rank *self) {
  static const size_t sizes[] = {10, 1000000};
  for (int i = 0; i < 2; i++) {
    openreg_collective what = reduce_floats(self, sizes[i]);
    float *in = see(what.inputs[0].address), *out = see(what.outputs[0].address);
    for (size_t j = 0; j < sizes[i]; j++)
      in[j] = (float)(j % 100) + (float)self->rank;
    REQUIRE_OK(openreg_comm_begin(self->comm, &what));
    REQUIRE(openreg_comm_begin(self->comm, &what) == OPENREG_INVALID_ARGUMENT);
    openreg_status status;
    do
      status = openreg_comm_finish(self->comm, self->rank == 0 ? 0 : 1000);
    while (status == OPENREG_NOT_READY);
    REQUIRE_OK(status);
    for (size_t j = 0; j < sizes[i]; j++)
      REQUIRE(out[j] == 3 * (float)(j % 100) + 3);
  }
}

/* Rank 0 is not ready until rank 1 has called, however often it asks. */
static void wait_for_late(rank *self) {
  openreg_collective what = reduce_floats(self, 10);
  openreg_message message = {.is_send = self->rank == 0,
                             .peer = 1 - self->rank,
                             .dtype = OPENREG_DTYPE_BYTES,
                             .buffer = {self->memory, 1}};
  if (self->rank == 1) {
    REQUIRE_OK(openreg_comm_exchange(self->comm, &message, 1, AGES_NS));
    REQUIRE_OK(openreg_comm_run(self->comm, &what));
    return;
  }
  REQUIRE_OK(openreg_comm_begin(self->comm, &what));
  for (int i = 0; i < 100; i++)
    REQUIRE(openreg_comm_finish(self->comm, i % 2 == 0 ? 0 : 20000) == OPENREG_NOT_READY);
  REQUIRE_OK(openreg_comm_exchange(self->comm, &message, 1, AGES_NS));
  REQUIRE_OK(openreg_comm_finish(self->comm, UINT64_MAX));
}

static void in_two_steps_everywhere(void) {
  run_as_processes(3, 1, begin_and_finish, NULL);
  run_as_processes(2, 1, wait_for_late, NULL);
}

static void a_collective_in_two_steps_is_not_ready_until_all_have_called_it(void **state) {
  (void)state;
  child_expect_pass(in_two_steps_everywhere, MANY_DEVICES);
}

/* ---- calls that only check ------------------------------------------------------------------- */

/* Large data stays where it is. All ranks still have to make the same call. */
static void check_alone(rank *self) {
  openreg_collective what = reduce_floats(self, 1000000);
  float *in = see(what.inputs[0].address), *out = see(what.outputs[0].address);
  in[0] = 1;
  out[0] = 7;
  what.only_checks = true;
  REQUIRE_OK(openreg_comm_run(self->comm, &what));
  REQUIRE(out[0] == 7);

  openreg_message message = {.is_send = self->rank == 0,
                             .peer = 1 - self->rank,
                             .dtype = OPENREG_DTYPE_FLOAT32,
                             .buffer = {what.outputs[0].address, 1000000},
                             .only_checks = true};
  out[0] = (float)self->rank;
  REQUIRE_OK(openreg_comm_exchange(self->comm, &message, 1, AGES_NS));
  REQUIRE(out[0] == (float)self->rank);

  openreg_collective other = reduce_floats(self, self->rank == 0 ? 1000000 : 999999);
  other.only_checks = true;
  REQUIRE(openreg_comm_run(self->comm, &other) == OPENREG_COMMUNICATION_FAILURE);
}

static void check_alone_everywhere(void) {
  run_as_processes(2, 1, check_alone, NULL);
}

static void a_call_that_only_checks_moves_nothing_and_finds_differences(void **state) {
  (void)state;
  child_expect_pass(check_alone_everywhere, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_difference_names_two_ranks_and_both_calls),
      cmocka_unit_test(roots_and_lengths_must_match),
      cmocka_unit_test(wrong_arguments_are_rejected_and_use_no_number),
      cmocka_unit_test(a_collective_in_two_steps_is_not_ready_until_all_have_called_it),
      cmocka_unit_test(a_call_that_only_checks_moves_nothing_and_finds_differences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
