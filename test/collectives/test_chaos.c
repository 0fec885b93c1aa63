/* Eight processes run collectives and messages in one random order until one of them is killed at a
 * random moment. Calls that succeed have correct results, and all other processes learn of the
 * death.
 *
 * CHAOS_ROUNDS sets the number of rounds, CHAOS_SEED the first seed.
 */
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 8, DEFAULT_ROUNDS = 8 };

static _Atomic uint32_t *calls; /* made by each rank */

static uint64_t draw(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * 0x2545F4914F6CDD1Du >> 16;
}

static void write_all(void *address, uint64_t value, size_t bytes) {
  memset(see(address), (int)(value & 0xFF), bytes);
}

static void require_all(const void *address, uint64_t value, size_t bytes) {
  const unsigned char *seen = see(address);
  size_t step = bytes > 4096 ? 61 : 1;
  for (size_t i = 0; i < bytes; i += step)
    REQUIRE(seen[i] == (value & 0xFF));
}

static openreg_status reduce(rank *self, uint64_t call, size_t count) {
  openreg_comm_buffer in = {self->memory, count}, out = {self->memory + MEMORY_BYTES / 2, count};
  openreg_collective what = byte_call(OPENREG_COLLECTIVE_ALL_REDUCE, &in, &out);
  write_all(in.address, call + (uint64_t)self->rank, count);
  openreg_status status = openreg_comm_run(self->comm, &what);
  if (status == OPENREG_OK)
    require_all(out.address, SIZE * call + SIZE * (SIZE - 1) / 2, count);
  return status;
}

static openreg_status all_to_all(rank *self, uint64_t call, size_t count) {
  openreg_comm_buffer in = {self->memory, SIZE * count};
  openreg_comm_buffer out = {self->memory + MEMORY_BYTES / 2, SIZE * count};
  openreg_collective what = byte_call(OPENREG_COLLECTIVE_ALL_TO_ALL, &in, &out);
  for (int i = 0; i < SIZE; i++)
    write_all(self->memory + (size_t)i * count, call + (uint64_t)(self->rank * SIZE + i), count);
  openreg_status status = openreg_comm_run(self->comm, &what);
  for (int i = 0; status == OPENREG_OK && i < SIZE; i++)
    require_all((char *)out.address + (size_t)i * count, call + (uint64_t)(i * SIZE + self->rank),
                count);
  return status;
}

static openreg_status pass_around(rank *self, uint64_t call, size_t count) {
  int next = (self->rank + 1) % SIZE, before = (self->rank + SIZE - 1) % SIZE;
  openreg_message both[] = {
      {true, next, OPENREG_DTYPE_UINT8, {self->memory, count}, false},
      {false, before, OPENREG_DTYPE_UINT8, {self->memory + MEMORY_BYTES / 2, count}, false}};
  write_all(self->memory, call + (uint64_t)self->rank, count);
  openreg_status status = openreg_comm_exchange(self->comm, both, 2, AGES_NS);
  if (status == OPENREG_OK)
    require_all(self->memory + MEMORY_BYTES / 2, call + (uint64_t)before, count);
  return status;
}

static void be_busy(rank *self) {
  static openreg_status (*const kinds[])(rank *, uint64_t, size_t) = {reduce, all_to_all,
                                                                      pass_around};
  static const size_t counts[] = {1, 100, 2000, 5000, 40000, 300000};
  uint64_t state = *(const uint64_t *)self->context | 1;
  for (uint64_t call = 0;; call++) {
    openreg_status status = kinds[draw(&state) % 3](self, call, counts[draw(&state) % 6]);
    atomic_fetch_add(&calls[self->rank], 1);
    if (status == OPENREG_OK)
      continue;
    require_failure(status, " of group 'test' has died (process ");
    return;
  }
}

static void play_round(uint64_t seed) {
  pid_t pids[SIZE];
  uint64_t state = seed;
  int victim = (int)(draw(&state) % SIZE);
  uint32_t moment = (uint32_t)(1 + draw(&state) % 200);
  for (int i = 0; i < SIZE; i++)
    atomic_store(&calls[i], 0);
  start_ranks(SIZE, be_busy, &seed, pids);
  while (atomic_load(&calls[(victim + 1) % SIZE]) < moment)
    sched_yield();
  REQUIRE(kill(pids[victim], SIGKILL) == 0);
  expect_killed(pids[victim]);
  for (int i = 0; i < SIZE; i++)
    if (i != victim)
      expect_exit(pids[i]);
}

static void play(void) {
  const char *rounds = getenv("CHAOS_ROUNDS"), *seed = getenv("CHAOS_SEED");
  int count = rounds == NULL ? DEFAULT_ROUNDS : atoi(rounds);
  uint64_t first = seed == NULL ? 1 : strtoull(seed, NULL, 10);
  calls = share_memory(SIZE * sizeof *calls);
  for (int i = 0; i < count; i++) {
    uint64_t state = (first + (uint64_t)i) * 0x9E3779B97F4A7C15u;
    fprintf(stderr, "round %d\n", i);
    play_round(state);
  }
}

static void all_ranks_learn_of_a_rank_killed_at_any_moment(void **state) {
  (void)state;
  child_expect_pass(play, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_ranks_learn_of_a_rank_killed_at_any_moment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
