/* test_out_of_memory.c: the values and the message of a request that does not fit. */
#include "support.h"

#include <pthread.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL };

static void assert_figures(openreg_out_of_memory_info refusal, uint64_t free_bytes,
                           uint64_t allocated_bytes, uint64_t reserved_bytes) {
  assert_int_equal(refusal.capacity_bytes, CAPACITY);
  assert_int_equal(refusal.free_bytes, free_bytes);
  assert_int_equal(refusal.allocated_bytes, allocated_bytes);
  assert_int_equal(refusal.reserved_bytes, reserved_bytes);
}

static void a_request_beyond_the_capacity_is_refused(void **state) {
  (void)state;
  static const size_t requests[] = {CAPACITY + 1, (size_t)1 << 40, ((size_t)1 << 60) - 1};
  for (int i = 0; i < 3; i++)
    assert_figures(refused(0, 0, requests[i]), CAPACITY, 0, 0);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.ooms, 3);
  assert_int_equal(stats.alloc_retries, 3);
  assert_stat(stats.reserved_bytes[ALL], 0, 0, 0, 0);
}

/* Nothing is tried, and nothing is counted. */
static void an_exabyte_is_refused_at_once(void **state) {
  (void)state;
  static const size_t requests[] = {(size_t)1 << 60, SIZE_MAX - 100, SIZE_MAX};
  for (int i = 0; i < 3; i++)
    refused(0, 0, requests[i]);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.alloc_retries, 0);
  assert_int_equal(stats.stream_syncs, 0);
  assert_int_equal(stats.ooms, 0);
}

static void the_error_has_the_sizes_of_request_block_and_segment(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 62 * MIB);
  openreg_out_of_memory_info refusal = refused(0, 0, 3 * MIB + 1);
  assert_int_equal(refusal.bytes, 3 * MIB + 1);
  assert_int_equal(refusal.rounded_bytes, 3 * MIB + 512);
  assert_int_equal(refusal.tried_bytes, 20 * MIB);
  assert_false(refusal.is_rejection);
  assert_true(refusal.allowed_bytes == UINT64_MAX);
  assert_int_equal(refusal.mempool_bytes, 0);
  assert_int_equal(refused(0, 0, 12 * MIB + 1).tried_bytes, 14 * MIB);
  openreg_block_free(take(0, 0, 512));
  openreg_block_free(held);
}

/* 40 and 2 MiB are reserved; 512 bytes of the latter are allocated. */
static void the_error_has_allocated_reserved_and_free_bytes(void **state) {
  (void)state;
  openreg_block *held = take(1, 0, 40 * MIB), *part = take(1, 0, 512);
  assert_figures(refused(1, 0, 30 * MIB), 22 * MIB, 40 * MIB + 512, 42 * MIB);
  openreg_block_free(held);
  openreg_block_free(part);
}

static void the_values_are_those_after_the_cache_was_emptied(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 12 * MIB);
  openreg_block_free(take(0, 0, 40 * MIB));
  assert_figures(refused(0, 0, 60 * MIB), 52 * MIB, 12 * MIB, 12 * MIB);
  openreg_block_free(held);
}

/* 12 MiB are free, and 2 MiB minus 512 bytes beside an allocated block. The free memory of the
 * default pool does not count. */
static void the_error_has_the_free_memory_of_private_pools(void **state) {
  (void)state;
  uint64_t mempool = make_mempool(false);
  openreg_block *held = take_in(mempool, 0, 0, 512), *other = take(0, 0, 512);
  openreg_block_free(take_in(mempool, 0, 0, 12 * MIB));
  openreg_out_of_memory_info refusal = refused(0, 0, 60 * MIB);
  assert_int_equal(refusal.mempool_bytes, 14 * MIB - 512);
  assert_int_equal(refusal.allocated_bytes, 1024);
  assert_int_equal(refusal.reserved_bytes, 16 * MIB);
  openreg_block_free(held);
  openreg_block_free(other);
  assert_ok(openreg_mempool_release(mempool));
}

