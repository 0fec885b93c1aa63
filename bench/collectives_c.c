/* What collectives cost, without PyTorch: two processes, against the same movement written directly
 * over shared memory, with nothing but a barrier.
 *
 * Prints a line for each measurement: its key, the median of the ratios and their middle half, then
 * the medians of both times in nanoseconds. The two sides take turns, and a ratio is taken between
 * neighbouring turns, since machines are shared and their absolute times mean little.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/futex.h"
#include "collectives/collectives.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, MIB = 1 << 20, MOST_TURNS = 41, LARGEST = 64 * MIB };

static void check(openreg_status status) {
  if (status == OPENREG_OK)
    return;
  fprintf(stderr, "%s\n", openreg_last_error());
  exit(1);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- directly -------------------------------------------------------------------------------- */

static struct shared { _Atomic uint32_t arrivals, phase, sleepers; } * shared;

/* All ranks' memory, mapped by all: inputs, then outputs, twice as long as the largest. */
static float *inputs[RANKS], *outputs[RANKS];

static void meet(uint32_t *phase) {
  ++*phase;
  if (atomic_fetch_add(&shared->arrivals, 1) + 1 == *phase * RANKS) {
    atomic_store(&shared->phase, *phase);
    if (atomic_load(&shared->sleepers) > 0)
      syscall(SYS_futex, &shared->phase, FUTEX_WAKE, RANKS, NULL, NULL, 0);
    return;
  }
  for (int i = openreg_looks_before_sleep(); i > 0; i--) {
    if (atomic_load(&shared->phase) == *phase)
      return;
    openreg_relax(i);
  }
  atomic_fetch_add(&shared->sleepers, 1);
  while (atomic_load(&shared->phase) != *phase)
    syscall(SYS_futex, &shared->phase, FUTEX_WAIT, *phase - 1, NULL, NULL, 0);
  atomic_fetch_sub(&shared->sleepers, 1);
}

static void add(float *restrict one, float *restrict other, const float *restrict a,
                const float *restrict b, size_t count) {
  for (size_t i = 0; i < count; i++)
    one[i] = other[i] = a[i] + b[i];
}

static void add_one(float *restrict one, const float *restrict a, const float *restrict b,
                    size_t count) {
  for (size_t i = 0; i < count; i++)
    one[i] = a[i] + b[i];
}

static void do_directly(openreg_collective_kind kind, int rank, size_t count, uint32_t *phase) {
  size_t half = count / 2, first = (size_t)rank * half;
  meet(phase);
  switch (kind) {
  case OPENREG_COLLECTIVE_ALL_REDUCE:
    add(outputs[0] + first, outputs[1] + first, inputs[0] + first, inputs[1] + first, half);
    break;
  case OPENREG_COLLECTIVE_REDUCE_SCATTER:
    add_one(outputs[rank], inputs[0] + (size_t)rank * count, inputs[1] + (size_t)rank * count,
            count);
    break;
  case OPENREG_COLLECTIVE_ALL_GATHER:
    for (int i = 0; i < RANKS; i++)
      memcpy(outputs[rank] + (size_t)i * count, inputs[i], count * sizeof(float));
    break;
  case OPENREG_COLLECTIVE_ALL_TO_ALL:
    for (int i = 0; i < RANKS; i++)
      memcpy(outputs[rank] + (size_t)i * half, inputs[i] + first, half * sizeof(float));
    break;
  case OPENREG_COLLECTIVE_BROADCAST:
    if (rank == 1)
      memcpy(outputs[1], inputs[0], count * sizeof(float));
    break;
  default: /* a barrier */
    return;
  }
  meet(phase);
}

/* ---- through the layer ----------------------------------------------------------------------- */

