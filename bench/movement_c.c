/* What collectives of two processes could cost: each written directly, for float32 and two ranks,
 * on memory that both have mapped. A library, so that it is called where the collectives are.
 *
 * Each rank has an input and an output of `capacity` bytes each in a file that somebody else made,
 * behind the place where they meet. Every operation begins and ends with a meeting, as it must: a
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

enum { LOOKS = 2000, PLACE_BYTES = 4096 };

/* A rank's own: how many meetings it has come to, and whether the other may sleep until it comes.
 */
struct place {
  alignas(64) _Atomic uint32_t meetings;
  _Atomic uint32_t is_awaited;
};

static struct {
  struct place *places;
  int rank;
  char *inputs[2], *outputs[2];
} self;

/* Returns 0, or -1: the file cannot be mapped. */
int movement_join(int file, int rank, size_t capacity) {
  char *base = mmap(NULL, PLACE_BYTES + 4 * capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED)
    return -1;
  self.places = (struct place *)base;
  self.rank = rank;
  for (int i = 0; i < 2; i++) {
    self.inputs[i] = base + PLACE_BYTES + 2 * (size_t)i * capacity;
    self.outputs[i] = self.inputs[i] + capacity;
  }
  return 0;
}

/* ---- meeting --------------------------------------------------------------------------------- */

void movement_barrier(void) {
  struct place *mine = &self.places[self.rank], *other = &self.places[1 - self.rank];
  uint32_t meeting = atomic_fetch_add(&mine->meetings, 1) + 1, seen;
  if (atomic_load(&mine->is_awaited))
    syscall(SYS_futex, &mine->meetings, FUTEX_WAKE, 1, NULL, NULL, 0);
  for (int i = 0; i < LOOKS; i++) {
    if ((int32_t)(atomic_load(&other->meetings) - meeting) >= 0)
      return;
    __builtin_ia32_pause();
  }
  atomic_store(&other->is_awaited, 1);
  while ((int32_t)((seen = atomic_load(&other->meetings)) - meeting) < 0)
    syscall(SYS_futex, &other->meetings, FUTEX_WAIT, seen, NULL, NULL, 0);
  atomic_store(&other->is_awaited, 0);
}

/* ---- operations ------------------------------------------------------------------------------ */

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static void
add_both(float *restrict one, float *restrict other, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float sum = one[i] + other[i];
    one[i] = sum;
    other[i] = sum;
  }
}

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static void
add(float *restrict sum, const float *one, const float *other, size_t count) {
  for (size_t i = 0; i < count; i++)
    sum[i] = one[i] + other[i];
}

/* In place: the inputs, each rank one half. */
void movement_all_reduce(size_t bytes) {
  size_t offset = (size_t)self.rank * (bytes / 2);
  movement_barrier();
  add_both((float *)(self.inputs[0] + offset), (float *)(self.inputs[1] + offset),
           bytes / 2 / sizeof(float));
  movement_barrier();
}

/* So many bytes from each. */
void movement_all_gather(size_t bytes) {
  movement_barrier();
  for (int i = 0; i < 2; i++)
    memcpy(self.outputs[self.rank] + (size_t)i * bytes, self.inputs[i], bytes);
  movement_barrier();
}

/* So many bytes to each. */
void movement_reduce_scatter(size_t bytes) {
  size_t offset = (size_t)self.rank * bytes;
  movement_barrier();
  add((float *)self.outputs[self.rank], (float *)(self.inputs[0] + offset),
      (float *)(self.inputs[1] + offset), bytes / sizeof(float));
  movement_barrier();
}

/* In place: the inputs, from rank 0. */
void movement_broadcast(size_t bytes) {
  movement_barrier();
  if (self.rank == 1)
    memcpy(self.inputs[1], self.inputs[0], bytes);
  movement_barrier();
}

/* Half of the bytes to each. */
void movement_all_to_all(size_t bytes) {
  size_t half = bytes / 2;
  movement_barrier();
  for (int i = 0; i < 2; i++)
    memcpy(self.outputs[self.rank] + (size_t)i * half, self.inputs[i] + (size_t)self.rank * half,
           half);
  movement_barrier();
}
