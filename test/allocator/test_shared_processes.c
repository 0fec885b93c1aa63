/* test_shared_processes.c: blocks that are sent to another process and released there.
 *
 * Puppets are processes that were forked before anything was initialized. They do one thing for
 * each command, and answer when it is done.
 */
#include "support.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = OPENREG_POOL_ALL, PUPPETS = 10, BYTES = 3000000 };

/* ---- puppets --------------------------------------------------------------------------------- */

struct order {
  enum { IMPORT, READ, WRITE, BEGIN_READ, END_READ, FREE, EXPORT, EXPORT_AGAIN } what;
  int stream;
  size_t offset;
  unsigned char value;
  openreg_ipc_handle handle;
};

#define ORDER(...) ((struct order){.what = __VA_ARGS__})

struct answer {
  openreg_status status;
  size_t bytes, requested_bytes;
  bool is_imported, is_found;
  unsigned char value;
  int64_t allocated_bytes;
  openreg_ipc_handle handle;
};

static struct puppet {
  pid_t pid;
  int socket;
} puppets[PUPPETS];
static int used_puppets;

static openreg_block *mine; /* a puppet's block */
static atomic_int seen;

static openreg_status look(void *address) {
  atomic_store(&seen, *(unsigned char *)openreg_kernel_view(address));
  return OPENREG_OK;
}

static openreg_status make_and_export(const struct order *order, struct answer *answer) {
  openreg_status status = openreg_block_allocate(0, order->stream, BYTES, &mine);
  if (status == OPENREG_OK)
    status = openreg_fill(mine->address, order->value, BYTES);
  return status == OPENREG_OK ? openreg_block_export(mine, order->stream, &answer->handle) : status;
}

static openreg_status obey(const struct order *order, struct answer *answer) {
  char *address = mine ? (char *)mine->address + order->offset : NULL;
  switch (order->what) {
  case IMPORT:
    return openreg_block_import(&order->handle, order->stream, &mine);
  case READ:
    return openreg_copy(&answer->value, address, 1);
  case WRITE:
    return openreg_fill(address, order->value, 1);
  case BEGIN_READ:
    return openreg_stream_launch(0, order->stream, &look, address);
  case END_READ: {
    openreg_status status = openreg_stream_synchronize(0, order->stream);
    answer->value = (unsigned char)atomic_load(&seen);
    return status;
  }
  case FREE:
    openreg_block_free(mine);
    mine = NULL;
    return OPENREG_OK;
  case EXPORT:
    return make_and_export(order, answer);
  case EXPORT_AGAIN:
    return openreg_block_export(mine, order->stream, &answer->handle);
  }
  return OPENREG_INVALID_ARGUMENT;
}

_Noreturn static void be_a_puppet(int socket) {
  struct order order;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (read(socket, &order, sizeof order) == sizeof order) {
    struct answer answer = {0};
    openreg_memory_stats stats;
    answer.status = obey(&order, &answer);
    if (mine) {
      answer.bytes = mine->bytes;
      answer.requested_bytes = mine->requested_bytes;
      answer.is_imported = openreg_block_is_imported(mine);
      answer.is_found = openreg_block_find(mine->address) == mine;
    }
    if (openreg_memory_get_stats(0, &stats) == OPENREG_OK)
      answer.allocated_bytes = stats.allocated_bytes[ALL].current;
    if (!openreg_memory_is_valid(0) || write(socket, &answer, sizeof answer) != sizeof answer)
      _exit(1);
  }
  _exit(0);
}

static void fork_puppets(void) {
  for (int i = 0; i < PUPPETS; i++) {
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      for (int j = 0; j < i; j++)
        close(puppets[j].socket);
      close(sockets[0]);
      be_a_puppet(sockets[1]);
    }
    close(sockets[1]);
    puppets[i] = (struct puppet){pid, sockets[0]};
  }
}

/* Returns a puppet that no test has used. */
static struct puppet *a_puppet(void) {
  assert_true(used_puppets < PUPPETS);
  return &puppets[used_puppets++];
}

static struct answer tell(struct puppet *puppet, struct order order) {
  struct answer answer;
  assert_int_equal(write(puppet->socket, &order, sizeof order), sizeof order);
  assert_int_equal(read(puppet->socket, &answer, sizeof answer), sizeof answer);
  return answer;
}

static struct answer must(struct puppet *puppet, struct order order) {
  struct answer answer = tell(puppet, order);
  assert_int_equal(answer.status, OPENREG_OK);
  return answer;
}

