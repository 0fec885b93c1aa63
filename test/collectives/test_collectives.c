/* Every collective against a plain reference: numbers of ranks, lengths, in place or not. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One test case. Elements are 32-bit integers that encode sender, receiver and index. */
struct plan {
  openreg_collective_kind kind;
  size_t count; /* elements of a buffer; some are longer when is_uneven */
  bool is_in_place, is_uneven, is_whole;
};

static int32_t value_of(int sender, int receiver, size_t place) {
  return (int32_t)((size_t)sender * 7919 + (size_t)receiver * 104729 + place * 13);
}

/* How many elements go from one rank to another. */
static size_t length(const struct plan *plan, int sender, int receiver) {
  switch (plan->kind) {
  case OPENREG_COLLECTIVE_REDUCE_SCATTER:
  case OPENREG_COLLECTIVE_SCATTER:
    return plan->count + (plan->is_uneven ? (size_t)receiver : 0);
  case OPENREG_COLLECTIVE_ALL_GATHER:
  case OPENREG_COLLECTIVE_GATHER:
    return plan->count + (plan->is_uneven ? (size_t)sender : 0);
  case OPENREG_COLLECTIVE_ALL_TO_ALL:
    return plan->is_uneven ? plan->count * (size_t)((sender + 2 * receiver) % 3) : plan->count;
  default:
    return plan->count;
  }
}

static bool has_inputs_per_rank(openreg_collective_kind kind) {
  return kind == OPENREG_COLLECTIVE_REDUCE_SCATTER || kind == OPENREG_COLLECTIVE_SCATTER ||
         kind == OPENREG_COLLECTIVE_ALL_TO_ALL;
}

static bool has_outputs_per_rank(openreg_collective_kind kind) {
  return kind == OPENREG_COLLECTIVE_ALL_GATHER || kind == OPENREG_COLLECTIVE_GATHER ||
         kind == OPENREG_COLLECTIVE_ALL_TO_ALL;
}

static bool has_input(openreg_collective_kind kind, bool is_root) {
  if (kind == OPENREG_COLLECTIVE_BROADCAST || kind == OPENREG_COLLECTIVE_SCATTER)
    return is_root;
  return kind != OPENREG_COLLECTIVE_BARRIER;
}

static bool has_output(openreg_collective_kind kind, bool is_root) {
  if (kind == OPENREG_COLLECTIVE_REDUCE || kind == OPENREG_COLLECTIVE_GATHER)
    return is_root;
  return kind != OPENREG_COLLECTIVE_BARRIER;
}

static bool reduces(openreg_collective_kind kind) {
  return kind == OPENREG_COLLECTIVE_ALL_REDUCE || kind == OPENREG_COLLECTIVE_REDUCE ||
         kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
}

enum { HALF_OF_MEMORY = MEMORY_BYTES / 2, GUARD = 0x55 };

/* Writes this rank's inputs; returns their number. */
static int lay_inputs(const rank *self, const struct plan *plan, openreg_comm_buffer buffers[]) {
  int count = has_inputs_per_rank(plan->kind) ? self->size : 1;
  unsigned char *place = self->memory;
  for (int i = 0; i < count; i++) {
    size_t elements = length(plan, self->rank, i);
    int32_t *seen = see(place);
    for (size_t j = 0; j < elements; j++)
      seen[j] = value_of(self->rank, has_inputs_per_rank(plan->kind) ? i : 0, j);
    buffers[i] = (openreg_comm_buffer){elements == 0 ? NULL : place, elements};
    place += elements * sizeof(int32_t);
  }
  return count;
}

static int lay_outputs(const rank *self, const struct plan *plan, openreg_comm_buffer buffers[]) {
  int count = has_outputs_per_rank(plan->kind) ? self->size : 1;
  unsigned char *place = self->memory + HALF_OF_MEMORY;
  for (int i = 0; i < count; i++) {
    size_t elements = length(plan, i, self->rank);
    buffers[i] = (openreg_comm_buffer){elements == 0 ? NULL : place, elements};
    place += elements * sizeof(int32_t);
  }
  memset(see(self->memory + HALF_OF_MEMORY), GUARD,
         (size_t)(place - self->memory) - HALF_OF_MEMORY + 64);
  return count;
}

/* Puts each output where the input is that goes to the same place. */
static void share_memory_in_place(const rank *self, const struct plan *plan,
                                  openreg_comm_buffer inputs[], openreg_comm_buffer outputs[]) {
  if (has_inputs_per_rank(plan->kind) && has_outputs_per_rank(plan->kind))
    outputs[self->rank] = inputs[self->rank];
  else if (has_inputs_per_rank(plan->kind))
    outputs[0] = inputs[self->rank];
  else if (has_outputs_per_rank(plan->kind)) {
    memcpy(see(outputs[self->rank].address), see(inputs[0].address),
           inputs[0].count * sizeof(int32_t));
    inputs[0] = outputs[self->rank];
  } else {
    outputs[0] = inputs[0];
  }
}

static int32_t expected(const rank *self, const struct plan *plan, int root, int sender,
                        size_t place) {
  bool scatters = has_inputs_per_rank(plan->kind);
  if (!reduces(plan->kind))
    return value_of(has_outputs_per_rank(plan->kind) ? sender : root, scatters ? self->rank : 0,
                    place);
  uint32_t sum = 0;
  for (int i = 0; i < self->size; i++)
    sum += (uint32_t)value_of(i, scatters ? self->rank : 0, place);
  return (int32_t)sum;
}

