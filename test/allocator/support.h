/* support.h: what the allocator's tests share: cmocka, devices of known size, short forms.
 *
 * Every test starts and ends with empty devices and CUDA's settings, so that figures can be written
 * down by hand, and ends with a walk over every structure.
 */
#ifndef OPENREG_TEST_ALLOCATOR_SUPPORT_H
#define OPENREG_TEST_ALLOCATOR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "allocator/allocator.h"

enum { TEST_DEVICES = 2, KIB = 1 << 10, MIB = 1 << 20, CAPACITY = 64 * MIB };

/* Two devices of CAPACITY bytes, shared with no other process. Call it first in main. */
void configure(void);

/* A test between empty devices. */
#define ON_EMPTY_DEVICES(test) cmocka_unit_test_setup_teardown(test, devices_reset, devices_check)
int devices_reset(void **state);
int devices_check(void **state);

#define assert_status(call, expected) check_status(call, expected, #call, __FILE__, __LINE__)
#define assert_ok(call)               assert_status(call, OPENREG_OK)
void check_status(openreg_status status, openreg_status expected, const char *call,
                  const char *file, int line);
/* The last error holds `part`. */
void assert_sentence(const char *part);

/* A block that must be had. */
openreg_block *take(int device, int stream, size_t bytes);
/* A request that must be refused for lack of memory, and its figures. */
openreg_memory_refusal refused(int device, int stream, size_t bytes);
/* Where a block lies, from the beginning of its device's arena. */
size_t place_of(const openreg_block *block);
/* CUDA's settings where nothing is said, and changes of them, until the next test. */
openreg_memory_settings default_settings(void);
void set_settings(openreg_memory_settings settings);
/* A memory pool that must be had, and a block in it. */
uint64_t make_mempool(bool use_on_oom);
/* Blocks of a memory pool, on all devices, that are allocated or await something. */
int64_t active_blocks_of(uint64_t mempool);
openreg_block *take_in(uint64_t mempool, int device, int stream, size_t bytes);
openreg_memory_stats stats_of(int device);
uint64_t ledger_free(int device);

/* Pinned memory that must be had, and its figures. */
char *pin(size_t bytes);
openreg_pinned_stats pinned_stats(void);
/* Before a test: nothing cached or counted; after it: nothing held. */
int pinned_reset(void **state);
int pinned_all_freed(void **state);
void set_pinned_settings(openreg_pinned_settings settings);
/* Whether the page of an address is there at all. */
bool is_mapped(char *address);

/* Keeps a stream busy from `close` to `open`, which waits until the stream is idle. */
struct gate {
  int device, stream;
  atomic_bool is_open;
};
void gate_close(struct gate *gate, int device, int stream);
void gate_open(struct gate *gate);

/* What a snapshot adds up to, under the names of the statistics. */
typedef struct figures {
#define X(name) int64_t name[OPENREG_POOL_KINDS];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
} figures;

/* Adds up a snapshot, whose parts must fit together without a gap. */
figures add_up(const openreg_memory_snapshot *snapshot);
/* A snapshot that must be had, and freed. */
openreg_memory_snapshot snapshot_of(int device);
/* What snapshot and statistics say at this moment is the same. */
void assert_snapshot_agrees(int device);

#define assert_stat(stat, now, top, in, out)                                                       \
  do {                                                                                             \
    assert_int_equal((stat).current, now);                                                         \
    assert_int_equal((stat).peak, top);                                                            \
    assert_int_equal((stat).allocated, in);                                                        \
    assert_int_equal((stat).freed, out);                                                           \
  } while (0)

#endif
