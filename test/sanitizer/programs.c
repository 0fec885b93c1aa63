#include "programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { GROUPS = 2, MAX_FINDINGS = 100000 };

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct set {
  uint64_t words[MAX_STEPS / 64];
} set;

static void add_all(set *to, const set *from) {
  for (int i = 0; i < MAX_STEPS / 64; i++)
    to->words[i] |= from->words[i];
}

static void add(set *to, int step) {
  to->words[step / 64] |= UINT64_C(1) << (step % 64);
}

static bool has(const set *in, int step) {
  return (in->words[step / 64] >> (step % 64)) & 1;
}

struct access {
  int step, generation;
  unsigned mode;
  bool writes, is_host;
  unsigned char bytes[MEMORY_BYTES];
};

typedef struct model {
  set before[MAX_STEPS]; /* the operations that happen before a step */
  set done[MAX_ACTORS];  /* the operations that happen before the thread's next one */
  set ended[GROUPS], recorded[MAX_TOKENS];
  bool is_live[MAX_ACTORS], is_host[MAX_ACTORS];
  int group[MAX_ACTORS];
  int64_t begin[MAX_BLOCKS], bytes[MAX_BLOCKS];
  int generation[MAX_BLOCKS]; /* 0: there is no block */
  int generations;
  struct access accesses[MAX_STEPS * MAX_ACCESSES];
  int count;
} model;

static int group_of(int thread) {
  return thread % (GROUPS + 1) - 1;
}

/* Returns whether a step is valid. A program from which a step was removed may contain invalid
 * ones. */
static bool is_possible(const model *model, const step *step) {
  switch (step->kind) {
  case CREATE:
    return !model->is_live[step->thread] && (step->other < 0 || model->is_live[step->other]);
  case LAUNCH:
    return model->is_live[step->thread] && model->is_live[step->other] &&
           model->generation[step->block] != 0;
  case ORDER:
  case RECORD:
  case WAIT:
    return model->is_live[step->thread] && model->is_live[step->other];
  case ALLOCATE:
    return true;
  case FREE:
    return model->generation[step->block] != 0;
  default:
    return model->is_live[step->thread];
  }
}

/* The operations before all live threads; before the step, all operations if there are no live
 * threads. */
static void settle(model *model, set *done, int number) {
  bool is_first = true;
  for (int i = 0; i < MAX_ACTORS; i++) {
    for (int k = 0; model->is_live[i] && k < MAX_STEPS / 64; k++)
      done->words[k] =
          is_first ? model->done[i].words[k] : done->words[k] & model->done[i].words[k];
    is_first &= !model->is_live[i];
  }
  for (int i = 0; is_first && i < number; i++)
    add(done, i);
}

static void model_create(model *model, const step *step, int number) {
  set *done = &model->done[step->thread];
  *done = (set){{0}};
  if (step->other >= 0)
    *done = model->done[step->other];
  else
    settle(model, done, number);
  model->is_live[step->thread] = true;
  model->is_host[step->thread] = step->is_host;
  model->group[step->thread] = group_of(step->thread);
}

static void model_synchronize(model *model, const step *step) {
  add_all(&model->done[step->thread], &model->ended[step->other]);
  for (int i = 0; i < MAX_ACTORS; i++)
    if (model->is_live[i] && model->group[i] == step->other)
      add_all(&model->done[step->thread], &model->done[i]);
}

static void model_allocate(model *model, const step *step) {
  for (int i = 0; i < MAX_BLOCKS; i++)
    if (model->begin[i] < step->begin + step->bytes &&
        step->begin < model->begin[i] + model->bytes[i])
      model->generation[i] = 0;
  model->begin[step->block] = step->begin;
  model->bytes[step->block] = step->bytes;
  model->generation[step->block] = ++model->generations;
}

enum { PARTIAL = OPENREG_SANITIZER_PARTIAL };

static bool is_partly_written(const struct access *access) {
  return access->writes && (access->mode & PARTIAL) != 0;
}

static bool has_all(const struct access *access, const struct access *other) {
  bool any = false;
  for (int i = 0; i < MEMORY_BYTES; i++) {
    if (other->bytes[i] && !access->bytes[i])
      return false;
    any |= other->bytes[i];
  }
  return any;
}

static bool conflict(const model *model, const struct access *a, const struct access *b) {
  if (a->step == b->step || !(a->writes || b->writes) || (a->is_host && b->is_host) ||
      has(&model->before[b->step], a->step) || (a->mode & b->mode & PARTIAL) != 0)
    return false;
  if (is_partly_written(a))
    return has_all(b, a);
  if (is_partly_written(b))
    return has_all(a, b);
  for (int i = 0; i < MEMORY_BYTES; i++)
    if (a->bytes[i] & b->bytes[i])
      return true;
  return false;
}

