/* The contents of a finding: its kind and both sides, reported once. */
#include "player.h"

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_thread *one, *other, *host, *second_host;

static void begin_with(openreg_sanitizer_options options) {
  sanitizer = make_sanitizer(options);
  one = make_stream(sanitizer, 2);
  other = make_stream(sanitizer, 3);
  host = make_actor(sanitizer, OPENREG_SANITIZER_HOST, 4);
  second_host = make_actor(sanitizer, OPENREG_SANITIZER_HOST, 5);
  allocate(sanitizer, 0x1000, 0x1000, 40);
}

static int begin(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){0});
  return 0;
}

static int end(void **state) {
  (void)state;
  openreg_sanitizer_destroy(sanitizer);
  return 0;
}

static openreg_sanitizer_kind only_kind(void) {
  return only_finding(sanitizer).kind;
}

/* ---- contents -------------------------------------------------------------------------------- */

static void a_race_names_both_accesses_and_the_bytes(void **state) {
  (void)state;
  int64_t sizes[] = {10, 4}, strides[] = {64, 4};
  openreg_sanitizer_region rows = {0x1010, 4, 2, sizes, strides};
  access_region(sanitizer, one, rows, WRITE, 10);
  access_bytes(sanitizer, other, 0x1020, 100, READ, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_RACE);
  assert_string_equal(openreg_sanitizer_kind_name(finding.kind), "race");
  assert_int_equal(finding.first.call_site, 10);
  assert_int_equal(finding.first.tag, 1010);
  assert_int_equal(finding.first.thread, 2);
  assert_int_equal(finding.first.mode, WRITE);
  assert_int_equal(finding.first.begin, 0x1010);
  assert_int_equal(finding.first.end, 0x1010 + 9 * 64 + 16);
  assert_int_equal(finding.first.block.call_site, 40);
  assert_int_equal(finding.second.call_site, 11);
  assert_int_equal(finding.second.thread, 3);
  assert_int_equal(finding.second.mode, READ);
  assert_int_equal(finding.second.block.address, 0x1000);
  assert_int_equal(finding.second.block.bytes, 0x1000);
  assert_int_equal(finding.bytes.begin, 0x1050);
  assert_int_equal(finding.bytes.end, 0x1060);
}

static void two_reads_do_not_race(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, READ, 10);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, other, 0x1000, 64, WRITE, 12);
  assert_int_equal(only_finding(sanitizer).first.call_site, 10);
}

static void accesses_of_one_launch_do_not_race(void **state) {
  (void)state;
  openreg_sanitizer_access accesses[] = {
      {.region = bytes_at(0x1000, 64), .mode = READ},
      {.region = bytes_at(0x1020, 64), .mode = WRITE},
      {.region = bytes_at(0x1000, 64), .mode = BOTH},
  };
  openreg_sanitizer_launch launch = {.thread = one, .accesses = accesses, .count = 3};
  ASSERT_OK(openreg_sanitizer_check_launch(sanitizer, &launch));
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

static void a_conflict_with_deferred_work_is_never_waited(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, READ | OPENREG_SANITIZER_DEFERRED, 10);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, other, 0x1000, 64, WRITE, 12);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_NEVER_WAITED);
  openreg_sanitizer_findings_clear(sanitizer);
  openreg_sanitizer_order(sanitizer, one, other);
  access_bytes(sanitizer, other, 0x1000, 64, WRITE, 13);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

static void a_partial_write_conflicts_with_accesses_to_its_whole_region(void **state) {
  (void)state;
  enum { PARTIAL = OPENREG_SANITIZER_PARTIAL };
  access_bytes(sanitizer, one, 0x1000, 64, BOTH | PARTIAL, 10);
  access_bytes(sanitizer, other, 0x1000, 64, WRITE | PARTIAL, 11);
  access_bytes(sanitizer, other, 0x1000, 64, READ | PARTIAL, 12);
  access_bytes(sanitizer, other, 0x1000, 63, WRITE, 13); /* the last byte may be the one that was
                                                          * written */
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, other, 0x1000, 80, READ, 14);
  assert_int_equal(only_finding(sanitizer).first.call_site, 10);
  access_bytes(sanitizer, one, 0x1010, 64, WRITE | PARTIAL, 15); /* the other way round */
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 2);
}

static void a_partial_read_counts_as_a_read_of_the_whole_region(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, READ | OPENREG_SANITIZER_PARTIAL, 10);
  access_bytes(sanitizer, other, 0x1020, 4, WRITE, 11);
  assert_int_equal(only_finding(sanitizer).first.call_site, 10);
}

