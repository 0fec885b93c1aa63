/* sanitizer.c: a sanitizer as a whole, and its lock; actors and tokens as they are called from
 * outside. */
#include "sanitizer/state.h"

static const openreg_sanitizer_options defaults = {.kinds = OPENREG_SANITIZER_ALL_KINDS,
                                                   .most_records = 128,
                                                   .most_intervals = 16384,
                                                   .most_freed = 65536,
                                                   .most_findings = 10000};

static void choose(uint32_t *option, uint32_t by_default) {
  if (*option == 0)
    *option = by_default;
}

static openreg_status fail(const char *what) {
  return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for the sanitizer's %s",
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
  choose(&made->options.kinds, defaults.kinds);
  choose(&made->options.most_records, defaults.most_records);
  choose(&made->options.most_intervals, defaults.most_intervals);
  choose(&made->options.most_freed, defaults.most_freed);
  choose(&made->options.most_findings, defaults.most_findings);
  if (made->options.most_records < RECORDS_INSIDE)
    made->options.most_records = RECORDS_INSIDE;
  made->heap = (struct heap){.bytes = sizeof *made, .most = made->options.most_bytes};
  made->order.heap = &made->heap;
  *sanitizer = made;
  return OPENREG_OK;
}

void openreg_sanitizer_destroy(openreg_sanitizer *sanitizer) {
  if (sanitizer == NULL)
    return;
  openreg_shadow_clear(sanitizer);
  openreg_findings_clear(sanitizer);
  openreg_order_clear(&sanitizer->order);
  pthread_mutex_destroy(&sanitizer->lock);
  free(sanitizer);
}

void openreg_sanitizer_enter(openreg_sanitizer *sanitizer) {
  pthread_mutex_lock(&sanitizer->lock);
}

void openreg_sanitizer_leave(openreg_sanitizer *sanitizer) {
  struct news *news = sanitizer->findings.news;
  sanitizer->findings.news = NULL;
  pthread_mutex_unlock(&sanitizer->lock);
  while (news != NULL) {
    struct news *next = news->next;
    sanitizer->options.callback(&news->finding, sanitizer->options.context);
    free(news);
    news = next;
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
  counters->actors = sanitizer->order.live;
  counters->slots = sanitizer->order.count;
  counters->tokens = sanitizer->order.token_count;
  counters->blocks = sanitizer->extents.live;
  counters->freed_blocks = sanitizer->extents.freed;
  counters->shadow_bytes = sanitizer->heap.bytes;
  openreg_sanitizer_leave(sanitizer);
}

uint64_t openreg_sanitizer_shadow_bytes(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_enter(sanitizer);
  uint64_t bytes = sanitizer->heap.bytes;
  openreg_sanitizer_leave(sanitizer);
  return bytes;
}

/* ---- actors ---------------------------------------------------------------------------------- */

openreg_status openreg_sanitizer_actor_create(openreg_sanitizer *sanitizer,
                                              openreg_sanitizer_actor_kind kind, int group,
                                              uint64_t tag, openreg_sanitizer_actor *parent,
                                              openreg_sanitizer_actor **actor) {
  openreg_sanitizer_enter(sanitizer);
  openreg_shadow_sweep(sanitizer);
  openreg_sanitizer_actor *made = openreg_order_begin(&sanitizer->order, kind, group, tag, parent);
  openreg_sanitizer_leave(sanitizer);
  if (made == NULL)
    return fail("actor");
  *actor = made;
  return OPENREG_OK;
}

void openreg_sanitizer_actor_end(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor) {
  openreg_sanitizer_enter(sanitizer);
  openreg_order_end(&sanitizer->order, actor);
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_order(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *from,
                             openreg_sanitizer_actor *to) {
  openreg_sanitizer_enter(sanitizer);
  openreg_order_join(&sanitizer->order, from, to);
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_synchronize(openreg_sanitizer *sanitizer, int group,
                                   openreg_sanitizer_actor *actor) {
  openreg_sanitizer_enter(sanitizer);
  openreg_order_synchronize(&sanitizer->order, group, actor);
  openreg_sanitizer_leave(sanitizer);
}

bool openreg_sanitizer_is_ordered(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *from,
                                  openreg_sanitizer_actor *to) {
  openreg_sanitizer_enter(sanitizer);
  bool is_ordered = openreg_order_has(to, from->slot, from->clock.times[from->slot]);
  openreg_sanitizer_leave(sanitizer);
  return is_ordered;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

openreg_status openreg_sanitizer_token_create(openreg_sanitizer *sanitizer, uint64_t tag,
                                              openreg_sanitizer_token **token) {
  openreg_sanitizer_enter(sanitizer);
  openreg_sanitizer_token *made = openreg_token_create(&sanitizer->order, tag);
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
  openreg_token_release(&sanitizer->order, token);
  openreg_sanitizer_leave(sanitizer);
}

openreg_status openreg_sanitizer_record(openreg_sanitizer *sanitizer,
                                        openreg_sanitizer_token *token,
                                        openreg_sanitizer_actor *actor,
                                        openreg_sanitizer_actor *submitter, uint64_t site) {
  openreg_sanitizer_enter(sanitizer);
  if (submitter != NULL)
    openreg_order_join(&sanitizer->order, submitter, actor);
  bool is_recorded = openreg_token_record(&sanitizer->order, token, actor, site);
  openreg_sanitizer_leave(sanitizer);
  return is_recorded ? OPENREG_OK : fail("token");
}

void openreg_sanitizer_wait(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                            openreg_sanitizer_token *token, openreg_sanitizer_actor *submitter,
                            uint64_t site) {
  openreg_sanitizer_enter(sanitizer);
  if (submitter != NULL)
    openreg_order_join(&sanitizer->order, submitter, actor);
  openreg_token_wait(&sanitizer->order, actor, token, site);
  openreg_sanitizer_leave(sanitizer);
}
