/* replay.c: drives the allocator with a trace. `replay CAPACITY SETTINGS` reads commands from
 * standard input and prints one line of statistics for each. README.md documents the commands.
 * SETTINGS are the numbers of openreg_memory_settings in order, separated by commas.
 *
 * Waiting ends held work: the functions with which the allocator waits are wrapped, and open the
 * gates of the streams that they wait for.
 */
#include "allocator/internal.h"

#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAMS = 8, MOST_BLOCKS = 1 << 20, MOST_POOLS = 1 << 10, LINE_BYTES = 4096 };

static openreg_block *blocks[MOST_BLOCKS];
static uint64_t pools[MOST_POOLS];
static bool is_held[STREAMS];
static sem_t gates[STREAMS];
static char made[LINE_BYTES]; /* the segments of this command */

static void require(openreg_status status) {
  if (status == OPENREG_OK)
    return;
  fprintf(stderr, "replay: %s\n", openreg_last_error());
  exit(2);
}

/* ---- held work ------------------------------------------------------------------------------- */

openreg_status __real_openreg_stream_drain(int device, int stream);
openreg_status __wrap_openreg_stream_drain(int device, int stream);
openreg_status __real_openreg_device_drain(int device);
openreg_status __wrap_openreg_device_drain(int device);

static openreg_status wait_at_gate(void *gate) {
  while (sem_wait(gate) != 0) {
  }
  return OPENREG_OK;
}

static void hold(int stream) {
  require(openreg_stream_launch(0, stream, wait_at_gate, &gates[stream]));
  is_held[stream] = true;
}

static void go(int stream) {
  if (!is_held[stream])
    return;
  is_held[stream] = false;
  sem_post(&gates[stream]);
  require(__real_openreg_stream_drain(0, stream));
}

openreg_status __wrap_openreg_stream_drain(int device, int stream) {
  if (stream < STREAMS)
    go(stream);
  return __real_openreg_stream_drain(device, stream);
}

openreg_status __wrap_openreg_device_drain(int device) {
  for (int stream = 0; stream < STREAMS; stream++)
    go(stream);
  return __real_openreg_device_drain(device);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void note_segment(const openreg_memory_event *event) {
  size_t used = strlen(made);
  if (event->action == OPENREG_MEMORY_SEGMENT_ALLOCATED)
    snprintf(made + used, sizeof made - used, "%s%" PRIuPTR ":%zu", used ? "," : "", event->address,
             event->bytes);
}

/* Reports address ranges of expandable segments; other segments are reported by the observer. */
struct segment *__real_openreg_segment_place(struct allocator *allocator,
                                             const struct request *request, size_t bytes);
struct segment *__wrap_openreg_segment_place(struct allocator *allocator,
                                             const struct request *request, size_t bytes);
struct segment *__wrap_openreg_segment_place(struct allocator *allocator,
                                             const struct request *request, size_t bytes) {
  struct segment *segment = __real_openreg_segment_place(allocator, request, bytes);
  size_t used = strlen(made);
  if (segment)
    snprintf(made + used, sizeof made - used, "%sr%" PRIuPTR ":%zu", used ? "," : "",
             (uintptr_t)segment->address, bytes);
  return segment;
}

static void print_stat(const openreg_stat *stat) {
  printf(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, stat->current, stat->peak,
         stat->allocated, stat->freed);
}

static void print_answer(const char *result) {
  openreg_memory_stats stats;
  require(openreg_memory_get_stats(0, &stats));
  printf("%s;%s;", result, made);
#define X(name)                                                                                    \
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)                                            \
    print_stat(&stats.name[kind]);
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
  print_stat(&stats.oversize_allocations);
  print_stat(&stats.oversize_segments);
  printf(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
         stats.alloc_retries, stats.ooms, stats.stream_syncs, stats.device_allocs,
         stats.device_frees,
         stats.max_split_bytes == SIZE_MAX ? -1 : (int64_t)stats.max_split_bytes);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void set(const char *text) {
  openreg_memory_settings settings = {0};
  char *at = (char *)text;
  settings.max_split_bytes = strtoull(at, &at, 10);
  settings.max_non_split_rounding_bytes = strtoull(at + 1, &at, 10);
  settings.large_segment_bytes = strtoull(at + 1, &at, 10);
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; i++)
    settings.roundup_power2_divisions[i] = strtoull(at + 1, &at, 10);
  settings.garbage_collection_threshold = strtod(at + 1, &at);
  settings.memory_fraction = strtod(at + 1, &at);
  settings.expandable_segments = strtoull(at + 1, &at, 10) != 0;
  settings.throws_on_oom = strtoull(at + 1, &at, 10) != 0;
  require(openreg_memory_set_settings(&settings));
}

static void allocate(unsigned id, size_t bytes, int stream, char *answer) {
  blocks[id] = NULL;
  openreg_status status = openreg_block_allocate(0, stream, bytes, &blocks[id]);
  if (status == OPENREG_OK) {
    snprintf(answer, LINE_BYTES, "block %" PRIuPTR " %zu", (uintptr_t)blocks[id]->address,
             blocks[id]->bytes);
    return;
  }
  if (status != OPENREG_OUT_OF_MEMORY)
    require(status);
  openreg_out_of_memory_info info;
  openreg_memory_last_out_of_memory(&info);
  if (info.is_rejection) {
    snprintf(answer, LINE_BYTES, "error rejected");
    return;
  }
  snprintf(answer, LINE_BYTES, "oom %zu %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
           info.tried_bytes, info.free_bytes,
           info.allowed_bytes == UINT64_MAX ? -1 : (int64_t)info.allowed_bytes,
           info.allocated_bytes + info.mempool_bytes, info.mempool_bytes,
           info.reserved_bytes - info.allocated_bytes - info.mempool_bytes);
}