static void a_conflict_of_host_and_stream_is_a_host_access(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, READ, 10);
  access_bytes(sanitizer, host, 0x103f, 1, READ, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, host, 0x1040, 1, WRITE, 12); /* next to it */
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, host, 0x103f, 1, WRITE, 13);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_HOST_ACCESS);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 14); /* the other way round */
  openreg_sanitizer_finding finding;
  assert_true(openreg_sanitizer_finding_get(sanitizer, 1, &finding));
  assert_int_equal(finding.kind, OPENREG_SANITIZER_HOST_ACCESS);
  assert_int_equal(finding.first.thread_kind, OPENREG_SANITIZER_HOST);
  assert_int_equal(finding.first.call_site, 13);
}

static void host_threads_never_conflict(void **state) {
  (void)state;
  access_bytes(sanitizer, host, 0x1000, 64, WRITE, 10);
  access_bytes(sanitizer, second_host, 0x1000, 64, WRITE, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

static void a_host_does_not_hide_a_stream_from_another_host(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  openreg_sanitizer_order(sanitizer, one, host);
  access_bytes(sanitizer, host, 0x1000, 64, WRITE, 11);
  access_bytes(sanitizer, second_host, 0x1000, 64, READ, 12);
  assert_int_equal(only_finding(sanitizer).first.call_site, 10);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void a_wait_before_the_record_is_named(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 21);
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 22));
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_UNORDERED_EVENT);
  assert_int_equal(finding.token, 77);
  assert_int_equal(finding.waited_call_site, 21);
  assert_int_equal(finding.recorded_call_site, 22);
  assert_true(finding.waited_early);
}

static void a_wait_for_a_token_that_was_recorded_again_is_named(void **state) {
  (void)state;
  openreg_sanitizer_thread *third = make_stream(sanitizer, 6);
  openreg_sanitizer_token *token = make_token(sanitizer);
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 22));
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, third, NULL, 23));
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 21);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  openreg_sanitizer_finding finding = only_finding(sanitizer);
  assert_int_equal(finding.kind, OPENREG_SANITIZER_UNORDERED_EVENT);
  assert_int_equal(finding.recorded_call_site, 22);
  assert_int_equal(finding.waited_call_site, 21);
  assert_false(finding.waited_early);
}

static void a_token_whose_record_would_not_help_is_not_named(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 22)); /* before the write */
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 21);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_RACE);
}

static void a_token_of_another_waiting_thread_is_not_named(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  openreg_sanitizer_wait(sanitizer, host, token, NULL, 21);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 22));
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_RACE);
}

static void a_harmless_early_wait_is_not_reported(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 21);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 10);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, other, NULL, 22));
  openreg_sanitizer_wait(sanitizer, one, token, NULL, 23);
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
}

/* ---- once ------------------------------------------------------------------------------------ */

struct record {
  int times;
  openreg_sanitizer_finding last;
  openreg_sanitizer *sanitizer;
};

static void count_reported(const openreg_sanitizer_finding *finding, void *context) {
  struct record *record = context;
  record->times++;
  record->last = *finding;
  /* The callback runs without the lock, so it may call the sanitizer. */
  assert_true(openreg_sanitizer_finding_count(record->sanitizer) > 0);
}

static void a_finding_is_reported_once_and_counted(void **state) {
  (void)state;
  struct record record = {0};
  begin_with((openreg_sanitizer_options){.callback = count_reported, .context = &record});
  record.sanitizer = sanitizer;
  for (int i = 0; i < 10; i++) {
    access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
    access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  }
  /* Two groups of 20 accesses: each but the first conflicts with the last one of the other group.
   */
  assert_int_equal(record.times, 2);
  assert_int_equal(record.last.first.call_site, 11);
  assert_int_equal(record.last.count, 1);
  openreg_sanitizer_finding finding;
  assert_true(openreg_sanitizer_finding_get(sanitizer, 0, &finding));
  assert_int_equal(finding.count, 10);
  assert_true(openreg_sanitizer_finding_get(sanitizer, 1, &finding));
  assert_int_equal(finding.count, 9);
  assert_false(openreg_sanitizer_finding_get(sanitizer, 2, &finding));
  openreg_sanitizer_findings_clear(sanitizer);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(record.times, 3);
  openreg_sanitizer_destroy(sanitizer);
}

