/* The queue and its timeline as small steps, run in every order that there is.
 *
 * The steps are those of queue.c, timeline.h and submit.c, one for each access to memory that
 * another thread may see; all of these are sequentially consistent there, so that an execution is
 * an order of steps. The actors: two producers that submit two tasks each, the worker, a thread
 * that does inline work if it finds the stream idle, and one that synchronizes. The ring has two
 * slots, so that producers wait for room. A depth-first search visits every state that can be
 * reached and checks in each step that tasks run alone, once and in order, and in each state from
 * which nothing follows that nobody sleeps but the idle worker.
 *
 * A check that finds nothing proves little by itself. So each rule that the argument in queue.h and
 * timeline.h rests on is broken in turn, and the search must find what comes of it.
 */
#include "child.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, PRODUCERS = 2, TASKS_EACH = 2 };
enum { WORKER = PRODUCERS, HOLDER, WAITER, ACTORS };

/* A rule that is broken. */
enum mistake {
  NONE,
  WORKER_SLEEPS_WITHOUT_LOOKING_AGAIN,
  PRODUCER_LOOKS_FOR_SLEEPER_BEFORE_PUBLISHING,
  PRODUCER_WAITS_FOR_NO_ROOM,
  INLINE_WITHOUT_TICKET,
  INLINE_WAKES_NOBODY,
  FINISHED_BEFORE_DONE,
  FINISHER_LOOKS_FOR_WISH_BEFORE_FINISHING,
  WAITER_READS_BELL_AFTER_LOOKING,
  BELL_DOES_NOT_CHANGE,
};

/* What an actor does next, in the order of the code. */
enum step {
  TAKE_TICKET, /* producer */
  CHECK_ROOM,
  WRITE_TASK,
  LOOK_FOR_SLEEPER_EARLY, /* a mistake */
  PUBLISH,
  LOOK_FOR_SLEEPER, /* producer and holder */
  CLEAR_SLEEPER,
  WAKE_SLEEPER,
  AFTER_WAKING,
  READ_BELL, /* waiter, and producer without room */
  WISH,
  LOOK,
  READ_BELL_LATE, /* a mistake */
  SLEEP_ON_BELL,
  SPIN_FINISHED, /* worker */
  SPIN_PUBLISHED,
  SAY_ASLEEP,
  READ_FINISHED,
  READ_PUBLISHED,
  SLEEP_ON_QUEUE,
  SAY_AWAKE,
  BEGIN, /* worker and holder */
  END,
  LOOK_FOR_WISH_EARLY, /* a mistake */
  FINISH,
  LOOK_FOR_WISH,
  TAKE_WISH,
  CHANGE_BELL,
  RING,
  AFTER_FINISHING,
  READ_IDLE, /* holder */
  TRY_TAKE,
  SLEEPING_ON_BELL, /* from here on an actor does nothing by itself */
  SLEEPING_ON_QUEUE,
  DONE,
};

struct actor {
  uint8_t step, ticket, wake_up, point, seen, count;
};

/* Bytes only, so that states can be compared as memory. */
struct state {
  uint8_t submitted, finished, wake_at, wake_up, asleep;
  uint8_t published[SLOTS], tasks[SLOTS]; /* a task: 1 + producer * TASKS_EACH + its number */
  uint8_t running, last[PRODUCERS];
  struct actor actors[ACTORS];
};

static enum mistake made;
static const char *found; /* the first thing wrong */

