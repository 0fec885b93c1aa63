/* findings.c: what was found, each once for its kind and both sites.
 *
 * A race and an unordered event are one kind here until it is known which it is, so that tokens are
 * looked through once for a pair of sites and not each time.
 */
#include "sanitizer/state.h"

#include <string.h>

static const char *const names[] = {
#define X(name, text) text,
    OPENREG_SANITIZER_KIND_LIST(X)
#undef X
};

const char *openreg_sanitizer_kind_name(openreg_sanitizer_kind kind) {
  return (unsigned)kind < OPENREG_SANITIZER_KIND_COUNT ? names[kind] : "unknown kind";
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { FIRST_CAPACITY = 64 };

static openreg_sanitizer_kind class_of(openreg_sanitizer_kind kind) {
  return kind == OPENREG_SANITIZER_UNORDERED_EVENT ? OPENREG_SANITIZER_RACE : kind;
}

static uint64_t hash(openreg_sanitizer_kind kind, uint64_t first, uint64_t second) {
  uint64_t word = (uint64_t)class_of(kind);
  word = (word ^ first) * UINT64_C(0x9e3779b97f4a7c15);
  word = ((word ^ (word >> 29)) ^ second) * UINT64_C(0xbf58476d1ce4e5b9);
  return word ^ (word >> 32);
}

/* The place of a finding in the table, or that for it: which must not be full. */
static uint32_t *place_of(const struct findings *findings, openreg_sanitizer_kind kind,
                          uint64_t first, uint64_t second) {
  uint32_t mask = 2 * findings->capacity - 1;
  for (uint64_t i = hash(kind, first, second);; i++) {
    uint32_t *place = &findings->table[i & mask];
    if (*place == 0)
      return place;
    const openreg_sanitizer_finding *found = &findings->found[*place - 1];
    if (class_of(found->kind) == class_of(kind) && found->first.site == first &&
        found->second.site == second)
      return place;
  }
}

static void enter_all(struct findings *findings) {
  for (uint32_t i = 0; i < findings->count; i++) {
    const openreg_sanitizer_finding *found = &findings->found[i];
    *place_of(findings, found->kind, found->first.site, found->second.site) = i + 1;
  }
}

static bool grow(openreg_sanitizer *sanitizer) {
  struct findings *findings = &sanitizer->findings;
  uint32_t old = findings->capacity, capacity = old == 0 ? FIRST_CAPACITY : 2 * old;
  size_t table_bytes = 2 * sizeof *findings->table;
  uint32_t *table = openreg_heap_take(&sanitizer->heap, capacity * table_bytes);
  openreg_sanitizer_finding *found =
      table == NULL ? NULL
                    : openreg_heap_resize(&sanitizer->heap, findings->found, old * sizeof *found,
                                          capacity * sizeof *found);
  if (found == NULL) {
    openreg_heap_give(&sanitizer->heap, table, capacity * table_bytes);
    return false;
  }
  memset(table, 0, capacity * table_bytes);
  openreg_heap_give(&sanitizer->heap, findings->table, old * table_bytes);
  findings->table = table;
  findings->found = found;
  findings->capacity = capacity;
  enter_all(findings);
  return true;
}

/* Counts a finding that was found before. */
static bool is_known(openreg_sanitizer *sanitizer, openreg_sanitizer_kind kind, uint64_t first,
                     uint64_t second) {
  struct findings *findings = &sanitizer->findings;
  uint32_t index = findings->count == 0 ? 0 : *place_of(findings, kind, first, second);
  if (index != 0)
    findings->found[index - 1].count++;
  return index != 0;
}

static void add(openreg_sanitizer *sanitizer, const openreg_sanitizer_finding *finding) {
  struct findings *findings = &sanitizer->findings;
  if (findings->count >= sanitizer->options.most_findings ||
      (findings->count == findings->capacity && !grow(sanitizer))) {
    sanitizer->counters.lost_findings++;
    return;
  }
  *place_of(findings, finding->kind, finding->first.site, finding->second.site) =
      findings->count + 1;
  findings->found[findings->count++] = *finding;
  findings->found[findings->count - 1].count = 1;
  struct news *news = sanitizer->options.callback == NULL ? NULL : malloc(sizeof *news);
  if (news == NULL)
    return;
  *news = (struct news){NULL, findings->found[findings->count - 1]};
  if (findings->news == NULL)
    findings->last_news = &findings->news;
  *findings->last_news = news;
  findings->last_news = &news->next;
}

void openreg_findings_clear(openreg_sanitizer *sanitizer) {
  struct findings *findings = &sanitizer->findings;
  openreg_heap_give(&sanitizer->heap, findings->found,
                    findings->capacity * sizeof *findings->found);
  openreg_heap_give(&sanitizer->heap, findings->table,
                    2 * findings->capacity * sizeof *findings->table);
  findings->found = NULL;
  findings->table = NULL;
  findings->count = findings->capacity = 0;
}

/* ---- what is found --------------------------------------------------------------------------- */

static openreg_sanitizer_side side_of(const struct doing *doing, const struct extent *extent) {
  return (openreg_sanitizer_side){.site = doing->site,
                                  .tag = doing->tag,
                                  .actor = doing->actor->tag,
                                  .actor_kind = doing->actor->kind,
                                  .mode = doing->mode,
                                  .begin = doing->box->low,
                                  .end = doing->box->high,
                                  .block = extent->block};
}

static openreg_sanitizer_kind kind_of(const struct record *first, const struct doing *second) {
  if (first->origin != NULL)
    return OPENREG_SANITIZER_USE_AFTER_FREE;
  if ((first->mode & OPENREG_SANITIZER_DEFERRED) != 0)
    return OPENREG_SANITIZER_NEVER_WAITED;
  if (first->actor_kind == OPENREG_SANITIZER_HOST || second->actor->kind == OPENREG_SANITIZER_HOST)
    return OPENREG_SANITIZER_HOST_ACCESS;
  return OPENREG_SANITIZER_RACE;
}

/* A race is an unordered event where a token was meant to order the two. */
static void look_for_token(const openreg_sanitizer *sanitizer, const struct record *first,
                           const struct doing *second, openreg_sanitizer_finding *finding) {
  struct recording recorded;
  struct waiting waited;
  const openreg_sanitizer_token *token = openreg_token_find(
      &sanitizer->order, first->slot, first->time, second->actor, &recorded, &waited);
  if (token == NULL || !openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNORDERED_EVENT))
    return;
  finding->kind = OPENREG_SANITIZER_UNORDERED_EVENT;
  finding->token = token->tag;
  finding->recorded_site = recorded.site;
  finding->waited_site = waited.site;
  finding->waited_early = waited.number < recorded.number;
}