static void require_outputs(const rank *self, const struct plan *plan, int root,
                            const openreg_comm_buffer outputs[], int count) {
  for (int i = 0; i < count; i++) {
    const int32_t *seen = see(outputs[i].address);
    for (size_t j = 0; j < outputs[i].count; j++)
      if (seen[j] != expected(self, plan, root, i, j)) {
        fprintf(
            stderr, "%s of %zu, %s%s%s rank %d of %d, root %d: buffer %d, index %zu: %d, not %d\n",
            openreg_collective_name(plan->kind), plan->count, plan->is_in_place ? "in place, " : "",
            plan->is_uneven ? "uneven, " : "", plan->is_whole ? "whole, " : "", self->rank,
            self->size, root, i, j, seen[j], expected(self, plan, root, i, j));
        REQUIRE(!"the reference's value");
      }
  }
}

static void run_plan(rank *self, const struct plan *plan, int root) {
  openreg_comm_buffer inputs[MOST_RANKS], outputs[MOST_RANKS];
  bool is_root = self->rank == root;
  int input_count = lay_inputs(self, plan, inputs);
  int output_count = lay_outputs(self, plan, outputs);
  unsigned char *end = (unsigned char *)outputs[output_count - 1].address +
                       outputs[output_count - 1].count * sizeof(int32_t);
  if (plan->is_in_place && has_input(plan->kind, is_root) && has_output(plan->kind, is_root))
    share_memory_in_place(self, plan, inputs, outputs);
  openreg_comm_buffer whole_in = {inputs[0].address, 0}, whole_out = {outputs[0].address, 0};
  for (int i = 0; i < input_count; i++)
    whole_in.count += inputs[i].count;
  for (int i = 0; i < output_count; i++)
    whole_out.count += outputs[i].count;
  openreg_collective what = {
      .kind = plan->kind,
      .dtype = OPENREG_DTYPE_INT32,
      .root = root,
      .inputs = plan->is_whole ? &whole_in : inputs,
      .outputs = plan->is_whole ? &whole_out : outputs,
      .input_count = has_input(plan->kind, is_root) ? (plan->is_whole ? 1 : input_count) : 0,
      .output_count = has_output(plan->kind, is_root) ? (plan->is_whole ? 1 : output_count) : 0,
      .timeout_ns = AGES_NS,
  };
  REQUIRE_OK(openreg_comm_run(self->comm, &what));
  if (what.output_count > 0)
    require_outputs(self, plan, root, outputs, output_count);
  const unsigned char *guard = see(end);
  for (int i = 0; i < 64 && outputs[output_count - 1].count > 0; i++)
    REQUIRE(guard[i] == GUARD);
}

static const size_t counts[] = {0, 1, 2, 7, 64, 500, 2048, 4096, 4097, 20011, 100003};

static void run_all_plans(rank *self) {
  for (int kind = 0; kind < OPENREG_COLLECTIVE_COUNT; kind++)
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] - (self->size > 3); i++)
      for (int form = 0; form < 6; form++) {
        struct plan plan = {.kind = (openreg_collective_kind)kind,
                            .count = counts[i],
                            .is_in_place = form % 2 == 1,
                            .is_uneven = form / 2 == 1,
                            .is_whole = form / 2 == 2};
        if (plan.is_whole && plan.is_in_place)
          continue; /* then the buffers do not follow each other */
        run_plan(self, &plan, (kind + form + (int)i) % self->size);
      }
}

#define KINDS(size)                                                                                \
  static void threads_##size##_body(void) {                                                        \
    run_as_threads(size, run_all_plans, NULL);                                                     \
  }                                                                                                \
  static void all_kinds_between_##size##_threads(void **state) {                                   \
    (void)state;                                                                                   \
    child_expect_pass(threads_##size##_body, MANY_DEVICES);                                        \
  }                                                                                                \
  static void processes_##size##_body(void) {                                                      \
    run_as_processes(size, 1, run_all_plans, NULL);                                                \
  }                                                                                                \
  static void all_kinds_between_##size##_processes(void **state) {                                 \
    (void)state;                                                                                   \
    child_expect_pass(processes_##size##_body, MANY_DEVICES);                                      \
  }

KINDS(1)
KINDS(2)
KINDS(3)
KINDS(8)

static void mixed_body(void) {
  run_as_processes(5, 2, run_all_plans, NULL);
}

static void all_kinds_between_processes_with_two_ranks(void **state) {
  (void)state;
  child_expect_pass(mixed_body, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_kinds_between_1_threads),
      cmocka_unit_test(all_kinds_between_2_threads),
      cmocka_unit_test(all_kinds_between_3_threads),
      cmocka_unit_test(all_kinds_between_8_threads),
      cmocka_unit_test(all_kinds_between_1_processes),
      cmocka_unit_test(all_kinds_between_2_processes),
      cmocka_unit_test(all_kinds_between_3_processes),
      cmocka_unit_test(all_kinds_between_8_processes),
      cmocka_unit_test(all_kinds_between_processes_with_two_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
