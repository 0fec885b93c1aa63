/* sanitizer.c: creates sanitizers and holds the lock; public functions for threads and tokens. */
#include "sanitizer/state.h"

static const openreg_sanitizer_options defaults = {.kinds = OPENREG_SANITIZER_ALL_KINDS,
                                                   .max_records = 128,
                                                   .max_intervals = 16384,
                                                   .max_freed = 65536,
                                                   .max_findings = 10000};

static void set_default(uint32_t *option, uint32_t value) {
  if (*option == 0)
    *option = value;
}

static openreg_status fail(const char *what) {
  return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for the sanitizer's %s",
                      what);
}

openreg_status openreg_sanitizer_create(const openreg_sanitizer_options *options,
                                        openreg_sanitizer **sanitizer) {
  openreg_sanitizer *made = calloc(1, sizeof *made);
  if (made == NULL)
    return fail("state");
  if (pthread_mutex_init(&made->lock, NULL) != 0) {
    free(made);
    return fail("lock");
  }
  made->options = options != NULL ? *options : defaults;
  set_default(&made->options.kinds, defaults.kinds);
  set_default(&made->options.max_records, defaults.max_records);
  set_default(&made->options.max_intervals, defaults.max_intervals);
  set_default(&made->options.max_freed, defaults.max_freed);
  set_default(&made->options.max_findings, defaults.max_findings);
  if (made->options.max_records < RECORDS_INSIDE)
    made->options.max_records = RECORDS_INSIDE;
  made->heap = (struct heap){.bytes = sizeof *made, .max = made->options.max_bytes};
  made->clocks.heap = &made->heap;
  *sanitizer = made;
  return OPENREG_OK;
}

void openreg_sanitizer_destroy(openreg_sanitizer *sanitizer) {
  if (sanitizer == NULL)
    return;
  openreg_shadow_clear(sanitizer);
  openreg_findings_clear(sanitizer);
  openreg_clock_clear(&sanitizer->clocks);
  pthread_mutex_destroy(&sanitizer->lock);
  free(sanitizer);
}

void openreg_sanitizer_enter(openreg_sanitizer *sanitizer) {
  pthread_mutex_lock(&sanitizer->lock);
}

void openreg_sanitizer_leave(openreg_sanitizer *sanitizer) {
  struct pending *pending = sanitizer->findings.pending;
  sanitizer->findings.pending = NULL;
  pthread_mutex_unlock(&sanitizer->lock);
  while (pending != NULL) {
    struct pending *next = pending->next;
    sanitizer->options.callback(&pending->finding, sanitizer->options.context);
    free(pending);
    pending = next;
  }
}

void openreg_sanitizer_set_kinds(openreg_sanitizer *sanitizer, unsigned kinds) {
  openreg_sanitizer_enter(sanitizer);
  sanitizer->options.kinds = kinds;
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_counts(openreg_sanitizer *sanitizer, openreg_sanitizer_counters *counters) {
  openreg_sanitizer_enter(sanitizer);
  *counters = sanitizer->counters;
  counters->threads = sanitizer->clocks.live;
  counters->slots = sanitizer->clocks.count;
  counters->tokens = sanitizer->clocks.token_count;
  counters->blocks = sanitizer->shadow_cache.live;
  counters->freed_blocks = sanitizer->shadow_cache.freed;
  counters->shadow_bytes = sanitizer->heap.bytes;
  openreg_sanitizer_leave(sanitizer);
}

uint64_t openreg_sanitizer_shadow_bytes(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_enter(sanitizer);
  uint64_t bytes = sanitizer->heap.bytes;
  openreg_sanitizer_leave(sanitizer);
  return bytes;
}

/* ---- threads --------------------------------------------------------------------------------- */

openreg_status openreg_sanitizer_thread_create(openreg_sanitizer *sanitizer,
                                               openreg_sanitizer_thread_kind kind, int group,
                                               uint64_t tag, openreg_sanitizer_thread *parent,
                                               openreg_sanitizer_thread **thread) {
  openreg_sanitizer_enter(sanitizer);
  openreg_shadow_sweep(sanitizer);
  openreg_sanitizer_thread *made =
      openreg_clock_begin_thread(&sanitizer->clocks, kind, group, tag, parent);
  openreg_sanitizer_leave(sanitizer);
  if (made == NULL)
    return fail("thread");
  *thread = made;
  return OPENREG_OK;
}

void openreg_sanitizer_thread_end(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread) {
  openreg_sanitizer_enter(sanitizer);
  openreg_clock_end_thread(&sanitizer->clocks, thread);
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_order(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *from,
                             openreg_sanitizer_thread *to) {
  openreg_sanitizer_enter(sanitizer);
  openreg_clock_acquire_thread(&sanitizer->clocks, from, to);
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_synchronize(openreg_sanitizer *sanitizer, int group,
                                   openreg_sanitizer_thread *thread) {
  openreg_sanitizer_enter(sanitizer);
  openreg_clock_acquire_group(&sanitizer->clocks, group, thread);
  openreg_sanitizer_leave(sanitizer);
}

bool openreg_sanitizer_is_ordered(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *from,
                                  openreg_sanitizer_thread *to) {
  openreg_sanitizer_enter(sanitizer);
  bool is_ordered = openreg_clock_includes(to, from->slot, from->clock.epochs[from->slot]);
  openreg_sanitizer_leave(sanitizer);
  return is_ordered;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

openreg_status openreg_sanitizer_token_create(openreg_sanitizer *sanitizer, uint64_t tag,
                                              openreg_sanitizer_token **token) {
  openreg_sanitizer_enter(sanitizer);
  openreg_sanitizer_token *made = openreg_token_create(&sanitizer->clocks, tag);
  openreg_sanitizer_leave(sanitizer);
  if (made == NULL)
    return fail("token");
  *token = made;
  return OPENREG_OK;
}

void openreg_sanitizer_token_retain(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token) {
  openreg_sanitizer_enter(sanitizer);
  token->references++;
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_token_release(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token) {
  openreg_sanitizer_enter(sanitizer);
  openreg_token_release(&sanitizer->clocks, token);
  openreg_sanitizer_leave(sanitizer);
}

openreg_status openreg_sanitizer_record(openreg_sanitizer *sanitizer,
                                        openreg_sanitizer_token *token,
                                        openreg_sanitizer_thread *thread,
                                        openreg_sanitizer_thread *submitter, uint64_t call_site) {
  openreg_sanitizer_enter(sanitizer);
  if (submitter != NULL)
    openreg_clock_acquire_thread(&sanitizer->clocks, submitter, thread);
  bool is_recorded = openreg_token_record(&sanitizer->clocks, token, thread, call_site);
  openreg_sanitizer_leave(sanitizer);
  return is_recorded ? OPENREG_OK : fail("token");
}

void openreg_sanitizer_wait(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread,
                            openreg_sanitizer_token *token, openreg_sanitizer_thread *submitter,
                            uint64_t call_site) {
  openreg_sanitizer_enter(sanitizer);
  if (submitter != NULL)
    openreg_clock_acquire_thread(&sanitizer->clocks, submitter, thread);
  openreg_token_wait(&sanitizer->clocks, thread, token, call_site);
  openreg_sanitizer_leave(sanitizer);
}