static void report(const char *what) {
  if (found == NULL)
    found = what;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void produce(struct state *state, int producer) {
  struct actor *self = &state->actors[producer];
  switch (self->step) {
  case TAKE_TICKET:
    self->ticket = state->submitted++;
    self->step = made == PRODUCER_WAITS_FOR_NO_ROOM ? WRITE_TASK : CHECK_ROOM;
    break;
  case CHECK_ROOM:
    self->point = (uint8_t)(self->ticket - SLOTS + 1);
    self->step = self->ticket < state->finished + SLOTS ? WRITE_TASK : READ_BELL;
    break;
  case WRITE_TASK:
    state->tasks[self->ticket % SLOTS] = (uint8_t)(1 + producer * TASKS_EACH + self->count++);
    self->step =
        made == PRODUCER_LOOKS_FOR_SLEEPER_BEFORE_PUBLISHING ? LOOK_FOR_SLEEPER_EARLY : PUBLISH;
    break;
  case LOOK_FOR_SLEEPER_EARLY:
    self->seen = state->asleep;
    self->step = PUBLISH;
    break;
  case PUBLISH:
    state->published[self->ticket % SLOTS] = self->ticket + 1;
    self->step = LOOK_FOR_SLEEPER;
    break;
  case AFTER_WAKING:
    self->step = self->count < TASKS_EACH ? TAKE_TICKET : DONE;
    break;
  }
}

static void wake(struct state *state, struct actor *self) {
  bool early = made == PRODUCER_LOOKS_FOR_SLEEPER_BEFORE_PUBLISHING;
  switch (self->step) {
  case LOOK_FOR_SLEEPER:
    self->step = (early ? self->seen : state->asleep) ? CLEAR_SLEEPER : AFTER_WAKING;
    break;
  case CLEAR_SLEEPER:
    self->step = state->asleep ? WAKE_SLEEPER : AFTER_WAKING;
    state->asleep = 0;
    break;
  case WAKE_SLEEPER:
    if (state->actors[WORKER].step == SLEEPING_ON_QUEUE)
      state->actors[WORKER].step = SAY_ASLEEP;
    self->step = AFTER_WAKING;
    break;
  }
}

static void wait(struct state *state, struct actor *self, int after) {
  bool late = made == WAITER_READS_BELL_AFTER_LOOKING;
  switch (self->step) {
  case READ_BELL:
    self->wake_up = state->wake_up;
    self->step = WISH;
    break;
  case WISH:
    if (state->wake_at == 0 || state->wake_at > self->point)
      state->wake_at = self->point;
    self->step = LOOK;
    break;
  case LOOK:
    self->step = state->finished >= self->point ? after : late ? READ_BELL_LATE : SLEEP_ON_BELL;
    break;
  case READ_BELL_LATE:
    self->wake_up = state->wake_up;
    self->step = SLEEP_ON_BELL;
    break;
  case SLEEP_ON_BELL:
    self->step = state->wake_up == self->wake_up ? SLEEPING_ON_BELL : READ_BELL;
    break;
  }
}

static bool is_published(const struct state *state, int ticket) {
  return state->published[ticket % SLOTS] == ticket + 1;
}

static void work(struct state *state, struct actor *self) {
  switch (self->step) {
  case SPIN_FINISHED:
    self->ticket = state->finished;
    self->step = SPIN_PUBLISHED;
    break;
  case SPIN_PUBLISHED:
    self->step = is_published(state, self->ticket) ? BEGIN : SAY_ASLEEP;
    break;
  case SAY_ASLEEP:
    state->asleep = 1;
    self->step = made == WORKER_SLEEPS_WITHOUT_LOOKING_AGAIN ? SLEEP_ON_QUEUE : READ_FINISHED;
    break;
  case READ_FINISHED:
    self->ticket = state->finished;
    self->step = READ_PUBLISHED;
    break;
  case READ_PUBLISHED:
    self->step = is_published(state, self->ticket) ? SAY_AWAKE : SLEEP_ON_QUEUE;
    break;
  case SLEEP_ON_QUEUE:
    self->step = state->asleep ? SLEEPING_ON_QUEUE : SAY_ASLEEP;
    break;
  case SAY_AWAKE:
    state->asleep = 0;
    self->step = BEGIN;
    break;
  case AFTER_FINISHING:
    self->step = made == FINISHED_BEFORE_DONE ? END : SPIN_FINISHED;
    break;
  }
}

static void begin(struct state *state, int task) {
  if (state->running)
    report("two run at once");
  state->running = 1;
  if (task == 0) /* inline work */
    return;
  int producer = (task - 1) / TASKS_EACH, number = (task - 1) % TASKS_EACH;
  if (state->last[producer] != number)
    report("a task was lost, repeated or overtaken");
  state->last[producer] = (uint8_t)(number + 1);
}

static void run(struct state *state, int actor) {
  struct actor *self = &state->actors[actor];
  bool early = made == FINISHED_BEFORE_DONE && actor == WORKER;
  switch (self->step) {
  case BEGIN:
    begin(state, actor == WORKER ? state->tasks[self->ticket % SLOTS] : 0);
    self->step = early ? FINISH : END;
    break;
  case END:
    state->running = 0;
    if (made == INLINE_WITHOUT_TICKET && actor == HOLDER)
      self->step = DONE;
    else if (early)
      self->step = SPIN_FINISHED;
    else
      self->step = made == FINISHER_LOOKS_FOR_WISH_BEFORE_FINISHING ? LOOK_FOR_WISH_EARLY : FINISH;
    break;
  }
}

static void finish(struct state *state, struct actor *self) {
  bool early = made == FINISHER_LOOKS_FOR_WISH_BEFORE_FINISHING;
  switch (self->step) {
  case LOOK_FOR_WISH_EARLY:
    self->seen = state->wake_at;
    self->step = FINISH;
    break;
  case FINISH:
    state->finished = self->ticket + 1;
    self->step = LOOK_FOR_WISH;
    break;
  case LOOK_FOR_WISH: {
    int wish = early ? self->seen : state->wake_at;
    self->step = wish != 0 && wish <= self->ticket + 1 ? TAKE_WISH : AFTER_FINISHING;
    break;
  }
  case TAKE_WISH:
    state->wake_at = 0;
    self->step = CHANGE_BELL;
    break;
  case CHANGE_BELL:
    state->wake_up += made != BELL_DOES_NOT_CHANGE;
    self->step = RING;
    break;
  case RING:
    for (int i = 0; i < ACTORS; i++)
      if (state->actors[i].step == SLEEPING_ON_BELL)
        state->actors[i].step = READ_BELL;
    self->step = AFTER_FINISHING;
    break;
  }
}

static void hold(struct state *state, struct actor *self) {
  switch (self->step) {
  case READ_IDLE:
    self->ticket = state->finished;
    self->step = TRY_TAKE;
    break;
  case TRY_TAKE:
    if (state->submitted != self->ticket) {
      self->step = DONE;
      break;
    }
    state->submitted += made != INLINE_WITHOUT_TICKET;
    self->step = BEGIN;
    break;
  case AFTER_FINISHING:
    self->step = state->submitted == self->ticket + 1 || made == INLINE_WAKES_NOBODY
                     ? DONE
                     : LOOK_FOR_SLEEPER;
    break;
  case AFTER_WAKING:
    self->step = DONE;
    break;
  }
}

/* One step of one actor; false when it has none to take. */
static bool take_step(struct state *state, int actor) {
  struct actor *self = &state->actors[actor];
  int step = self->step;
  if (step >= SLEEPING_ON_BELL)
    return false;
  if (step >= LOOK_FOR_SLEEPER && step < AFTER_WAKING)
    wake(state, self);
  else if (step >= READ_BELL && step <= SLEEP_ON_BELL)
    wait(state, self, actor == WAITER ? DONE : WRITE_TASK);
  else if (step == BEGIN || step == END)
    run(state, actor);
  else if (step >= LOOK_FOR_WISH_EARLY && step < AFTER_FINISHING)
    finish(state, self);
  else if (actor == WORKER)
    work(state, self);
  else if (actor == HOLDER)
    hold(state, self);
  else
    produce(state, actor);
  return true;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* States seen, by a 64-bit hash: of some millions, two share one with a chance below 10^-5. */
static struct {
  uint64_t *hashes; /* 0: free */
  size_t capacity, count;
} visited;

static uint64_t hash_of(const struct state *state) {
  const unsigned char *bytes = (const unsigned char *)state;
  uint64_t hash = 0xcbf29ce484222325; /* FNV-1a, then the finalizer of MurmurHash3 */
  for (size_t i = 0; i < sizeof *state; i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return hash != 0 ? hash : 1;
}

static bool insert(uint64_t hash) {
  size_t place = hash & (visited.capacity - 1);
  while (visited.hashes[place] != 0 && visited.hashes[place] != hash)
    place = (place + 1) & (visited.capacity - 1);
  if (visited.hashes[place] == hash)
    return false;
  visited.hashes[place] = hash;
  visited.count++;
  return true;
}

static void grow(void) {
  uint64_t *old = visited.hashes;
  size_t old_capacity = visited.capacity;
  visited.capacity = old_capacity != 0 ? 2 * old_capacity : 1 << 16;
  visited.count = 0;
  visited.hashes = calloc(visited.capacity, sizeof *visited.hashes);
  assert_non_null(visited.hashes);
  for (size_t i = 0; i < old_capacity; i++)
    if (old[i] != 0)
      insert(old[i]);
  free(old);
}

/* Clears what an actor writes again before it reads it, for that does not tell states apart; of the
 * wake_up only counts how far it is from what was read of it. */
static void forget_unread(struct state *state, int actor) {
  struct actor *self = &state->actors[actor];
  int step = self->step;
  bool waits = step > READ_BELL && step <= SLEEP_ON_BELL;
  self->wake_up = waits ? (uint8_t)(state->wake_up - self->wake_up) : 0;
  if (actor != WAITER && !waits && step != READ_BELL && step != SLEEPING_ON_BELL)
    self->point = 0;
  bool has_ticket = step != SPIN_FINISHED && !(step >= SAY_ASLEEP && step <= READ_FINISHED) &&
                    step != SLEEP_ON_QUEUE && step < SLEEPING_ON_QUEUE &&
                    !(step > PUBLISH && step <= AFTER_WAKING);
  if (!has_ticket)
    self->ticket = 0;
}

static bool is_new(const struct state *state) {
  struct state read = *state;
  for (int i = 0; i < ACTORS; i++)
    forget_unread(&read, i);
  read.wake_up = 0;
  if (2 * visited.count >= visited.capacity)
    grow();
  return insert(hash_of(&read));
}

static void check_end(const struct state *state) {
  bool well = state->finished == state->submitted;
  for (int i = 0; i < ACTORS; i++)
    well = well && state->actors[i].step == (i == WORKER ? SLEEPING_ON_QUEUE : DONE);
  for (int i = 0; i < PRODUCERS; i++)
    well = well && state->last[i] == state->actors[i].count;
  if (!well)
    report("stuck");
}

/* As deep as the longest execution: some hundred steps. */
static void search(const struct state *state) {
  bool ended = true;
  if (found != NULL || !is_new(state))
    return;
  for (int i = 0; i < ACTORS; i++) {
    struct state next = *state;
    if (take_step(&next, i)) {
      ended = false;
      search(&next);
    }
  }
  if (ended)
    check_end(state);
}

/* Searches from the start with the first `producers` producers, and the others as given. */
static const char *search_with(enum mistake mistake, int producers, bool with_holder,
                               bool with_waiter) {
  struct state start = {0};
  for (int i = producers; i < PRODUCERS; i++)
    start.actors[i].step = DONE;
  start.actors[WORKER].step = SPIN_FINISHED;
  start.actors[HOLDER].step = with_holder ? READ_IDLE : DONE;
  start.actors[WAITER].step = with_waiter ? READ_BELL : DONE;
  start.actors[WAITER].point = (uint8_t)(producers * TASKS_EACH);
  made = mistake;
  found = NULL;
  search(&start);
  free(visited.hashes);
  memset(&visited, 0, sizeof visited);
  return found;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* All five actors together have 40 million states, half a minute's search, which ended well too; it
 * is run in parts. */
static void every_order_of_steps_ends_well(void **state) {
  (void)state;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* 3 million states */
  assert_null(search_with(NONE, 2, true, false));
#endif
  assert_null(search_with(NONE, 2, false, true));
  assert_null(search_with(NONE, 1, true, true));
}

static void expect_found(enum mistake mistake, const char *what) {
  const char *is_found = search_with(mistake, 2, true, true);
  assert_non_null(is_found);
  assert_string_equal(is_found, what);
}

static void every_rule_is_needed(void **state) {
  (void)state;
  expect_found(WORKER_SLEEPS_WITHOUT_LOOKING_AGAIN, "stuck");
  expect_found(PRODUCER_LOOKS_FOR_SLEEPER_BEFORE_PUBLISHING, "stuck");
  expect_found(PRODUCER_WAITS_FOR_NO_ROOM, "stuck"); /* a task is gone */
  expect_found(INLINE_WITHOUT_TICKET, "two run at once");
  expect_found(INLINE_WAKES_NOBODY, "stuck");
  expect_found(FINISHED_BEFORE_DONE, "two run at once");
  expect_found(FINISHER_LOOKS_FOR_WISH_BEFORE_FINISHING, "stuck");
  expect_found(WAITER_READS_BELL_AFTER_LOOKING, "stuck");
  expect_found(BELL_DOES_NOT_CHANGE, "stuck");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_order_of_steps_ends_well),
      cmocka_unit_test(every_rule_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
