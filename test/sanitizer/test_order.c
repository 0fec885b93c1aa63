/* The happens-before relation, and the size of clocks. */
#include "player.h"

#include <stdlib.h>

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_thread *host, *one, *other;

static int begin(void **state) {
  (void)state;
  sanitizer = make_sanitizer((openreg_sanitizer_options){0});
  host = make_actor(sanitizer, OPENREG_SANITIZER_HOST, 1);
  one = make_stream(sanitizer, 2);
  other = make_stream(sanitizer, 3);
  allocate(sanitizer, 0x1000, 0x1000, 4);
  return 0;
}

static int end(void **state) {
  (void)state;
  openreg_sanitizer_destroy(sanitizer);
  return 0;
}

/* `one` writes, then the test performs `order`. Returns whether `other` may read. */
static void write_by_one(void) {
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
}

static bool other_may_read(void) {
  openreg_sanitizer_region region = bytes_at(0x1000, 64);
  return !openreg_sanitizer_would_conflict(sanitizer, other, &region, READ);
}

static void streams_are_not_ordered_by_a_host_that_submits_to_both(void **state) {
  (void)state;
  openreg_sanitizer_order(sanitizer, host, one);
  write_by_one();
  openreg_sanitizer_order(sanitizer, host, other);
  assert_false(other_may_read());
  assert_false(openreg_sanitizer_is_ordered(sanitizer, one, other));
}

static void a_synchronization_of_the_host_orders_its_later_submissions(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_order(sanitizer, one, host);
  assert_true(openreg_sanitizer_is_ordered(sanitizer, one, host));
  assert_false(other_may_read());
  openreg_sanitizer_order(sanitizer, host, other);
  assert_true(other_may_read());
}

static void order_only_covers_earlier_operations(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_order(sanitizer, one, other);
  assert_true(other_may_read());
  assert_true(openreg_sanitizer_is_ordered(sanitizer, one, other));
  write_by_one();
  assert_false(other_may_read());
  assert_false(openreg_sanitizer_is_ordered(sanitizer, one, other));
}

static void a_token_is_the_point_of_its_last_record(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 0); /* was never recorded */
  write_by_one();
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 0));
  assert_false(other_may_read());
  write_by_one();
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 0);
  assert_false(other_may_read());
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 0));
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 0);
  assert_true(other_may_read());
}

static void a_retained_token_outlives_a_release(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  write_by_one();
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 0));
  openreg_sanitizer_token_retain(sanitizer, token);
  openreg_sanitizer_token_release(sanitizer, token);
  assert_int_equal(counts(sanitizer).tokens, 1);
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 0);
  assert_true(other_may_read());
  openreg_sanitizer_token_release(sanitizer, token);
  assert_int_equal(counts(sanitizer).tokens, 0);
}

static void a_record_includes_the_submitters_operations(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  write_by_one();
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, host, one, 0));
  openreg_sanitizer_wait(sanitizer, other, token, host, 0);
  assert_true(other_may_read());
}

static void synchronizing_with_a_group_includes_its_ended_threads(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_thread_end(sanitizer, one);
  openreg_sanitizer_synchronize(sanitizer, 1, other); /* another group */
  assert_false(other_may_read());
  openreg_sanitizer_synchronize(sanitizer, 0, other);
  assert_true(other_may_read());
}

static void a_child_starts_after_its_parents_operations(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_thread_end(sanitizer, other);
  ASSERT_OK(
      openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, 0, 9, one, &other));
  assert_true(other_may_read());
  write_by_one();
  assert_false(other_may_read());
}

static void a_thread_without_parent_starts_after_what_all_threads_know(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_thread_end(sanitizer, other);
  other = make_stream(sanitizer, 9);
  assert_false(other_may_read());
  openreg_sanitizer_thread_end(sanitizer, other);
  openreg_sanitizer_order(sanitizer, one, host);
  other = make_stream(sanitizer, 9);
  assert_true(other_may_read());
  write_by_one();
  assert_false(other_may_read());
}