static void findings_differ_by_their_call_sites(void **state) {
  (void)state;
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  for (int turn = 0; turn < 2; turn++)
    for (uint64_t call_site = 100; call_site < 1000; call_site++)
      access_bytes(sanitizer, other, 0x1000, 64, READ, call_site);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 900);
  for (size_t i = 0; i < 900; i++) {
    openreg_sanitizer_finding finding;
    assert_true(openreg_sanitizer_finding_get(sanitizer, i, &finding));
    assert_int_equal(finding.second.call_site, 100 + i);
    assert_int_equal(finding.count, 2);
  }
}

static void findings_without_room_are_counted(void **state) {
  (void)state;
  begin_with((openreg_sanitizer_options){.max_findings = 3});
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  for (uint64_t call_site = 100; call_site < 110; call_site++)
    access_bytes(sanitizer, other, 0x1000, 64, READ, call_site);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 3);
  assert_int_equal(counts(sanitizer).lost_findings, 7);
  openreg_sanitizer_destroy(sanitizer);
}

static void disabled_kinds_are_not_reported(void **state) {
  (void)state;
  unsigned all = OPENREG_SANITIZER_ALL_KINDS;
  openreg_sanitizer_set_kinds(sanitizer, all & ~OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_RACE));
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 0);
  access_bytes(sanitizer, host, 0x1000, 64, READ, 12);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_HOST_ACCESS);
  openreg_sanitizer_region region = bytes_at(0x1000, 64);
  assert_true(openreg_sanitizer_would_conflict(sanitizer, other, &region, READ));
}

static void an_unordered_event_is_a_race_if_only_races_are_enabled(void **state) {
  (void)state;
  openreg_sanitizer_token *token = make_token(sanitizer);
  openreg_sanitizer_set_kinds(sanitizer, OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_RACE));
  openreg_sanitizer_wait(sanitizer, other, token, NULL, 21);
  access_bytes(sanitizer, one, 0x1000, 64, WRITE, 10);
  ASSERT_OK(openreg_sanitizer_record(sanitizer, token, one, NULL, 22));
  access_bytes(sanitizer, other, 0x1000, 64, READ, 11);
  assert_int_equal(only_kind(), OPENREG_SANITIZER_RACE);
}

static void findings_of_the_caller_are_reported_once(void **state) {
  (void)state;
  openreg_sanitizer_finding finding = {.kind = OPENREG_SANITIZER_OUT_OF_BOUNDS,
                                       .second = {.call_site = 9, .begin = 1, .end = 2}};
  openreg_sanitizer_report(sanitizer, &finding);
  openreg_sanitizer_report(sanitizer, &finding);
  finding = only_finding(sanitizer);
  assert_int_equal(finding.count, 2);
  assert_int_equal(finding.second.end, 2);
  assert_string_equal(openreg_sanitizer_kind_name(finding.kind), "out of bounds");
}

static void kinds_have_names(void **state) {
  (void)state;
  static const char *const names[] = {
      "race",         "use after free", "host access", "uninitialised read", "unordered event",
      "never waited", "out of bounds",  "leak",        "unknown kind"};
  for (unsigned kind = 0; kind <= OPENREG_SANITIZER_KIND_COUNT; kind++)
    assert_string_equal(openreg_sanitizer_kind_name((openreg_sanitizer_kind)kind), names[kind]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_race_names_both_accesses_and_the_bytes),
      TEST(two_reads_do_not_race),
      TEST(accesses_of_one_launch_do_not_race),
      TEST(a_conflict_with_deferred_work_is_never_waited),
      TEST(a_partial_write_conflicts_with_accesses_to_its_whole_region),
      TEST(a_partial_read_counts_as_a_read_of_the_whole_region),
      TEST(a_conflict_of_host_and_stream_is_a_host_access),
      TEST(host_threads_never_conflict),
      TEST(a_host_does_not_hide_a_stream_from_another_host),
      TEST(a_wait_before_the_record_is_named),
      TEST(a_wait_for_a_token_that_was_recorded_again_is_named),
      TEST(a_token_whose_record_would_not_help_is_not_named),
      TEST(a_token_of_another_waiting_thread_is_not_named),
      TEST(a_harmless_early_wait_is_not_reported),
      cmocka_unit_test(a_finding_is_reported_once_and_counted),
      TEST(findings_differ_by_their_call_sites),
      cmocka_unit_test(findings_without_room_are_counted),
      TEST(disabled_kinds_are_not_reported),
      TEST(an_unordered_event_is_a_race_if_only_races_are_enabled),
      TEST(findings_of_the_caller_are_reported_once),
      TEST(kinds_have_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
