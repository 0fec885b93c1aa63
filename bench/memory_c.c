/* Measures memory allocation without PyTorch: the allocator compared with malloc.
 *
 *     bench_memory [trace]
 *
 * Each trace runs in its own process, because malloc's speed depends on its earlier use. Prints a
 * line for each measurement, in the form that turns.h describes.
 *
 * A trace is a text file with the allocations of a real program: "+ID BYTES" and "-ID" in the order
 * in which they happened. At the end everything is freed. bench/memory.py makes traces.
 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "allocator/allocator.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "bench/turns.h"

enum { TURNS = 61, PAIRS = 20000, LARGE_PAIRS = 500, PAGE_BYTES = 4096, MAX_EVENTS = 1 << 20 };

/* ---- pairs ----------------------------------------------------------------------------------- */

static void device_pairs_on(int device, size_t bytes, int times) {
  for (int i = 0; i < times; i++) {
    openreg_block *block;
    check(openreg_block_allocate(device, OPENREG_STREAM_DEFAULT, bytes, &block));
    openreg_block_free(block);
  }
}

static void device_pairs(void *bytes, int times) {
  device_pairs_on(0, *(size_t *)bytes, times);
}

/* Prevents the compiler from removing the pair. */
static void *host_allocate(size_t bytes) {
  void *memory = malloc(bytes);
  require(memory != NULL, "the host has no memory left");
  __asm__ volatile("" : : "r"(memory) : "memory");
  return memory;
}

static void host_pairs(void *bytes, int times) {
  for (int i = 0; i < times; i++)
    free(host_allocate(*(size_t *)bytes));
}

static void touch(char *memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += PAGE_BYTES)
    ((volatile char *)memory)[at] = 1;
}

static void touched_host_pairs(void *bytes, int times) {
  for (int i = 0; i < times; i++) {
    char *memory = host_allocate(*(size_t *)bytes);
    touch(memory, *(size_t *)bytes);
    free(memory);
  }
}

static void measure_pairs(void) {
  static size_t small = 512, medium = 4096, large = 4 << 20;
  measure("pair-512", (struct work){device_pairs, &small}, (struct work){host_pairs, &small}, PAIRS,
          TURNS);
  measure("pair-4K", (struct work){device_pairs, &medium}, (struct work){host_pairs, &medium},
          PAIRS, TURNS);
  measure("pair-4M", (struct work){device_pairs, &large}, (struct work){touched_host_pairs, &large},
          LARGE_PAIRS, TURNS);
}

/* ---- two threads on two devices -------------------------------------------------------------- */

enum { THREAD_PAIRS = 10 * PAIRS };

static pthread_barrier_t start_line, finish_line;
static int running; /* number of threads in this turn; -1: end */
static double thread_ns[2];

/* The threads live through all turns, as in a real program. */
static void *run_thread(void *argument) {
  int device = (int)(intptr_t)argument;
  openreg_device_bind_thread(device);
  while (pthread_barrier_wait(&start_line), running >= 0) {
    double start = now_ns();
    if (device < running)
      device_pairs_on(device, 512, THREAD_PAIRS);
    thread_ns[device] = now_ns() - start;
    pthread_barrier_wait(&finish_line);
  }
  return NULL;
}

/* Nanoseconds per pair in each of `count` threads. */
static double threads_turn(int count) {
  running = count;
  pthread_barrier_wait(&start_line);
  pthread_barrier_wait(&finish_line);
  return (thread_ns[1] > thread_ns[0] ? thread_ns[1] : thread_ns[0]) / THREAD_PAIRS;
}

/* The ratio compares rates: two threads' rate to one thread's. */
static void measure_threads(void) {
  double ratios[TURNS], one[TURNS], two[TURNS];
  pthread_t threads[2];
  require(pthread_barrier_init(&start_line, NULL, 3) == 0 &&
              pthread_barrier_init(&finish_line, NULL, 3) == 0,
          "no barrier");
  for (intptr_t device = 0; device < 2; device++)
    require(pthread_create(&threads[device], NULL, run_thread, (void *)device) == 0, "no thread");
  threads_turn(2);
  for (int i = 0; i < TURNS; i++) {
    one[i] = threads_turn(1);
    two[i] = threads_turn(2);
    ratios[i] = 2 * one[i] / two[i];
  }
  running = -1;
  pthread_barrier_wait(&start_line);
  for (int device = 0; device < 2; device++)
    pthread_join(threads[device], NULL);
  print_ratios("threads", ratios, two, one, TURNS);
}

