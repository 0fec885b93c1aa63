/* findings.c: the findings, each stored once for its kind and both call sites.
 *
 * The table treats a race and an unordered event as one kind. So the search through the tokens,
 * which tells them apart, runs once for a pair of call sites, not for each occurrence.
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

/* Returns the table slot of a finding, or the free slot for it. The table must not be full. */
static uint32_t *table_slot(const struct findings *findings, openreg_sanitizer_kind kind,
                            uint64_t first, uint64_t second) {
  uint32_t mask = 2 * findings->capacity - 1;
  for (uint64_t i = hash(kind, first, second);; i++) {
    uint32_t *place = &findings->table[i & mask];
    if (*place == 0)
      return place;
    const openreg_sanitizer_finding *found = &findings->found[*place - 1];
    if (class_of(found->kind) == class_of(kind) && found->first.call_site == first &&
        found->second.call_site == second)
      return place;
  }
}

static void fill_table(struct findings *findings) {
  for (uint32_t i = 0; i < findings->count; i++) {
    const openreg_sanitizer_finding *found = &findings->found[i];
    *table_slot(findings, found->kind, found->first.call_site, found->second.call_site) = i + 1;
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
  fill_table(findings);
  return true;
}

/* Counts another occurrence of a known finding. */
static bool is_known(openreg_sanitizer *sanitizer, openreg_sanitizer_kind kind, uint64_t first,
                     uint64_t second) {
  struct findings *findings = &sanitizer->findings;
  uint32_t index = findings->count == 0 ? 0 : *table_slot(findings, kind, first, second);
  if (index != 0)
    findings->found[index - 1].count++;
  return index != 0;
}

static void add(openreg_sanitizer *sanitizer, const openreg_sanitizer_finding *finding) {
  struct findings *findings = &sanitizer->findings;
  if (findings->count >= sanitizer->options.max_findings ||
      (findings->count == findings->capacity && !grow(sanitizer))) {
    sanitizer->counters.lost_findings++;
    return;
  }
  *table_slot(findings, finding->kind, finding->first.call_site, finding->second.call_site) =
      findings->count + 1;
  findings->found[findings->count++] = *finding;
  findings->found[findings->count - 1].count = 1;
  struct pending *pending = sanitizer->options.callback == NULL ? NULL : malloc(sizeof *pending);
  if (pending == NULL)
    return;
  *pending = (struct pending){NULL, findings->found[findings->count - 1]};
  if (findings->pending == NULL)
    findings->last_pending = &findings->pending;
  *findings->last_pending = pending;
  findings->last_pending = &pending->next;
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

/* ---- making findings ------------------------------------------------------------------------- */

static openreg_sanitizer_side side_of(const struct current_access *current,
                                      const struct shadow_block *shadow) {
  return (openreg_sanitizer_side){.call_site = current->call_site,
                                  .tag = current->tag,
                                  .thread = current->thread->tag,
                                  .thread_kind = current->thread->kind,
                                  .mode = current->mode,
                                  .begin = current->strided->low,
                                  .end = current->strided->high,
                                  .block = shadow->block};
}

static openreg_sanitizer_kind kind_of(const struct record *first,
                                      const struct current_access *second) {
  if (first->origin != NULL)
    return OPENREG_SANITIZER_USE_AFTER_FREE;
  if ((first->mode & OPENREG_SANITIZER_DEFERRED) != 0)
    return OPENREG_SANITIZER_NEVER_WAITED;
  if (first->thread_kind == OPENREG_SANITIZER_HOST ||
      second->thread->kind == OPENREG_SANITIZER_HOST)
    return OPENREG_SANITIZER_HOST_ACCESS;
  return OPENREG_SANITIZER_RACE;
}

/* Turns a race into an unordered event if a token was meant to order both accesses. */
static void find_token(const openreg_sanitizer *sanitizer, const struct record *first,
                       const struct current_access *second, openreg_sanitizer_finding *finding) {
  struct recording recorded;
  struct waiting waited;
  const openreg_sanitizer_token *token = openreg_token_find(
      &sanitizer->clocks, first->slot, first->epoch, second->thread, &recorded, &waited);
  if (token == NULL || !openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNORDERED_EVENT))
    return;
  finding->kind = OPENREG_SANITIZER_UNORDERED_EVENT;
  finding->token = token->tag;
  finding->recorded_call_site = recorded.call_site;
  finding->waited_call_site = waited.call_site;
  finding->waited_early = waited.number < recorded.number;
}

void openreg_findings_conflict(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                               const struct record *first, const struct current_access *second) {
  openreg_sanitizer_kind kind = kind_of(first, second);
  bool may_be_event = kind == OPENREG_SANITIZER_RACE &&
                      openreg_sanitizer_reports(sanitizer, OPENREG_SANITIZER_UNORDERED_EVENT);
  if (!openreg_sanitizer_reports(sanitizer, kind) && !may_be_event)
    return;
  if (is_known(sanitizer, kind, first->call_site, second->call_site))
    return;
  openreg_sanitizer_finding finding = {
      .kind = kind,
      .first = {.call_site = first->call_site,
                .tag = first->tag,
                .thread = first->thread,
                .thread_kind = (openreg_sanitizer_thread_kind)first->thread_kind,
                .mode = first->mode,
                .begin = first->low,
                .end = first->high,
                .block = first->origin != NULL ? first->origin->block : shadow->block},
      .second = side_of(second, shadow)};
  if (may_be_event)
    find_token(sanitizer, first, second, &finding);
  if (!openreg_sanitizer_reports(sanitizer, finding.kind))
    return;
  struct strided_region strided = openreg_record_region(first);
  finding.bytes = openreg_strided_common(&strided, second->strided);
  add(sanitizer, &finding);
}

static void report_in_block(openreg_sanitizer *sanitizer, openreg_sanitizer_kind kind,
                            const struct shadow_block *shadow, uint64_t call_site,
                            const struct current_access *second, openreg_sanitizer_run bytes) {
  if (!openreg_sanitizer_reports(sanitizer, kind) ||
      is_known(sanitizer, kind, call_site, second->call_site))
    return;
  openreg_sanitizer_finding finding = {.kind = kind,
                                       .first = {.call_site = call_site, .block = shadow->block},
                                       .second = side_of(second, shadow),
                                       .bytes = bytes};
  add(sanitizer, &finding);
}

void openreg_findings_uninitialized(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                                    const struct current_access *reading,
                                    openreg_sanitizer_run bytes) {
  report_in_block(sanitizer, OPENREG_SANITIZER_UNINITIALISED_READ, shadow, shadow->block.call_site,
                  reading, bytes);
}

void openreg_findings_freed(openreg_sanitizer *sanitizer, const struct shadow_block *shadow,
                            const struct current_access *current) {
  openreg_sanitizer_run bytes = {current->strided->low, current->strided->high};
  openreg_strided_find(current->strided, shadow->begin, shadow->end, &bytes);
  report_in_block(sanitizer, OPENREG_SANITIZER_USE_AFTER_FREE, shadow,
                  shadow->block.freed_call_site, current, bytes);
}

/* ---- public functions ------------------------------------------------------------------------ */

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
      !is_known(sanitizer, finding->kind, finding->first.call_site, finding->second.call_site))
    add(sanitizer, finding);
  openreg_sanitizer_leave(sanitizer);
}