static void model_launch(model *model, const step *step, int number) {
  model->before[number] = model->done[step->thread];
  for (int i = 0; i < step->count; i++) {
    struct access *access = &model->accesses[model->count++];
    *access = (struct access){.step = number,
                              .generation = model->generation[step->block],
                              .mode = step->modes[i],
                              .writes = (step->modes[i] & OPENREG_SANITIZER_WRITE) != 0,
                              .is_host = model->is_host[step->thread]};
    openreg_sanitizer_region region = step->regions[i].region;
    region.sizes = step->regions[i].sizes;
    region.strides = step->regions[i].strides;
    mark_region(&region, access->bytes + model->begin[step->block], 1);
  }
  add(&model->done[step->thread], number);
}

static void model_step(model *model, const step *step, int number) {
  if (step->kind == LAUNCH || step->kind == RECORD || step->kind == WAIT)
    add_all(&model->done[step->thread], &model->done[step->other]);
  switch (step->kind) {
  case CREATE:
    model_create(model, step, number);
    break;
  case END:
    model->is_live[step->thread] = false;
    if (model->group[step->thread] >= 0)
      add_all(&model->ended[model->group[step->thread]], &model->done[step->thread]);
    break;
  case LAUNCH:
    model_launch(model, step, number);
    break;
  case ORDER:
    add_all(&model->done[step->thread], &model->done[step->other]);
    break;
  case RECORD:
    model->recorded[step->token] = model->done[step->thread];
    break;
  case WAIT:
    add_all(&model->done[step->thread], &model->recorded[step->token]);
    break;
  case SYNCHRONIZE:
    model_synchronize(model, step);
    break;
  case ALLOCATE:
    model_allocate(model, step);
    break;
  default:
    model->generation[step->block] = 0;
  }
}

/* ---- playing --------------------------------------------------------------------------------- */

struct players {
  openreg_sanitizer *sanitizer;
  openreg_sanitizer_thread *threads[MAX_ACTORS];
  openreg_sanitizer_token *tokens[MAX_TOKENS];
};

#define ASSERT_OK(call) assert_int_equal(call, OPENREG_OK)

static void launch(struct players *players, const step *step, uint64_t base, uint64_t call_site) {
  openreg_sanitizer_access accesses[MAX_ACCESSES];
  for (int i = 0; i < step->count; i++) {
    openreg_sanitizer_region region = step->regions[i].region;
    region.address += base;
    region.sizes = step->regions[i].sizes;
    region.strides = step->regions[i].strides;
    accesses[i] = (openreg_sanitizer_access){.region = region, .mode = step->modes[i]};
  }
  openreg_sanitizer_launch what = {.thread = players->threads[step->thread],
                                   .submitter = players->threads[step->other],
                                   .call_site = call_site,
                                   .accesses = accesses,
                                   .count = (size_t)step->count};
  ASSERT_OK(openreg_sanitizer_check_launch(players->sanitizer, &what));
}

static void tell(struct players *players, const step *step, const model *model, int number) {
  openreg_sanitizer *sanitizer = players->sanitizer;
  openreg_sanitizer_thread **thread = &players->threads[step->thread];
  openreg_sanitizer_thread *other = step->other < 0 ? NULL : players->threads[step->other];
  openreg_sanitizer_token *token = players->tokens[step->token];
  openreg_sanitizer_block block = {.address = MEMORY + (uint64_t)step->begin,
                                   .bytes = (uint64_t)step->bytes};
  switch (step->kind) {
  case CREATE:
    ASSERT_OK(openreg_sanitizer_thread_create(
        sanitizer, step->is_host ? OPENREG_SANITIZER_HOST : OPENREG_SANITIZER_STREAM,
        group_of(step->thread), (uint64_t)step->thread, other, thread));
    break;
  case END:
    openreg_sanitizer_thread_end(sanitizer, *thread);
    break;
  case LAUNCH:
    launch(players, step, MEMORY + (uint64_t)model->begin[step->block], (uint64_t)number);
    break;
  case ORDER:
    openreg_sanitizer_order(sanitizer, other, *thread);
    break;
  case RECORD:
    ASSERT_OK(openreg_sanitizer_record(sanitizer, token, *thread, other, 0));
    break;
  case WAIT:
    openreg_sanitizer_wait(sanitizer, *thread, token, other, 0);
    break;
  case SYNCHRONIZE:
    openreg_sanitizer_synchronize(sanitizer, step->other, *thread);
    break;
  case ALLOCATE:
    ASSERT_OK(openreg_sanitizer_alloc(sanitizer, &block, true));
    break;
  default:
    openreg_sanitizer_free(sanitizer, MEMORY + (uint64_t)model->begin[step->block], 0);
  }
}