static void stop(struct puppet *puppet) {
  int status;
  close(puppet->socket);
  assert_int_equal(waitpid(puppet->pid, &status, 0), puppet->pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void kill_hard(struct puppet *puppet) {
  int status;
  assert_int_equal(kill(puppet->pid, SIGKILL), 0);
  assert_int_equal(waitpid(puppet->pid, &status, 0), puppet->pid);
  close(puppet->socket);
}

/* ---- this process exports -------------------------------------------------------------------- */

static unsigned char byte_at(const openreg_block *block, size_t offset) {
  unsigned char value;
  assert_ok(openreg_copy(&value, (char *)block->address + offset, 1));
  return value;
}

static openreg_block *filled(int stream, unsigned char value) {
  openreg_block *block = take(0, stream, BYTES);
  assert_ok(openreg_fill(block->address, value, BYTES));
  return block;
}

static openreg_ipc_handle handle_of(openreg_block *block, int stream) {
  openreg_ipc_handle handle;
  assert_ok(openreg_block_export(block, stream, &handle));
  return handle;
}

static void importer_and_exporter_have_the_same_bytes(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *below = take(0, 0, 1536), *block = filled(0, 0x5A);
  struct answer answer = must(puppet, ORDER(IMPORT, .stream = 4, .handle = handle_of(block, 0)));
  assert_int_equal(answer.bytes, block->bytes);
  assert_int_equal(answer.requested_bytes, BYTES);
  assert_true(answer.is_imported);
  assert_true(answer.is_found);
  assert_int_equal(answer.allocated_bytes, 0);
  assert_int_equal(must(puppet, ORDER(READ, .offset = BYTES - 1)).value, 0x5A);
  must(puppet, ORDER(WRITE, .offset = 1234567, .value = 0x77));
  assert_int_equal(byte_at(block, 1234567), 0x77);
  assert_ok(openreg_fill(block->address, 0x11, 1));
  assert_int_equal(must(puppet, ORDER(READ)).value, 0x11);
  must(puppet, ORDER(FREE));
  openreg_block_free(block);
  openreg_block_free(below);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
  stop(puppet);
}

static void a_freed_block_stays_until_the_importer_frees_it(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block = filled(0, 0x21);
  must(puppet, ORDER(IMPORT, .handle = handle_of(block, 0)));
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(stats_of(0).requested_bytes[ALL].current, BYTES);
  openreg_block *other = filled(0, 0x22);
  assert_int_equal(must(puppet, ORDER(READ, .offset = 99)).value, 0x21);
  must(puppet, ORDER(FREE));
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(stats_of(0).allocation[ALL].current, 1);
  openreg_block_free(other);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
  stop(puppet);
}

static void an_importer_that_is_killed_releases_the_block(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block = filled(0, 1);
  must(puppet, ORDER(IMPORT, .handle = handle_of(block, 0)));
  openreg_block_free(block);
  assert_int_equal(stats_of(0).allocation[ALL].current, 1);
  kill_hard(puppet);
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(stats_of(0).allocation[ALL].current, 0);
}

static void a_handle_on_its_way_keeps_the_block(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block = filled(0, 0x33);
  openreg_ipc_handle handle = handle_of(block, 0);
  openreg_block_free(block);
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(stats_of(0).allocation[ALL].current, 1);
  must(puppet, ORDER(IMPORT, .handle = handle));
  assert_int_equal(must(puppet, ORDER(READ)).value, 0x33);
  must(puppet, ORDER(FREE));
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(stats_of(0).allocation[ALL].current, 0);
  assert_int_equal(tell(puppet, ORDER(IMPORT, .handle = handle)).status, OPENREG_INVALID_ARGUMENT);
  stop(puppet);
}

struct gated {
  atomic_int open;
  void *address;
};

static openreg_status write_when_open(void *data) {
  struct gated *gated = data;
  while (!atomic_load(&gated->open))
    ;
  *(unsigned char *)openreg_kernel_view(gated->address) = 0x44;
  return OPENREG_OK;
}

/* The work of the block's own stream, though it is exported on another. */
static void the_importers_stream_waits_for_the_exporters_work(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block = filled(3, 0);
  struct gated gated = {.address = block->address};
  assert_ok(openreg_stream_launch(0, 3, &write_when_open, &gated));
  must(puppet, ORDER(IMPORT, .stream = 7, .handle = handle_of(block, 5)));
  must(puppet, ORDER(BEGIN_READ, .stream = 7));
  atomic_store(&gated.open, 1);
  assert_int_equal(must(puppet, ORDER(END_READ, .stream = 7)).value, 0x44);
  must(puppet, ORDER(FREE));
  assert_ok(openreg_device_synchronize(0));
  openreg_block_free(block);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
  stop(puppet);
}

static void a_block_of_a_memory_pool_returns_to_it(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  uint64_t mempool;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  assert_ok(openreg_mempool_set_current(0, mempool));
  openreg_block *block = filled(0, 1);
  assert_ok(openreg_mempool_set_current(0, 0));
  must(puppet, ORDER(IMPORT, .handle = handle_of(block, 0)));
  openreg_block_free(block);
  assert_int_equal(active_blocks_of(mempool), 1);
  assert_ok(openreg_mempool_release(mempool));
  must(puppet, ORDER(FREE));
  assert_ok(openreg_cache_empty(0)); /* collects the block, and releases it */
  assert_int_equal(ledger_free(0), CAPACITY);
  stop(puppet);
}

static void an_import_is_not_exported_again(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block = filled(0, 1);
  must(puppet, ORDER(IMPORT, .handle = handle_of(block, 0)));
  assert_int_equal(tell(puppet, ORDER(EXPORT_AGAIN)).status, OPENREG_NOT_PERMITTED);
  must(puppet, ORDER(FREE));
  openreg_block_free(block);
  stop(puppet);
}

static void a_handle_of_this_process_is_refused(void **state) {
  (void)state;
  openreg_block *block = filled(0, 1), *none = NULL;
  openreg_ipc_handle handle = handle_of(block, 0);
  assert_status(openreg_block_import(&handle, 0, &none), OPENREG_INVALID_ARGUMENT);
  assert_null(none);
  struct puppet *puppet = a_puppet(); /* opens it, so that the block can be returned */
  must(puppet, ORDER(IMPORT, .handle = handle));
  must(puppet, ORDER(FREE));
  openreg_block_free(block);
  stop(puppet);
}

/* ---- this process imports -------------------------------------------------------------------- */

static void an_import_outlives_its_exporter(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block;
  struct answer answer = must(puppet, ORDER(EXPORT, .stream = 2, .value = 0x66));
  openreg_memory_stats before = stats_of(0);
  assert_ok(openreg_block_import(&answer.handle, 0, &block));
  assert_int_equal(block->requested_bytes, BYTES);
  assert_ptr_equal(openreg_block_find(block->address), block);
  kill_hard(puppet);
  assert_int_equal(byte_at(block, 0), 0x66);
  assert_int_equal(byte_at(block, BYTES - 1), 0x66);
  assert_ok(openreg_fill(block->address, 0x67, BYTES));
  assert_int_equal(byte_at(block, BYTES - 1), 0x67);
  openreg_memory_stats after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  void *address = block->address;
  openreg_block_free(block);
  assert_null(openreg_block_find(address));
}

static void an_import_is_kept_while_a_stream_uses_it(void **state) {
  (void)state;
  struct puppet *puppet = a_puppet();
  openreg_block *block;
  struct answer answer = must(puppet, ORDER(EXPORT, .value = 0x01));
  assert_ok(openreg_block_import(&answer.handle, 0, &block));
  struct gated gated = {.address = block->address};
  assert_ok(openreg_stream_launch(0, 9, &write_when_open, &gated));
  assert_ok(openreg_block_record_stream(block, 9));
  openreg_block_free(block);
  assert_ok(openreg_memory_collect_shared(0));
  atomic_store(&gated.open, 1);
  assert_ok(openreg_stream_synchronize(0, 9));
  assert_int_equal(must(puppet, ORDER(READ)).value, 0x44);
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(must(puppet, ORDER(FREE)).allocated_bytes, 0);
  stop(puppet);
}

int main(void) {
  configure();
  fork_puppets();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(importer_and_exporter_have_the_same_bytes),
      ON_EMPTY_DEVICES(a_freed_block_stays_until_the_importer_frees_it),
      ON_EMPTY_DEVICES(an_importer_that_is_killed_releases_the_block),
      ON_EMPTY_DEVICES(a_handle_on_its_way_keeps_the_block),
      ON_EMPTY_DEVICES(the_importers_stream_waits_for_the_exporters_work),
      ON_EMPTY_DEVICES(a_block_of_a_memory_pool_returns_to_it),
      ON_EMPTY_DEVICES(an_import_is_not_exported_again),
      ON_EMPTY_DEVICES(a_handle_of_this_process_is_refused),
      ON_EMPTY_DEVICES(an_import_outlives_its_exporter),
      ON_EMPTY_DEVICES(an_import_is_kept_while_a_stream_uses_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
