/* player.h: what most tests tell a sanitizer, in a line each. */
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

static inline openreg_sanitizer_actor *make_actor(openreg_sanitizer *sanitizer,
                                                  openreg_sanitizer_actor_kind kind, uint64_t tag) {
  openreg_sanitizer_actor *actor;
  ASSERT_OK(openreg_sanitizer_actor_create(sanitizer, kind, 0, tag, NULL, &actor));
  return actor;
}

static inline openreg_sanitizer_actor *make_stream(openreg_sanitizer *sanitizer, uint64_t tag) {
  return make_actor(sanitizer, OPENREG_SANITIZER_STREAM, tag);
}

static inline openreg_sanitizer_token *make_token(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_token *token;
  ASSERT_OK(openreg_sanitizer_token_create(sanitizer, 77, &token));
  return token;
}

static inline void allocate(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes,
                            uint64_t site) {
  openreg_sanitizer_block block = {.address = address, .bytes = bytes, .site = site, .tag = 5};
  ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
}

static inline openreg_sanitizer_region bytes_at(uint64_t address, uint64_t bytes) {
  return (openreg_sanitizer_region){address, bytes, 0, NULL, NULL};
}

static inline void access_region(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                                 openreg_sanitizer_region region, unsigned mode, uint64_t site) {
  openreg_sanitizer_access access = {.region = region, .mode = mode, .tag = site + 1000};
  openreg_sanitizer_launch launch = {.actor = actor, .site = site, .accesses = &access, .count = 1};
  ASSERT_OK(openreg_sanitizer_run_launch(sanitizer, &launch));
}

static inline void access_bytes(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                                uint64_t address, uint64_t bytes, unsigned mode, uint64_t site) {
  access_region(sanitizer, actor, bytes_at(address, bytes), mode, site);
}

/* The only finding that there is. */
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
