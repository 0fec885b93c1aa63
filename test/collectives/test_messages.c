/* Sends and receives: small and large, several at a time, to oneself, and mismatches. */
#include "ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <pthread.h>

enum { SMALL = 100, LARGE = 300000, MIB = 1 << 20 };

static openreg_message send_to(int peer, void *address, size_t bytes) {
  return (openreg_message){true, peer, OPENREG_DTYPE_UINT8, {address, bytes}, false};
}

static openreg_message receive_from(int peer, void *address, size_t bytes) {
  return (openreg_message){false, peer, OPENREG_DTYPE_UINT8, {address, bytes}, false};
}

static openreg_status exchange(rank *self, const openreg_message *messages, int count) {
  return openreg_comm_exchange(self->comm, messages, count, AGES_NS);
}

static void fill(void *address, int value, size_t bytes) {
  memset(see(address), value, bytes);
}

static void require_all(const void *address, int value, size_t bytes) {
  const unsigned char *seen = see(address);
  for (size_t i = 0; i < bytes; i++)
    REQUIRE(seen[i] == (unsigned char)value);
}

/* Each rank sends to the next, many times, and overwrites its buffer right after. */
static void pass_around(rank *self) {
  static const size_t sizes[] = {0, 1, SMALL, 4096, 4097, LARGE};
  int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
  for (int round = 0; round < 60; round++) {
    size_t bytes = sizes[round % 6];
    fill(self->memory, self->rank * 16 + round, bytes);
    openreg_message both[] = {send_to(next, self->memory, bytes),
                              receive_from(before, self->memory + MIB, bytes)};
    REQUIRE_OK(exchange(self, both, 2));
    fill(self->memory, 0xEE, bytes);
    require_all(self->memory + MIB, before * 16 + round, bytes);
  }
}

/* All ranks exchange with all in one call, with more messages for a pair than a mailbox holds. */
static void exchange_all(rank *self) {
  enum { EACH = 7 };
  openreg_message messages[2 * EACH * MOST_RANKS];
  unsigned char *out = self->memory, *in = self->memory + 12 * MIB;
  int count = 0;
  for (int peer = 0; peer < self->size; peer++)
    for (int i = 0; i < EACH; i++) {
      size_t bytes = i % 2 == 0 ? SMALL : 20000;
      fill(out, self->rank * 32 + peer * 8 + i, bytes);
      messages[count++] = send_to(peer, out, bytes);
      messages[count++] = receive_from(peer, in, bytes);
      out += 20480;
      in += 20480;
    }
  REQUIRE_OK(exchange(self, messages, count));
  in = self->memory + 12 * MIB;
  for (int peer = 0; peer < self->size; peer++)
    for (int i = 0; i < EACH; i++, in += 20480)
      require_all(in, peer * 32 + self->rank * 8 + i, i % 2 == 0 ? SMALL : 20000);
}

/* A small send does not wait for its receiver: rank 0 sends before a barrier, and rank 1 receives
 * after it. */
static void send_before_barrier(rank *self) {
  openreg_collective barrier = {.kind = OPENREG_COLLECTIVE_BARRIER, .timeout_ns = AGES_NS};
  openreg_message message =
      self->rank == 0 ? send_to(1, self->memory, 4096) : receive_from(0, self->memory, 4096);
  fill(self->memory, self->rank == 0 ? 77 : 0, 4096);
  if (self->rank == 0)
    REQUIRE_OK(exchange(self, &message, 1));
  REQUIRE_OK(openreg_comm_run(self->comm, &barrier));
  if (self->rank == 1)
    REQUIRE_OK(exchange(self, &message, 1));
  require_all(self->memory, 77, 4096);
}

/* Two threads of a rank send and receive while a third one runs collectives. */
static void *send_many(void *given) {
  rank *self = given;
  for (int i = 0; i < 200; i++) {
    size_t bytes = i % 2 == 0 ? SMALL : LARGE;
    fill(self->memory, i, bytes);
    openreg_message message = send_to(1 - self->rank, self->memory, bytes);
    REQUIRE_OK(exchange(self, &message, 1));
  }
  return NULL;
}

static void *receive_many(void *given) {
  rank *self = given;
  for (int i = 0; i < 200; i++) {
    size_t bytes = i % 2 == 0 ? SMALL : LARGE;
    openreg_message message = receive_from(1 - self->rank, self->memory + MIB, bytes);
    REQUIRE_OK(exchange(self, &message, 1));
    require_all(self->memory + MIB, i, bytes);
  }
  return NULL;
}