static void the_next_owner_of_a_slot_is_another_thread(void **state) {
  (void)state;
  /* A slot is free if no record refers to it. A thread that acquired the first owner has not
   * acquired the second. */
  openreg_sanitizer_order(sanitizer, one, other);
  openreg_sanitizer_thread_end(sanitizer, one);
  one = make_stream(sanitizer, 8);
  assert_int_equal(counts(sanitizer).slots, 3);
  write_by_one();
  assert_false(other_may_read());
}

static void a_slot_in_use_is_reused_by_threads_ordered_after_it(void **state) {
  (void)state;
  write_by_one();
  openreg_sanitizer_thread_end(sanitizer, one);
  ASSERT_OK(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, 0, 9, host, &one));
  assert_int_equal(counts(sanitizer).slots, 4);
  /* A thread that acquired the new owner has not acquired the old one. */
  openreg_sanitizer_order(sanitizer, one, other);
  assert_false(other_may_read());
  openreg_sanitizer_thread_end(sanitizer, one);
  openreg_sanitizer_synchronize(sanitizer, 0, host);
  ASSERT_OK(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, 0, 9, host, &one));
  assert_int_equal(counts(sanitizer).slots, 4);
  openreg_sanitizer_order(sanitizer, one, other);
  assert_true(other_may_read());
}

static void clocks_stay_small_with_thousands_of_threads(void **state) {
  (void)state;
  for (int i = 0; i < 20000; i++) {
    openreg_sanitizer_thread *thread;
    ASSERT_OK(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_HOST, 0, 5,
                                              i % 2 == 0 ? host : NULL, &thread));
    openreg_sanitizer_order(sanitizer, thread, one);
    if (i % 3 == 0) /* acquired by no thread, and a record refers to it */
      access_bytes(sanitizer, thread, 0x1000 + (uint64_t)(i % 64) * 64, 64, READ, 11);
    openreg_sanitizer_thread_end(sanitizer, thread);
  }
  assert_in_range(counts(sanitizer).slots, 3, 400);
  write_by_one();
  assert_false(other_may_read());
  openreg_sanitizer_order(sanitizer, one, other);
  assert_true(other_may_read());
}

static void thousands_of_threads_can_be_live(void **state) {
  (void)state;
  enum { MANY = 2000 };
  openreg_sanitizer_thread **threads = malloc(MANY * sizeof *threads);
  for (int i = 0; i < MANY; i++) {
    ASSERT_OK(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, 0, 5, host,
                                              &threads[i]));
    access_bytes(sanitizer, threads[i], 0x1000 + (uint64_t)i, 1, WRITE, 12);
  }
  openreg_sanitizer_region whole = bytes_at(0x1000, MANY);
  for (int i = 0; i < MANY; i++) {
    assert_true(openreg_sanitizer_would_conflict(sanitizer, other, &whole, READ));
    openreg_sanitizer_order(sanitizer, threads[i], other);
  }
  assert_false(openreg_sanitizer_would_conflict(sanitizer, other, &whole, READ));
  free(threads);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(streams_are_not_ordered_by_a_host_that_submits_to_both),
      TEST(a_synchronization_of_the_host_orders_its_later_submissions),
      TEST(order_only_covers_earlier_operations),
      TEST(a_token_is_the_point_of_its_last_record),
      TEST(a_retained_token_outlives_a_release),
      TEST(a_record_includes_the_submitters_operations),
      TEST(synchronizing_with_a_group_includes_its_ended_threads),
      TEST(a_child_starts_after_its_parents_operations),
      TEST(a_thread_without_parent_starts_after_what_all_threads_know),
      TEST(the_next_owner_of_a_slot_is_another_thread),
      TEST(a_slot_in_use_is_reused_by_threads_ordered_after_it),
      TEST(clocks_stay_small_with_thousands_of_threads),
      TEST(thousands_of_threads_can_be_live),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
