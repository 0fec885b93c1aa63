/* The least that collectives of two processes could cost: each is written directly, for float32 and
 * two ranks, on memory that both processes have mapped. bench/collectives.py loads this library and
 * calls it in the same processes as the collectives.
 *
 * Another process creates the file. It holds the barrier's words, and then an input and an output
 * of `capacity` bytes for each rank. Every operation begins and ends with a barrier, as it must: a
 * rank reads what the other has written, and returns when its own memory is read no more.
 */
#define _GNU_SOURCE /* syscall */
#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pause.h"
#include "bench/clones.h"

enum {
  SPINS = 500, /* before sleeping, as in base/futex.c */
  HEADER_BYTES = 4096
};

/* A rank's word of the barrier: how many rounds it has arrived in, and whether the other rank may
 * be asleep. */
struct member {
  alignas(64) _Atomic uint32_t rounds;
  _Atomic uint32_t may_sleep;
};

static struct {
  struct member *members;
  int rank;
  char *inputs[2], *outputs[2];
} self;

/* Returns 0, or -1: the file cannot be mapped. */
int movement_join(int file, int rank, size_t capacity) {
  char *base = mmap(NULL, HEADER_BYTES + 4 * capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED)
    return -1;
  self.members = (struct member *)base;
  self.rank = rank;
  for (int i = 0; i < 2; i++) {
    self.inputs[i] = base + HEADER_BYTES + 2 * (size_t)i * capacity;
    self.outputs[i] = self.inputs[i] + capacity;
  }
  return 0;
}

/* ---- barrier ------------------------------------------------------------------------------- */

void movement_barrier(void) {
  struct member *mine = &self.members[self.rank], *other = &self.members[1 - self.rank];
  uint32_t round = atomic_fetch_add(&mine->rounds, 1) + 1, seen;
  if (atomic_load(&mine->may_sleep))
    syscall(SYS_futex, &mine->rounds, FUTEX_WAKE, 1, NULL, NULL, 0);
  for (int i = 0; i < SPINS; i++) {
    if ((int32_t)(atomic_load(&other->rounds) - round) >= 0)
      return;
    openreg_cpu_pause();
  }
  atomic_store(&other->may_sleep, 1);
  while ((int32_t)((seen = atomic_load(&other->rounds)) - round) < 0)
    syscall(SYS_futex, &other->rounds, FUTEX_WAIT, seen, NULL, NULL, 0);
  atomic_store(&other->may_sleep, 0);
}

/* ---- operations ------------------------------------------------------------------------------ */

FOR_EACH_SIMD static void add_both(float *restrict one, float *restrict other, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float sum = one[i] + other[i];
    one[i] = sum;
    other[i] = sum;
  }
}

FOR_EACH_SIMD static void add(float *restrict sum, const float *one, const float *other,
                              size_t count) {
  for (size_t i = 0; i < count; i++)
    sum[i] = one[i] + other[i];
}

/* In place, on the inputs. Each rank computes one half. */
void movement_all_reduce(size_t bytes) {
  size_t offset = (size_t)self.rank * (bytes / 2);
  movement_barrier();
  add_both((float *)(self.inputs[0] + offset), (float *)(self.inputs[1] + offset),
           bytes / 2 / sizeof(float));
  movement_barrier();
}

/* `bytes` from each rank. */
void movement_all_gather(size_t bytes) {
  movement_barrier();
  for (int i = 0; i < 2; i++)
    memcpy(self.outputs[self.rank] + (size_t)i * bytes, self.inputs[i], bytes);
  movement_barrier();
}

/* `bytes` to each rank. */
void movement_reduce_scatter(size_t bytes) {
  size_t offset = (size_t)self.rank * bytes;
  movement_barrier();
  add((float *)self.outputs[self.rank], (float *)(self.inputs[0] + offset),
      (float *)(self.inputs[1] + offset), bytes / sizeof(float));
  movement_barrier();
}

/* In place, on the inputs, from rank 0. */
void movement_broadcast(size_t bytes) {
  movement_barrier();
  if (self.rank == 1)
    memcpy(self.inputs[1], self.inputs[0], bytes);
  movement_barrier();
}

/* Half of the bytes to each rank. */
void movement_all_to_all(size_t bytes) {
  size_t half = bytes / 2;
  movement_barrier();
  for (int i = 0; i < 2; i++)
    memcpy(self.outputs[self.rank] + (size_t)i * half, self.inputs[i] + (size_t)self.rank * half,
           half);
  movement_barrier();
}
