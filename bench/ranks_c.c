/* Measures what collectives cost among more ranks than there are cores: 2, 8, 32 and 64 processes,
 * without PyTorch. Prints lines in the form that turns.h describes. Ratios compare with the same
 * collective among two ranks. A round measures all numbers of ranks one after the other.
 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "collectives/collectives.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "bench/turns.h"

enum { ROUNDS = 9, OPERATIONS = 3, SIZES = 4 };

static const int sizes[SIZES] = {2, 8, 32, 64};

static const struct operation {
  const char *name;
  openreg_collective_kind kind;
  size_t bytes;
  int times;
} operations[OPERATIONS] = {
    {"barrier", OPENREG_COLLECTIVE_BARRIER, 0, 200},
    {"all_reduce-4K", OPENREG_COLLECTIVE_ALL_REDUCE, 4 << 10, 200},
    {"all_reduce-1M", OPENREG_COLLECTIVE_ALL_REDUCE, 1 << 20, 20},
};

/* Nanoseconds for each call. Rank 0 writes them; all processes share the memory. */
static double *times_ns;

static void run(openreg_comm *comm, void *memory, const struct operation *operation, int times) {
  const openreg_comm_buffer part = {memory, operation->bytes / sizeof(float)};
  int parts = operation->kind == OPENREG_COLLECTIVE_BARRIER ? 0 : 1;
  const openreg_collective collective = {
      .kind = operation->kind,
      .dtype = OPENREG_DTYPE_FLOAT32,
      .reduction = OPENREG_REDUCE_SUM,
      .inputs = &part,
      .outputs = &part,
      .input_count = parts,
      .output_count = parts,
      .timeout_ns = UINT64_MAX,
  };
  for (int i = 0; i < times; i++)
    check(openreg_comm_run(comm, &collective));
}

static void run_rank(const openreg_comm_id *id, int size, int rank) {
  static const openreg_comm_options options = {.name = "bench", .timeout_ns = UINT64_MAX};
  openreg_comm *comm;
  void *memory;
  size_t bytes;
  check(openreg_comm_init(id, size, rank, rank, &options, &comm));
  check(openreg_arena_get(rank, &memory, &bytes));
  for (int i = 0; i < OPERATIONS; i++) {
    const struct operation *operation = &operations[i];
    memset(openreg_kernel_view(memory), 0, operation->bytes);
    run(comm, memory, operation, 1 + operation->times / 10);
    double start = now_ns();
    run(comm, memory, operation, operation->times);
    if (rank == 0)
      times_ns[i] = (now_ns() - start) / operation->times;
  }
  openreg_comm_destroy(comm);
}

static void run_ranks(int size) {
  openreg_comm_id id;
  pid_t parent = getpid();
  check(openreg_comm_id_create(size, &id));
  for (int rank = 0; rank < size; rank++) {
    pid_t pid = fork();
    require(pid >= 0, "a process cannot be started");
    if (pid > 0)
      continue;
    require(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent, "left alone");
    run_rank(&id, size, rank);
    exit(0);
  }
  for (int rank = 0, status; rank < size; rank++)
    require(wait(&status) > 0 && status == 0, "a rank has failed");
  openreg_comm_id_drop(&id);
}

int main(void) {
  static double times[OPERATIONS][SIZES][ROUNDS];
  setenv("OPENREG_DEVICE_COUNT", "64", 1);
  times_ns = mmap(NULL, OPERATIONS * sizeof *times_ns, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(times_ns != MAP_FAILED, "the host has no memory left");
  for (int round = 0; round < ROUNDS; round++)
    for (int size = 0; size < SIZES; size++) {
      run_ranks(sizes[size]);
      for (int i = 0; i < OPERATIONS; i++)
        times[i][size][round] = times_ns[i];
    }
  for (int i = 0; i < OPERATIONS; i++)
    for (int size = 0; size < SIZES; size++) {
      double ratios[ROUNDS], mine[ROUNDS], others[ROUNDS];
      char key[32];
      for (int round = 0; round < ROUNDS; round++) {
        mine[round] = times[i][size][round];
        others[round] = times[i][0][round];
        ratios[round] = mine[round] / others[round];
      }
      snprintf(key, sizeof key, "%s-%d", operations[i].name, sizes[size]);
      print_ratios(key, ratios, mine, others, ROUNDS);
    }
  return 0;
}
