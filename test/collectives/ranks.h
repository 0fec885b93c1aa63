/* ranks.h: runs a function as all ranks of a communicator: in threads of one process, in processes,
 * or in processes with several threads.
 *
 * For use in children (child.h): a failed REQUIRE ends the process of a rank, and so the test.
 */
#ifndef OPENREG_TEST_RANKS_H
#define OPENREG_TEST_RANKS_H

#include "child.h"
#include "collectives/collectives.h"

#include <sys/types.h>

enum { MOST_RANKS = 16, LONG_NS = 1000000000 };

/* A timeout for calls that must not time out: no test runs that long. */
#define AGES_NS ((uint64_t)300 * LONG_NS)

typedef struct rank {
  int rank, size, device;
  openreg_comm *comm;
  unsigned char *memory; /* MEMORY_BYTES of the device, for this rank alone */
  const void *context;   /* from the test */
} rank;

enum { MEMORY_BYTES = 24 << 20 };

/* Runs the ranks as threads of this process, each with a device. */
void run_as_threads(int size, void (*body)(rank *), const void *context);

/* Runs the ranks in processes of `ranks_each` ranks; all must exit with 0. The calling process must
 * not have initialized its devices. */
void run_as_processes(int size, int ranks_each, void (*body)(rank *), const void *context);

/* Starts a process for each rank; the caller waits for them. */
void start_ranks(int size, void (*body)(rank *), const void *context, pid_t pids[]);
void expect_exit(pid_t pid);
void expect_killed(pid_t pid);

/* The options with which ranks join. */
extern const openreg_comm_options *join_options;

/* Enough devices for all ranks. */
#define MANY_DEVICES ENVIRONMENT("OPENREG_DEVICE_COUNT=16", "OPENREG_DEVICE_MEMORY=64M")

/* A call on bytes, with one input, one output and a timeout of AGES_NS. */
openreg_collective byte_call(openreg_collective_kind kind, openreg_comm_buffer *input,
                             openreg_comm_buffer *output);

/* The host's view of device memory. */
void *see(const void *address);

/* Fails unless the status is COMMUNICATION_FAILURE and the message contains `text`. */
void require_failure(openreg_status status, const char *text);

/* Returns zeroed memory that all processes of a test share. */
void *share_memory(size_t bytes);

#endif