/* What a step does in one mode, which the sanitizer may remember as one access. */
static struct access all_alike(const model *model, const struct access *access) {
  struct access all = *access;
  for (int i = 0; i < model->count; i++) {
    const struct access *other = &model->accesses[i];
    for (int k = 0; other->step == all.step && other->mode == all.mode && k < MEMORY_BYTES; k++)
      all.bytes[k] |= other->bytes[k];
  }
  return all;
}

static bool may_be_found(const model *model, const struct access *a, const struct access *b) {
  struct access all = *a;
  if ((a->mode & PARTIAL) == 0 && is_partly_written(b))
    all = all_alike(model, a);
  return conflict(model, &all, b);
}

/* Returns whether two steps have accesses that conflict, to blocks as the finding says. */
static bool is_wrong(const model *model, const openreg_sanitizer_finding *finding) {
  for (int b = 0; b < model->count; b++) {
    const struct access *second = &model->accesses[b];
    for (int a = 0; (uint64_t)second->step == finding->second.call_site && a < b; a++) {
      const struct access *first = &model->accesses[a];
      bool is_freed = first->generation != second->generation;
      bool is_host = !is_freed && (first->is_host || second->is_host);
      openreg_sanitizer_kind kind = is_freed  ? OPENREG_SANITIZER_USE_AFTER_FREE
                                    : is_host ? OPENREG_SANITIZER_HOST_ACCESS
                                              : OPENREG_SANITIZER_RACE;
      bool is_kind = kind == finding->kind || (kind == OPENREG_SANITIZER_RACE &&
                                               finding->kind == OPENREG_SANITIZER_UNORDERED_EVENT);
      if (is_kind && (uint64_t)first->step == finding->first.call_site &&
          (uint64_t)first->generation == finding->first.block.generation &&
          (uint64_t)second->generation == finding->second.block.generation &&
          may_be_found(model, first, second) && first->bytes[finding->bytes.begin - MEMORY] &&
          second->bytes[finding->bytes.end - MEMORY - 1])
        return true;
    }
  }
  return false;
}

/* For a partial access, an earlier access that conflicts may have been replaced in part. */
static bool must_be_found(const model *model, const struct access *a, const struct access *b) {
  return !is_partly_written(a) && !is_partly_written(b) && conflict(model, a, b);
}

static int compare(const model *model, openreg_sanitizer *sanitizer) {
  bool is_found[MAX_STEPS] = {false};
  openreg_sanitizer_finding finding;
  openreg_sanitizer_counters counters;
  int wrong = 0;
  for (size_t i = 0; openreg_sanitizer_finding_get(sanitizer, i, &finding); i++) {
    assert_true(is_wrong(model, &finding));
    is_found[finding.second.call_site] = true;
  }
  for (int b = 0; b < model->count; b++) {
    bool conflicts = false;
    for (int a = 0; a < b && !conflicts; a++)
      conflicts = must_be_found(model, &model->accesses[a], &model->accesses[b]);
    wrong += conflicts;
    if (conflicts)
      assert_true(is_found[model->accesses[b].step]);
  }
  openreg_sanitizer_counts(sanitizer, &counters);
  assert_int_equal(counters.unknown + counters.forgotten_records + counters.forgotten_blocks, 0);
  return wrong;
}