static void a_rejection_is_distinguished_from_other_errors(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.throws_on_oom = true;
  set_settings(settings);
  openreg_out_of_memory_info refusal = refused(0, 0, 65 * MIB);
  assert_true(refusal.is_rejection);
  assert_int_equal(refusal.tried_bytes, 66 * MIB);
  assert_error("a request for 68157440 bytes was rejected");
  set_settings(default_settings());
  assert_false(refused(0, 0, 65 * MIB).is_rejection);
}

static void *be_refused(void *bytes) {
  refused(0, 0, *(size_t *)bytes);
  return NULL;
}

static void each_thread_has_its_own_last_error(void **state) {
  (void)state;
  pthread_t thread;
  size_t bytes = 70 * MIB;
  openreg_out_of_memory_info refusal;
  refused(0, 0, 80 * MIB);
  assert_int_equal(pthread_create(&thread, NULL, be_refused, &bytes), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  openreg_memory_last_out_of_memory(&refusal);
  assert_int_equal(refusal.bytes, 80 * MIB);
}

static void a_success_keeps_the_last_error(void **state) {
  (void)state;
  openreg_out_of_memory_info refusal;
  refused(0, 0, 80 * MIB);
  openreg_block_free(take(0, 0, 512));
  openreg_memory_last_out_of_memory(&refusal);
  assert_int_equal(refusal.bytes, 80 * MIB);
}

static void the_message_has_every_value(void **state) {
  (void)state;
  openreg_block *held = take(1, 0, 40 * MIB), *part = take(1, 0, 512);
  refused(1, 0, 30 * MIB);
  assert_error("out of memory. Tried to allocate 30.00 MiB (31457280 bytes).");
  assert_error("Device 1 has a capacity of 64.00 MiB, of which 22.00 MiB is free.");
  assert_error("has reserved 42.00 MiB: 40.00 MiB is allocated, 2.00 MiB is reserved but");
  refused(1, 0, (size_t)3 << 40);
  assert_error("3072.00 GiB");
  openreg_block_free(held);
  openreg_block_free(part);
}

/* A larger unit begins above 1024 of the smaller one. */
static void sizes_in_the_message_are_formatted_as_by_pytorch(void **state) {
  (void)state;
  assert_ok(openreg_memory_set_fraction(0, 0));
  refused(0, 0, 1);
  assert_error("Tried to allocate 1 bytes (1 bytes)");
  refused(0, 0, 1024);
  assert_error("Tried to allocate 1024 bytes (");
  refused(0, 0, 1025);
  assert_error("Tried to allocate 1.00 KiB (");
  refused(0, 0, MIB);
  assert_error("Tried to allocate 1024.00 KiB (");
  refused(0, 0, (size_t)1 << 30);
  assert_error("Tried to allocate 1024.00 MiB (");
  refused(0, 0, ((size_t)1 << 30) + 1);
  assert_error("Tried to allocate 1.00 GiB (");
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_request_beyond_the_capacity_is_refused),
      ON_EMPTY_DEVICES(an_exabyte_is_refused_at_once),
      ON_EMPTY_DEVICES(the_error_has_the_sizes_of_request_block_and_segment),
      ON_EMPTY_DEVICES(the_error_has_allocated_reserved_and_free_bytes),
      ON_EMPTY_DEVICES(the_values_are_those_after_the_cache_was_emptied),
      ON_EMPTY_DEVICES(the_error_has_the_free_memory_of_private_pools),
      ON_EMPTY_DEVICES(a_rejection_is_distinguished_from_other_errors),
      ON_EMPTY_DEVICES(each_thread_has_its_own_last_error),
      ON_EMPTY_DEVICES(a_success_keeps_the_last_error),
      ON_EMPTY_DEVICES(the_message_has_every_value),
      ON_EMPTY_DEVICES(sizes_in_the_message_are_formatted_as_by_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
