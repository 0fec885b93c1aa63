/* ranks.h: runs a piece of a test as all ranks of a communicator: as threads of one process, as
 * processes, or as processes with threads.
 *
 * Used in children (child.h): REQUIRE ends the process of a rank, and with it the test.
 */
#ifndef OPENREG_TEST_RANKS_H
#define OPENREG_TEST_RANKS_H

#include "child.h"
#include "collectives/collectives.h"

#include <sys/types.h>

enum { MOST_RANKS = 16, LONG_NS = 1000000000 };

/* Of tests that expect nothing to fail: no test runs that long. */
#define AGES_NS ((uint64_t)300 * LONG_NS)

typedef struct rank {
  int rank, size, device;
  openreg_comm *comm;
  unsigned char *memory; /* of the device, MEMORY_BYTES that are this rank's */
  const void *context;   /* what the test gave */
} rank;

enum { MEMORY_BYTES = 24 << 20 };

/* As threads of this process, each with a device. */
void run_as_threads(int size, void (*body)(rank *), const void *context);

/* As processes of so many ranks each; all must end with 0. This process must not have initialized
 * its devices. */
void run_as_processes(int size, int ranks_each, void (*body)(rank *), const void *context);

/* Processes of one rank each, which the caller waits for. */
void start_ranks(int size, void (*body)(rank *), const void *context, pid_t pids[]);
void expect_exit(pid_t pid);
void expect_killed(pid_t pid);

/* How ranks join: NULL for a group without a name, and AGES_NS. */
extern const openreg_comm_options *join_options;

/* Devices enough for all ranks. */
#define MANY_DEVICES ENVIRONMENT("OPENREG_DEVICE_COUNT=16", "OPENREG_DEVICE_MEMORY=64M")

/* What the host sees of device memory. */
void *see(const void *address);

/* Fails unless the status is COMMUNICATION_FAILURE with a sentence that holds all of the texts. */
void require_failure(openreg_status status, const char *text);

/* Memory that all processes of a test share: zeros. */
void *share_memory(size_t bytes);

#endif