void openreg_findings_conflict(openreg_sanitizer *sanitizer, const struct extent *extent,
                               const struct record *first, const struct doing *second) {
  openreg_sanitizer_kind kind = kind_of(first, second);
  bool may_be_event = kind == OPENREG_SANITIZER_RACE &&
                      openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNORDERED_EVENT);
  if (!openreg_sanitizer_reports(sanitizer, kind) && !may_be_event)
    return;
  if (is_known(sanitizer, kind, first->site, second->site))
    return;
  openreg_sanitizer_finding finding = {
      .kind = kind,
      .first = {.site = first->site,
                .tag = first->tag,
                .actor = first->actor,
                .actor_kind = (openreg_sanitizer_actor_kind)first->actor_kind,
                .mode = first->mode,
                .begin = first->low,
                .end = first->high,
                .block = first->origin != NULL ? first->origin->block : extent->block},
      .second = side_of(second, extent)};
  if (may_be_event)
    look_for_token(sanitizer, first, second, &finding);
  if (!openreg_sanitizer_reports(sanitizer, finding.kind))
    return;
  struct box box = openreg_record_box(first);
  finding.bytes = openreg_boxes_common(&box, second->box);
  add(sanitizer, &finding);
}

static void found_in_block(openreg_sanitizer *sanitizer, openreg_sanitizer_kind kind,
                           const struct extent *extent, uint64_t site, const struct doing *second,
                           openreg_sanitizer_run bytes) {
  if (!openreg_sanitizer_reports(sanitizer, kind) || is_known(sanitizer, kind, site, second->site))
    return;
  openreg_sanitizer_finding finding = {.kind = kind,
                                       .first = {.site = site, .block = extent->block},
                                       .second = side_of(second, extent),
                                       .bytes = bytes};
  add(sanitizer, &finding);
}

void openreg_findings_unwritten(openreg_sanitizer *sanitizer, const struct extent *extent,
                                const struct doing *reading, openreg_sanitizer_run bytes) {
  found_in_block(sanitizer, OPENREG_SANITIZER_UNINITIALISED_READ, extent, extent->block.site,
                 reading, bytes);
}

void openreg_findings_freed(openreg_sanitizer *sanitizer, const struct extent *extent,
                            const struct doing *doing) {
  openreg_sanitizer_run bytes = {doing->box->low, doing->box->high};
  openreg_box_find(doing->box, extent->begin, extent->end, &bytes);
  found_in_block(sanitizer, OPENREG_SANITIZER_USE_AFTER_FREE, extent, extent->block.freed_site,
                 doing, bytes);
}

/* ---- asked from outside ---------------------------------------------------------------------- */

size_t openreg_sanitizer_finding_count(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_enter(sanitizer);
  size_t count = sanitizer->findings.count;
  openreg_sanitizer_leave(sanitizer);
  return count;
}

bool openreg_sanitizer_finding_get(openreg_sanitizer *sanitizer, size_t index,
                                   openreg_sanitizer_finding *finding) {
  openreg_sanitizer_enter(sanitizer);
  bool is_there = index < sanitizer->findings.count;
  if (is_there)
    *finding = sanitizer->findings.found[index];
  openreg_sanitizer_leave(sanitizer);
  return is_there;
}

void openreg_sanitizer_findings_clear(openreg_sanitizer *sanitizer) {
  openreg_sanitizer_enter(sanitizer);
  openreg_findings_clear(sanitizer);
  openreg_sanitizer_leave(sanitizer);
}

void openreg_sanitizer_report(openreg_sanitizer *sanitizer,
                              const openreg_sanitizer_finding *finding) {
  openreg_sanitizer_enter(sanitizer);
  if (openreg_sanitizer_reports(sanitizer, finding->kind) &&
      !is_known(sanitizer, finding->kind, finding->first.site, finding->second.site))
    add(sanitizer, finding);
  openreg_sanitizer_leave(sanitizer);
}
