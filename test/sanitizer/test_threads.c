/* Many host threads use one sanitizer at once. */
#include "player.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, TURNS = 300, SHARED = 0x100000, BLOCK = 0x1000 };

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_token *token;
static _Atomic int report_count, errors;

static void count_reported(const openreg_sanitizer_finding *finding, void *context) {
  (void)context;
  /* Only the shared block is used wrongly. */
  if (finding->bytes.begin < SHARED || finding->second.call_site != 2)
    atomic_fetch_add(&errors, 1);
  atomic_fetch_add(&report_count, 1);
}

static void expect(bool condition) {
  if (!condition)
    atomic_fetch_add(&errors, 1);
}

static void use(openreg_sanitizer_thread *stream, openreg_sanitizer_thread *host, uint64_t address,
                uint64_t call_site) {
  openreg_sanitizer_access access = {.region = bytes_at(address, 64), .mode = BOTH};
  openreg_sanitizer_launch launch = {
      .thread = stream, .submitter = host, .call_site = call_site, .accesses = &access, .count = 1};
  expect(openreg_sanitizer_check_launch(sanitizer, &launch) == OPENREG_OK);
}

static void ask(void) {
  openreg_sanitizer_finding finding;
  openreg_sanitizer_counters counters;
  openreg_sanitizer_counts(sanitizer, &counters);
  expect(counters.threads <= 2 * THREADS);
  if (openreg_sanitizer_finding_get(sanitizer, 0, &finding))
    expect(finding.kind == OPENREG_SANITIZER_RACE ||
           finding.kind == OPENREG_SANITIZER_UNORDERED_EVENT);
}

static void *run(void *number) {
  uint64_t own = BLOCK * (1 + (uint64_t)(uintptr_t)number);
  for (int turn = 0; turn < TURNS; turn++) {
    openreg_sanitizer_thread *host, *stream;
    openreg_sanitizer_block block = {.address = own, .bytes = BLOCK};
    expect(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_HOST, -1, 0, NULL, &host) ==
           OPENREG_OK);
    expect(openreg_sanitizer_thread_create(sanitizer, OPENREG_SANITIZER_STREAM, 0, 0, host,
                                           &stream) == OPENREG_OK);
    openreg_sanitizer_forget(sanitizer, own, BLOCK); /* of the previous stream */
    expect(openreg_sanitizer_alloc(sanitizer, &block, true) == OPENREG_OK);
    use(stream, host, own, 1);
    use(stream, host, SHARED, 2);
    expect(openreg_sanitizer_record(sanitizer, token, stream, host, 3) == OPENREG_OK);
    openreg_sanitizer_wait(sanitizer, host, token, NULL, 4);
    openreg_sanitizer_free(sanitizer, own, 5);
    if (turn % 50 == 0)
      openreg_sanitizer_findings_clear(sanitizer);
    ask();
    openreg_sanitizer_thread_end(sanitizer, stream);
    openreg_sanitizer_thread_end(sanitizer, host);
  }
  return NULL;
}

static void many_host_threads_report_at_once(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  sanitizer = make_sanitizer((openreg_sanitizer_options){.callback = count_reported});
  token = make_token(sanitizer);
  allocate(sanitizer, SHARED, 64, 6);
  for (uintptr_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run, (void *)i), 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(errors, 0);
  assert_int_equal(counts(sanitizer).threads, 0);
  assert_int_equal(counts(sanitizer).accesses, 2 * THREADS * TURNS);
  openreg_sanitizer_destroy(sanitizer);
}

/* Streams without any order: the second one is reported, whichever that is. */
static void *write_shared(void *stream) {
  use(stream, NULL, SHARED, 2);
  return NULL;
}

static void a_race_is_found_whichever_thread_reports_first(void **state) {
  (void)state;
  pthread_t threads[2];
  for (int turn = 0; turn < 50; turn++) {
    sanitizer = make_sanitizer((openreg_sanitizer_options){0});
    allocate(sanitizer, SHARED, 64, 6);
    openreg_sanitizer_thread *streams[] = {make_stream(sanitizer, 0), make_stream(sanitizer, 1)};
    for (int i = 0; i < 2; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, write_shared, streams[i]), 0);
    for (int i = 0; i < 2; i++)
      assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(only_finding(sanitizer).kind, OPENREG_SANITIZER_RACE);
    openreg_sanitizer_destroy(sanitizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_host_threads_report_at_once),
      cmocka_unit_test(a_race_is_found_whichever_thread_reports_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
