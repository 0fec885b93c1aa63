/* support.h: what the allocator's tests share: cmocka, devices of a known size, and helpers.
 *
 * Every test starts and ends with empty devices and CUDA's settings, so that expected values can be
 * computed by hand. It ends with a check of every structure.
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

/* Configures two devices of CAPACITY bytes, which no other process shares. Call it first in main.
 */
void configure(void);

/* A test that starts and ends with empty devices. */
#define ON_EMPTY_DEVICES(test) cmocka_unit_test_setup_teardown(test, devices_reset, devices_check)
int devices_reset(void **state);
int devices_check(void **state);

#define assert_status(call, expected) check_status(call, expected, #call, __FILE__, __LINE__)
#define assert_ok(call)               assert_status(call, OPENREG_OK)
void check_status(openreg_status status, openreg_status expected, const char *call,
                  const char *file, int line);
/* Asserts that the last error contains `part`. */
void assert_error(const char *part);

/* Allocates a block; fails the test otherwise. */
openreg_block *take(int device, int stream, size_t bytes);
/* Makes a request that must run out of memory, and returns the values of its error. */
openreg_out_of_memory_info refused(int device, int stream, size_t bytes);
/* Returns a block's offset in its device's arena. */
size_t place_of(const openreg_block *block);
/* Return CUDA's default settings, and change the settings until the next test. */
openreg_memory_settings default_settings(void);
void set_settings(openreg_memory_settings settings);
/* Create a memory pool, and allocate a block in it; fail the test otherwise. */
uint64_t make_mempool(bool use_on_oom);
/* Counts a memory pool's blocks, on all devices, that are allocated or wait for something. */
int64_t active_blocks_of(uint64_t mempool);
openreg_block *take_in(uint64_t mempool, int device, int stream, size_t bytes);
openreg_memory_stats stats_of(int device);
uint64_t ledger_free(int device);

/* Allocate pinned memory or fail the test, and return the statistics. */
char *pin(size_t bytes);
openreg_pinned_stats pinned_stats(void);
/* Before a test: empties the cache and resets the statistics. After it: asserts that nothing is
 * allocated. */
int pinned_reset(void **state);
int pinned_all_freed(void **state);
void set_pinned_settings(openreg_pinned_settings settings);
/* Whether the page of an address is mapped. */
bool is_mapped(char *address);

/* Keeps a stream busy from `close` to `open`, which waits until the stream is idle. */
struct gate {
  int device, stream;
  atomic_bool is_open;
};
void gate_close(struct gate *gate, int device, int stream);
void gate_open(struct gate *gate);

/* Return the kernel view of device memory, and whether all its bytes have a value. */
unsigned char *memory(const void *address);
void assert_filled(const void *address, size_t bytes, int value);
/* With OPENREG_DEBUG_MEMORY=1: asserts that no damage was found. */
void assert_clean(int device);

/* The sums of a snapshot, under the names of the statistics. */
typedef struct totals {
#define X(name) int64_t name[OPENREG_POOL_KINDS];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
} totals;

/* Adds up a snapshot, and checks that its parts fit together without a gap. */
totals add_up(const openreg_memory_snapshot *snapshot);
/* Takes a snapshot; the caller frees it. */
openreg_memory_snapshot snapshot_of(int device);
/* Asserts that the snapshot and the statistics agree. */
void assert_snapshot_agrees(int device);

#define assert_stat(stat, now, top, in, out)                                                       \
  do {                                                                                             \
    assert_int_equal((stat).current, now);                                                         \
    assert_int_equal((stat).peak, top);                                                            \
    assert_int_equal((stat).allocated, in);                                                        \
    assert_int_equal((stat).freed, out);                                                           \
  } while (0)

#endif