static void side_by_side(rank *self) {
  pthread_t sender, receiver;
  REQUIRE(pthread_create(&sender, NULL, send_many, self) == 0);
  REQUIRE(pthread_create(&receiver, NULL, receive_many, self) == 0);
  for (int i = 0; i < 200; i++) {
    openreg_comm_buffer in = {self->memory + 4 * MIB, 10000}, out = {self->memory + 8 * MIB, 10000};
    fill(in.address, i, in.count);
    openreg_collective sum = byte_call(OPENREG_COLLECTIVE_ALL_REDUCE, &in, &out);
    REQUIRE_OK(openreg_comm_run(self->comm, &sum));
    require_all(out.address, 2 * i, out.count);
  }
  REQUIRE(pthread_join(sender, NULL) == 0 && pthread_join(receiver, NULL) == 0);
}

/* ---- rejected -------------------------------------------------------------------------------- */

static void require_refused(rank *self, openreg_status expected, openreg_message message) {
  REQUIRE(exchange(self, &message, 1) == expected);
}

static void send_nonsense(rank *self) {
  int host;
  unsigned char *memory = self->memory;
  require_refused(self, OPENREG_INVALID_ARGUMENT, send_to(2, memory, 1));
  require_refused(self, OPENREG_INVALID_ARGUMENT, send_to(-1, memory, 1));
  require_refused(self, OPENREG_INVALID_ADDRESS, send_to(1 - self->rank, &host, 1));
  require_refused(self, OPENREG_INVALID_ARGUMENT, send_to(self->rank, memory, 1));
  openreg_message own[] = {send_to(self->rank, memory, 8), receive_from(self->rank, memory, 9)};
  REQUIRE(exchange(self, own, 2) == OPENREG_INVALID_ARGUMENT);
  own[1].dtype = OPENREG_DTYPE_BYTES;
  own[1].buffer.count = 8;
  REQUIRE(exchange(self, own, 2) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(exchange(self, NULL, 0));
  pass_around(self); /* the other rank has seen none of these messages */
}

static void differ_in_length(rank *self) {
  openreg_message message =
      self->rank == 0 ? send_to(1, self->memory, LARGE) : receive_from(0, self->memory, LARGE + 1);
  require_failure(exchange(self, &message, 1),
                  "openreg: rank 0 of group 'test' sends message #1 (uint8, 300000 elements) to "
                  "rank 1, which receives (uint8, 300001 elements)");
  REQUIRE(openreg_comm_check(self->comm) == OPENREG_COMMUNICATION_FAILURE);
}

static void differ_in_dtype(rank *self) {
  openreg_message message =
      self->rank == 0 ? send_to(1, self->memory, 4) : receive_from(0, self->memory, 4);
  if (self->rank == 0) {
    REQUIRE_OK(exchange(self, &message, 1)); /* it does not wait */
    message = receive_from(1, self->memory, 1);
  } else {
    message.dtype = OPENREG_DTYPE_INT8;
  }
  require_failure(exchange(self, &message, 1), "which receives (int8, 4 elements)");
}

#define PASSES(name, size, body)                                                                   \
  static void name##_threads(void) {                                                               \
    run_as_threads(size, body, NULL);                                                              \
  }                                                                                                \
  static void name##_processes(void) {                                                             \
    run_as_processes(size, 1, body, NULL);                                                         \
  }                                                                                                \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    child_expect_pass(name##_threads, MANY_DEVICES);                                               \
    child_expect_pass(name##_processes, MANY_DEVICES);                                             \
  }

PASSES(messages_of_all_sizes_arrive, 4, pass_around)
PASSES(a_pair_exchanges_messages, 2, pass_around)
PASSES(one_call_exchanges_with_all_and_itself, 4, exchange_all)
PASSES(a_small_send_waits_for_no_rank, 2, send_before_barrier)
PASSES(messages_overtake_collectives_and_each_other, 2, side_by_side)
PASSES(rejected_messages_reach_no_rank, 2, send_nonsense)
PASSES(another_length_aborts_the_group, 2, differ_in_length)
PASSES(another_dtype_aborts_the_group, 2, differ_in_dtype)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_of_all_sizes_arrive),
      cmocka_unit_test(a_pair_exchanges_messages),
      cmocka_unit_test(one_call_exchanges_with_all_and_itself),
      cmocka_unit_test(a_small_send_waits_for_no_rank),
      cmocka_unit_test(messages_overtake_collectives_and_each_other),
      cmocka_unit_test(rejected_messages_reach_no_rank),
      cmocka_unit_test(another_length_aborts_the_group),
      cmocka_unit_test(another_dtype_aborts_the_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