int play_program(const program *played, int without) {
  static model model;
  struct players players;
  /* Few records until the sanitizer makes room, and no limit on their number. */
  openreg_sanitizer_options options = {.max_records = 100000, .max_findings = MAX_FINDINGS};
  memset(&model, 0, sizeof model);
  ASSERT_OK(openreg_sanitizer_create(&options, &players.sanitizer));
  for (int i = 0; i < MAX_TOKENS; i++)
    ASSERT_OK(openreg_sanitizer_token_create(players.sanitizer, 0, &players.tokens[i]));
  for (int i = 0; i < played->count; i++) {
    const step *step = &played->steps[i];
    if (i == without || !is_possible(&model, step))
      continue;
    tell(&players, step, &model, i);
    model_step(&model, step, i);
  }
  int wrong = compare(&model, players.sanitizer);
  openreg_sanitizer_destroy(players.sanitizer);
  return wrong;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int pick_live(uint64_t *random, const model *model) {
  int thread;
  do
    thread = (int)random_below(random, MAX_ACTORS);
  while (!model->is_live[thread]);
  return thread;
}

static void make_launch(uint64_t *random, const model *model, step *step) {
  int64_t bytes = model->bytes[step->block];
  step->kind = LAUNCH;
  step->count = 1 + (int)random_below(random, MAX_ACCESSES);
  for (int i = 0; i < step->count; i++) {
    struct random_region *made = &step->regions[i];
    random_region(random, bytes, made);
    if (random_once_in(random, 3)) /* the whole block */
      made->region = (openreg_sanitizer_region){0, (uint64_t)bytes, 0, NULL, NULL};
    step->modes[i] = 1 + (unsigned)random_below(random, 3);
    if (random_once_in(random, 6))
      step->modes[i] |= PARTIAL;
  }
}

static step_kind pick_kind(uint64_t *random) {
  static const step_kind kinds[] = {LAUNCH, LAUNCH, LAUNCH, LAUNCH, RECORD,   WAIT, ORDER,
                                    RECORD, WAIT,   CREATE, END,    ALLOCATE, FREE, SYNCHRONIZE};
  return kinds[random_below(random, sizeof kinds / sizeof kinds[0])];
}

static void make_step(uint64_t *random, const model *model, step *step) {
  int live = 0;
  for (int i = 0; i < MAX_ACTORS; i++)
    live += model->is_live[i];
  *step = (struct step){.kind = live == 0 ? CREATE : pick_kind(random),
                        .token = (int)random_below(random, MAX_TOKENS),
                        .block = (int)random_below(random, MAX_BLOCKS),
                        .is_host = random_once_in(random, 4)};
  if (live > 0) {
    step->thread = pick_live(random, model);
    step->other = pick_live(random, model);
  }
  if (step->kind == LAUNCH && model->generation[step->block] == 0)
    step->kind = ALLOCATE;
  switch (step->kind) {
  case CREATE:
    step->thread = (int)random_below(random, MAX_ACTORS);
    if (live == 0 || random_once_in(random, 5))
      step->other = -1;
    break;
  case LAUNCH:
    make_launch(random, model, step);
    break;
  case SYNCHRONIZE:
    step->other = (int)random_below(random, GROUPS);
    break;
  case ALLOCATE:
    step->begin = (int64_t)random_below(random, 4) * MEMORY_BYTES / 4;
    step->bytes = (int64_t)(1 + random_below(random, 2)) * MEMORY_BYTES / 4;
    if (random_once_in(random, 3))
      step->bytes -= (int64_t)random_below(random, (uint64_t)step->bytes / 2);
    if (step->begin + step->bytes > MEMORY_BYTES)
      step->bytes = MEMORY_BYTES - step->begin;
    break;
  default:
    break;
  }
}

void make_any_program(uint64_t *random, program *made) {
  static model model;
  memset(&model, 0, sizeof model);
  int wanted = 20 + (int)random_below(random, MAX_STEPS - 20);
  for (made->count = 0; made->count < wanted;) {
    step *step = &made->steps[made->count];
    make_step(random, &model, step);
    if (is_possible(&model, step))
      model_step(&model, step, made->count++);
  }
}

/* Returns the thread of an earlier access that conflicts with a launch; -1: none. `is_lost` if it
 * has ended. */
static int find_conflict(const model *model, const program *made, const step *step, bool *is_lost) {
  static struct model trial;
  trial = *model;
  model_step(&trial, step, made->count);
  for (int b = model->count; b < trial.count; b++)
    for (int a = 0; a < model->count; a++) {
      if (!conflict(&trial, &trial.accesses[a], &trial.accesses[b]))
        continue;
      int number = trial.accesses[a].step, thread = made->steps[number].thread;
      *is_lost = !model->is_live[thread] || !has(&model->done[thread], number);
      return thread;
    }
  return -1;
}

void make_right_program(uint64_t *random, program *made) {
  static model model;
  memset(&model, 0, sizeof model);
  for (made->count = 0; made->count < MAX_STEPS - 2;) {
    step *step = &made->steps[made->count], wanted;
    make_step(random, &model, step);
    if (!is_possible(&model, step))
      continue;
    bool is_lost = false;
    int thread = step->kind == LAUNCH ? find_conflict(&model, made, step, &is_lost) : -1;
    if (is_lost)
      continue;
    if (thread >= 0) { /* a record and a wait first; the launch too if that was all */
      wanted = *step;
      int token = (int)random_below(random, MAX_TOKENS);
      *step = (struct step){.kind = RECORD, .thread = thread, .other = thread, .token = token};
      model_step(&model, step, made->count++);
      step = &made->steps[made->count];
      *step = (struct step){
          .kind = WAIT, .thread = wanted.thread, .other = wanted.thread, .token = token};
      model_step(&model, step, made->count++);
      step = &made->steps[made->count];
      *step = wanted;
      if (made->count == MAX_STEPS || find_conflict(&model, made, step, &is_lost) >= 0)
        continue;
    }
    model_step(&model, step, made->count++);
  }
}
