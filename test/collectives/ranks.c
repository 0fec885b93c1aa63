/* ranks.c: see ranks.h. */
#define _GNU_SOURCE
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const openreg_comm_options plain = {.name = "test", .timeout_ns = AGES_NS};
const openreg_comm_options *join_options = &plain;

struct job {
  rank self;
  const openreg_comm_id *id;
  void (*body)(rank *);
};

static void *be_a_rank(void *given) {
  struct job *job = given;
  rank *self = &job->self;
  void *base;
  size_t bytes;
  REQUIRE_OK(
      openreg_comm_init(job->id, self->size, self->rank, self->device, join_options, &self->comm));
  REQUIRE_OK(openreg_arena_get(self->device, &base, &bytes));
  self->memory = base;
  job->body(self);
  openreg_comm_destroy(self->comm);
  return NULL;
}

static void run_some(const openreg_comm_id *id, int size, int first, int count,
                     void (*body)(rank *), const void *context) {
  struct job jobs[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  for (int i = 0; i < count; i++) {
    jobs[i] = (struct job){.id = id, .body = body};
    jobs[i].self = (rank){.rank = first + i, .size = size, .device = first + i, .context = context};
    REQUIRE(pthread_create(&threads[i], NULL, be_a_rank, &jobs[i]) == 0);
  }
  for (int i = 0; i < count; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
}

void run_as_threads(int size, void (*body)(rank *), const void *context) {
  openreg_comm_id id;
  REQUIRE_OK(openreg_comm_id_create(size, &id));
  run_some(&id, size, 0, size, body, context);
}

static pid_t start(const openreg_comm_id *id, int size, int first, int count, void (*body)(rank *),
                   const void *context) {
  pid_t parent = getpid(), pid = fork();
  REQUIRE(pid >= 0);
  if (pid > 0)
    return pid;
  REQUIRE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
  if (count == 1) {
    struct job job = {.id = id, .body = body};
    job.self = (rank){.rank = first, .size = size, .device = first, .context = context};
    be_a_rank(&job);
  } else {
    run_some(id, size, first, count, body, context);
  }
  exit(0);
}

void expect_exit(pid_t pid) {
  int status;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void expect_killed(pid_t pid) {
  int status;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void run_as_processes(int size, int ranks_each, void (*body)(rank *), const void *context) {
  openreg_comm_id id;
  pid_t pids[MOST_RANKS];
  int count = 0;
  REQUIRE_OK(openreg_comm_id_create(size, &id));
  for (int first = 0; first < size; first += ranks_each)
    pids[count++] = start(&id, size, first, size - first < ranks_each ? size - first : ranks_each,
                          body, context);
  while (count > 0)
    expect_exit(pids[--count]);
  openreg_comm_id_drop(&id);
}

void start_ranks(int size, void (*body)(rank *), const void *context, pid_t pids[]) {
  static openreg_comm_id id; /* the children read it */
  REQUIRE_OK(openreg_comm_id_create(size, &id));
  for (int i = 0; i < size; i++)
    pids[i] = start(&id, size, i, 1, body, context);
}

void *see(const void *address) {
  return openreg_kernel_view(address);
}

void require_failure(openreg_status status, const char *text) {
  if (status == OPENREG_COMMUNICATION_FAILURE && strstr(openreg_last_error(), text) != NULL)
    return;
  fprintf(stderr, "%s: '%s', expected '%s'\n", openreg_status_name(status), openreg_last_error(),
          text);
  REQUIRE(!"the expected failure");
}

void *share_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return memory;
}

openreg_collective byte_call(openreg_collective_kind kind, openreg_comm_buffer *input,
                             openreg_comm_buffer *output) {
  return (openreg_collective){.kind = kind,
                              .dtype = OPENREG_DTYPE_UINT8,
                              .inputs = input,
                              .outputs = output,
                              .input_count = 1,
                              .output_count = 1,
                              .timeout_ns = AGES_NS};
}
