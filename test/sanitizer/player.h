/* player.h: short functions to report operations to a sanitizer. */
#ifndef OPENREG_TEST_SANITIZER_PLAYER_H
#define OPENREG_TEST_SANITIZER_PLAYER_H

#include "sanitizer/sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define ASSERT_OK(call) assert_int_equal(call, OPENREG_OK)

enum { READ = OPENREG_SANITIZER_READ, WRITE = OPENREG_SANITIZER_WRITE, BOTH = READ | WRITE };

static inline openreg_sanitizer *make_sanitizer(openreg_sanitizer_options options) {
  openreg_sanitizer *sanitizer;
  ASSERT_OK(openreg_sanitizer_create(&options, &sanitizer));
  return sanitizer;
}

static inline openreg_sanitizer_thread *
make_actor(openreg_sanitizer *sanitizer, openreg_sanitizer_thread_kind kind, uint64_t tag) {
  openreg_sanitizer_thread *thread;
  ASSERT_OK(openreg_sanitizer_thread_create(sanitizer, kind, 0, tag, NULL, &thread));
  return thread;
}

static inline openreg_sanitizer_thread *make_stream(openreg_sanitizer *sanitizer, uint64_t tag) {
  return make_actor(sanitizer, OPENREG_SANITIZER_STREAM, tag);
}

static inline openreg_sanitizer_token *make_token(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_token *token;
  ASSERT_OK(openreg_sanitizer_token_create(sanitizer, 77, &token));
  return token;
}

static inline void allocate(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes,
                            uint64_t call_site) {
  openreg_sanitizer_block block = {
      .address = address, .bytes = bytes, .call_site = call_site, .tag = 5};
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
}

static inline openreg_sanitizer_region bytes_at(uint64_t address, uint64_t bytes) {
  return (openreg_sanitizer_region){address, bytes, 0, NULL, NULL};
}

static inline void access_region(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread,
                                 openreg_sanitizer_region region, unsigned mode,
                                 uint64_t call_site) {
  openreg_sanitizer_access access = {.region = region, .mode = mode, .tag = call_site + 1000};
  openreg_sanitizer_launch launch = {
      .thread = thread, .call_site = call_site, .accesses = &access, .count = 1};
  ASSERT_OK(openreg_sanitizer_check_launch(sanitizer, &launch));
}

static inline void access_bytes(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread,
                                uint64_t address, uint64_t bytes, unsigned mode,
                                uint64_t call_site) {
  access_region(sanitizer, thread, bytes_at(address, bytes), mode, call_site);
}

/* Returns the only finding. */
static inline openreg_sanitizer_finding only_finding(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_finding finding;
  assert_int_equal(openreg_sanitizer_finding_count(sanitizer), 1);
  assert_true(openreg_sanitizer_finding_get(sanitizer, 0, &finding));
  return finding;
}

static inline openreg_sanitizer_counters counts(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_counters counters;
  openreg_sanitizer_counts(sanitizer, &counters);
  return counters;
}

#endif