/* ---- traces ---------------------------------------------------------------------------------- */

struct event {
  int id;
  size_t bytes; /* 0: free */
};

struct trace {
  struct event *events;
  int count, ids;
  void **blocks; /* by id */
};

static struct trace *read_trace(const char *path) {
  FILE *file = fopen(path, "r");
  require(file != NULL, "cannot open the trace");
  struct trace *trace = host_allocate(sizeof *trace);
  *trace = (struct trace){.events = host_allocate(MAX_EVENTS * sizeof(struct event))};
  char sign;
  for (int id; fscanf(file, " %c%d", &sign, &id) == 2;) {
    struct event event = {.id = id};
    require(trace->count < MAX_EVENTS, "the trace is too long");
    require(sign == '-' || (fscanf(file, "%zu", &event.bytes) == 1 && event.bytes > 0),
            "expected \"+ID BYTES\" or \"-ID\" in the trace");
    trace->events[trace->count++] = event;
    if (id >= trace->ids)
      trace->ids = id + 1;
  }
  fclose(file);
  trace->blocks = calloc((size_t)trace->ids, sizeof *trace->blocks);
  require(trace->blocks != NULL, "the host has no memory left");
  return trace;
}

static void free_trace(struct trace *trace) {
  free(trace->events);
  free(trace->blocks);
  free(trace);
}

/* A replay with `allocate` and `give`, which are inlined. */
#define REPLAY(trace, allocate, give)                                                              \
  for (const struct event *event = (trace)->events; event < (trace)->events + (trace)->count;      \
       event++)                                                                                    \
    if (event->bytes)                                                                              \
      (trace)->blocks[event->id] = allocate(event->bytes);                                         \
    else                                                                                           \
      give((trace)->blocks[event->id])

static void *device_allocate(size_t bytes) {
  openreg_block *block;
  check(openreg_block_allocate(0, OPENREG_STREAM_DEFAULT, bytes, &block));
  return block;
}

static void replay_device(void *data, int times) {
  struct trace *trace = data;
  for (int i = 0; i < times; i++)
    REPLAY(trace, device_allocate, openreg_block_free);
}

static void replay_host(void *data, int times) {
  struct trace *trace = data;
  for (int i = 0; i < times; i++)
    REPLAY(trace, host_allocate, free);
}

static void *touched_allocate(size_t bytes) {
  char *memory = host_allocate(bytes);
  touch(memory, bytes);
  return memory;
}

static void replay_touched_host(void *data, int times) {
  struct trace *trace = data;
  for (int i = 0; i < times; i++)
    REPLAY(trace, touched_allocate, free);
}

/* ---- replays --------------------------------------------------------------------------------- */

/* Training programs have other threads, so both sides need atomic operations. This thread only
 * waits. */
static void *wait_for_ever(void *unused) {
  pause();
  return unused;
}

static void measure_trace(const char *path) {
  pthread_t other;
  require(pthread_create(&other, NULL, wait_for_ever, NULL) == 0, "no thread");
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  struct trace *trace = read_trace(path);
  int times = 1 + 50000 / trace->count;
  char key[256];
  struct work mine = {replay_device, trace};
  snprintf(key, sizeof key, "replay-malloc-%s", name);
  measure(key, mine, (struct work){replay_host, trace}, times, TURNS);
  snprintf(key, sizeof key, "replay-touched-%s", name);
  measure(key, mine, (struct work){replay_touched_host, trace}, 1 + times / 20, TURNS);
  free_trace(trace);
}

int main(int count, char **arguments) {
  if (count == 1) {
    measure_pairs();
    measure_threads();
    return 0;
  }
  measure_trace(arguments[1]);
  return 0;
}