static openreg_collective call_of(openreg_collective_kind kind, int rank, openreg_part *in,
                                  openreg_part *out) {
  openreg_collective what = {.kind = kind,
                             .dtype = OPENREG_DTYPE_FLOAT32,
                             .inputs = in,
                             .outputs = out,
                             .input_count = 1,
                             .output_count = 1,
                             .timeout_ns = UINT64_MAX};
  if (kind == OPENREG_COLLECTIVE_BARRIER)
    what.input_count = what.output_count = 0;
  if (kind == OPENREG_COLLECTIVE_BROADCAST) {
    what.input_count = rank == 0;
    what.output_count = rank == 1;
  }
  if (kind == OPENREG_COLLECTIVE_REDUCE_SCATTER)
    in->count *= RANKS;
  if (kind == OPENREG_COLLECTIVE_ALL_GATHER)
    out->count *= RANKS;
  return what;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double quarter(double turns[], int count, int which) {
  qsort(turns, (size_t)count, sizeof *turns, compare);
  return turns[which * count / 4];
}

static void measure(openreg_comm *comm, unsigned char *memory, openreg_collective_kind kind,
                    size_t bytes, uint32_t *phase) {
  int rank = openreg_comm_rank(comm), turns = bytes >= LARGEST ? 9 : MOST_TURNS;
  int repeats = bytes >= LARGEST ? 1 : bytes >= MIB ? 20 : 200;
  double mine[MOST_TURNS], direct[MOST_TURNS], ratios[MOST_TURNS];
  openreg_part in = {memory, bytes / sizeof(float)};
  openreg_part out = {memory + 2 * LARGEST, bytes / sizeof(float)};
  openreg_collective what = call_of(kind, rank, &in, &out);
  for (int turn = -1; turn < turns; turn++) { /* the first one touches the memory */
    double start = now_ns();
    for (int i = 0; i < repeats; i++)
      check(openreg_comm_run(comm, &what));
    double middle = now_ns();
    for (int i = 0; i < repeats; i++)
      do_directly(kind, rank, bytes / sizeof(float), phase);
    double end = now_ns();
    if (turn < 0)
      continue;
    mine[turn] = (middle - start) / repeats;
    direct[turn] = (end - middle) / repeats;
    ratios[turn] = mine[turn] / direct[turn];
  }
  if (rank != 0)
    return;
  printf("%s_%zu %.4f %.4f %.4f %.0f %.0f\n", openreg_collective_name(kind), bytes,
         quarter(ratios, turns, 2), quarter(ratios, turns, 1), quarter(ratios, turns, 3),
         quarter(mine, turns, 2), quarter(direct, turns, 2));
  fflush(stdout);
}

static void be_a_rank(const openreg_comm_id *id, int rank) {
  static const size_t sizes[] = {4096, MIB, LARGEST};
  static const openreg_collective_kind kinds[] = {
      OPENREG_COLLECTIVE_ALL_REDUCE, OPENREG_COLLECTIVE_REDUCE_SCATTER,
      OPENREG_COLLECTIVE_ALL_GATHER, OPENREG_COLLECTIVE_ALL_TO_ALL, OPENREG_COLLECTIVE_BROADCAST};
  openreg_comm *comm;
  void *memory;
  size_t arena_bytes;
  uint32_t phase = 0;
  check(openreg_comm_init(id, RANKS, rank, rank, NULL, &comm));
  check(openreg_arena_get(rank, &memory, &arena_bytes));
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++)
      measure(comm, memory, kinds[i], sizes[j], &phase);
  measure(comm, memory, OPENREG_COLLECTIVE_BARRIER, 0, &phase);
  openreg_comm_destroy(comm);
}

static void *share(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED)
    return memory;
  perror("mmap");
  exit(1);
}

int main(void) {
  openreg_comm_id id;
  setenv("OPENREG_DEVICE_COUNT", "2", 1);
  setenv("OPENREG_DEVICE_MEMORY", "512M", 1);
  check(openreg_comm_id_create(RANKS, &id));
  shared = share(sizeof *shared);
  for (int i = 0; i < RANKS; i++) {
    inputs[i] = share((size_t)4 * LARGEST);
    outputs[i] = inputs[i] + 2 * (LARGEST / sizeof(float));
  }
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
      be_a_rank(&id, 1);
    return 0;
  }
  be_a_rank(&id, 0);
  int status;
  return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}