static uint64_t trace_number_of(uint64_t mempool) {
  for (uint64_t i = 1; mempool != 0 && i < MOST_POOLS; i++)
    if (pools[i] == mempool)
      return i;
  return 0;
}

static void print_segment(const openreg_segment_info *segment, const openreg_block_info *block) {
  static const char *const states[] = {[OPENREG_BLOCK_FREE] = "free",
                                       [OPENREG_BLOCK_ALLOCATED] = "allocated",
                                       [OPENREG_BLOCK_AWAITING_FREE] = "awaiting"};
  printf("%" PRIuPTR " %zu %d %s %d %" PRIu64, segment->address, segment->bytes, segment->stream,
         segment->kind == OPENREG_POOL_SMALL ? "small" : "large", segment->is_expandable,
         trace_number_of(segment->mempool));
  for (size_t i = 0; i < segment->block_count; i++, block++)
    printf(" %" PRIuPTR ",%zu,%zu,%s", block->address, block->bytes, block->requested_bytes,
           states[block->state]);
}

static void print_snapshot(void) {
  openreg_memory_snapshot snapshot;
  require(openreg_memory_take_snapshot(0, &snapshot));
  printf("snapshot ");
  for (size_t i = 0; i < snapshot.segment_count; i++) {
    if (i > 0)
      putchar('|');
    print_segment(&snapshot.segments[i], &snapshot.blocks[snapshot.segments[i].first_block]);
  }
  openreg_memory_free_snapshot(&snapshot);
  if (!openreg_memory_is_valid(0))
    require(OPENREG_INVALID_ARGUMENT);
}

/* The commands for private pools. */
static void do_pool(const char *command, const unsigned arguments[4]) {
  uint64_t *pool = &pools[arguments[0]];
  if (strcmp(command, "pool_create") == 0)
    require(openreg_mempool_create((arguments[1] ? OPENREG_MEMPOOL_USE_ON_OOM : 0) |
                                       (arguments[2] ? OPENREG_MEMPOOL_NO_SPLIT : 0),
                                   NULL, pool));
  else if (strcmp(command, "pool_begin") == 0)
    require(openreg_mempool_set_current(0, *pool));
  else if (strcmp(command, "pool_end") == 0)
    require(openreg_mempool_set_current(0, 0));
  else if (strcmp(command, "pool_destroy") == 0)
    require(openreg_mempool_release(*pool));
  else
    require(openreg_mempool_empty(*pool));
}

static void act(char *line) {
  char command[32] = "", answer[LINE_BYTES] = "ok";
  unsigned n[4] = {0};
  size_t bytes = 0;
  sscanf(line, "%31s %u %u %u", command, &n[0], &n[1], &n[2]);
  if (strcmp(command, "alloc") == 0) {
    sscanf(line, "%*s %u %zu %u", &n[0], &bytes, &n[1]);
    allocate(n[0], bytes, (int)n[1], answer);
  } else if (strcmp(command, "free") == 0) {
    openreg_block_free(blocks[n[0]]);
    blocks[n[0]] = NULL;
  } else if (strcmp(command, "record") == 0) {
    if (blocks[n[0]])
      require(openreg_block_record_stream(blocks[n[0]], (int)n[1]));
  } else if (strcmp(command, "hold") == 0) {
    hold((int)n[0]);
  } else if (strcmp(command, "go") == 0) {
    go((int)n[0]);
  } else if (strcmp(command, "empty") == 0) {
    require(openreg_cache_empty(0));
  } else if (strcmp(command, "fraction") == 0) {
    require(openreg_memory_set_fraction(0, strtod(line + strlen("fraction "), NULL)));
  } else if (strcmp(command, "settings") == 0) {
    set(line + strlen("settings "));
  } else if (strcmp(command, "reset_peak") == 0) {
    require(openreg_memory_reset_peak(0));
  } else if (strcmp(command, "reset_accumulated") == 0) {
    require(openreg_memory_reset_accumulated(0));
  } else if (strcmp(command, "snapshot") == 0) {
    print_snapshot();
    answer[0] = '\0';
  } else if (strncmp(command, "pool_", 5) == 0) {
    do_pool(command, n);
  } else {
    snprintf(answer, sizeof answer, "error no such command: %s", command);
  }
  print_answer(answer);
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: replay CAPACITY SETTINGS\n");
    return 2;
  }
  setenv("OPENREG_DEVICE_COUNT", "1", 1);
  setenv("OPENREG_DEVICE_MEMORY", arguments[1], 1);
  char group[64];
  snprintf(group, sizeof group, "replay-%d", (int)getpid());
  setenv("OPENREG_GROUP", group, 1);
  for (int stream = 0; stream < STREAMS; stream++)
    sem_init(&gates[stream], 0, 0);
  set(arguments[2]);
  require(openreg_memory_add_observer(note_segment));
  openreg_memory_settings settings;
  openreg_memory_get_settings(&settings);
  require(openreg_memory_set_fraction(0, settings.memory_fraction)); /* creates the device's
                                                                      * allocator */
  static char line[LINE_BYTES];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    made[0] = '\0';
    act(line);
  }
  return 0;
}
