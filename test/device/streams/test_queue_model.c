/* A model of the queue and its timeline as small steps, executed in every possible order.
 *
 * The steps are those of queue.c, timeline.h and submit.c, one for each access to memory that
 * another thread may see. All these accesses are sequentially consistent, so an execution is an
 * order of steps. The threads are: two producers that submit two tasks each, the worker, a thread
 * that does inline work if the stream is idle, and a thread that synchronizes. The ring has two
 * slots, so producers have to wait for space. A depth-first search visits every reachable state. In
 * each step it checks that tasks run exclusively, once and in order. In each final state it checks
 * that no thread sleeps except the idle worker.
 *
 * A check that finds nothing proves little by itself. So each rule that the arguments in queue.h
 * and timeline.h depend on is broken in turn, and the search must find the consequence.
 */
#include "child.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, PRODUCERS = 2, TASKS_EACH = 2 };
enum { WORKER = PRODUCERS, INLINE_THREAD, WAITER, THREADS };

/* A broken rule. */
enum mistake {
  NONE,
  WORKER_SLEEPS_WITHOUT_CHECKING_AGAIN,
  PRODUCER_CHECKS_ASLEEP_BEFORE_PUBLISHING,
  PRODUCER_IGNORES_FULL_RING,
  INLINE_WITHOUT_SEQUENCE,
  INLINE_WAKES_NO_WAITER,
  FINISHED_BEFORE_DONE,
  FINISHER_CHECKS_WAKE_AT_BEFORE_FINISHING,
  WAITER_READS_WAKES_AFTER_CHECKING,
  WAKES_DOES_NOT_CHANGE,
};

/* The next step of a thread, in the order of the code. */
enum step {
  TAKE_SEQUENCE, /* producer */
  CHECK_ROOM,
  WRITE_TASK,
  CHECK_ASLEEP_EARLY, /* broken rule */
  PUBLISH,
  CHECK_ASLEEP, /* producer and inline thread */
  CLEAR_ASLEEP,
  WAKE_WORKER,
  AFTER_WAKING,
  READ_WAKES, /* waiter, and producer if the ring is full */
  LOWER_WAKE_AT,
  CHECK_FINISHED,
  READ_WAKES_LATE, /* broken rule */
  SLEEP_ON_WAKES,
  SPIN_FINISHED, /* worker */
  SPIN_PUBLISHED,
  SET_ASLEEP,
  READ_FINISHED,
  READ_PUBLISHED,
  SLEEP_ON_QUEUE,
  CLEAR_OWN_ASLEEP,
  BEGIN, /* worker and inline thread */
  END,
  CHECK_WAKE_AT_EARLY, /* broken rule */
  FINISH,
  CHECK_WAKE_AT,
  CLEAR_WAKE_AT,
  INCREMENT_WAKES,
  WAKE_WAITERS,
  AFTER_FINISHING,
  READ_IDLE, /* inline thread */
  TRY_TAKE,
  SLEEPING_ON_WAKES, /* from here on the thread cannot continue by itself */
  SLEEPING_ON_QUEUE,
  DONE,
};

struct thread {
  uint8_t step, sequence, wakes, point, seen, count;
};

/* Bytes only, so that states can be compared as memory. */
struct state {
  uint8_t submitted, finished, wake_at, wakes, asleep;
  uint8_t published[SLOTS], tasks[SLOTS]; /* a task: 1 + producer * TASKS_EACH + its number */
  uint8_t running, last[PRODUCERS];
  struct thread threads[THREADS];
};

static enum mistake mistake_made;
static const char *found; /* the first error found */

static void report(const char *what) {
  if (found == NULL)
    found = what;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void produce(struct state *state, int producer) {
  struct thread *self = &state->threads[producer];
  switch (self->step) {
  case TAKE_SEQUENCE:
    self->sequence = state->submitted++;
    self->step = mistake_made == PRODUCER_IGNORES_FULL_RING ? WRITE_TASK : CHECK_ROOM;
    break;
  case CHECK_ROOM:
    self->point = (uint8_t)(self->sequence - SLOTS + 1);
    self->step = self->sequence < state->finished + SLOTS ? WRITE_TASK : READ_WAKES;
    break;
  case WRITE_TASK:
    state->tasks[self->sequence % SLOTS] = (uint8_t)(1 + producer * TASKS_EACH + self->count++);
    self->step =
        mistake_made == PRODUCER_CHECKS_ASLEEP_BEFORE_PUBLISHING ? CHECK_ASLEEP_EARLY : PUBLISH;
    break;
  case CHECK_ASLEEP_EARLY:
    self->seen = state->asleep;
    self->step = PUBLISH;
    break;
  case PUBLISH:
    state->published[self->sequence % SLOTS] = self->sequence + 1;
    self->step = CHECK_ASLEEP;
    break;
  case AFTER_WAKING:
    self->step = self->count < TASKS_EACH ? TAKE_SEQUENCE : DONE;
    break;
  }
}

static void wake(struct state *state, struct thread *self) {
  bool early = mistake_made == PRODUCER_CHECKS_ASLEEP_BEFORE_PUBLISHING;
  switch (self->step) {
  case CHECK_ASLEEP:
    self->step = (early ? self->seen : state->asleep) ? CLEAR_ASLEEP : AFTER_WAKING;
    break;
  case CLEAR_ASLEEP:
    self->step = state->asleep ? WAKE_WORKER : AFTER_WAKING;
    state->asleep = 0;
    break;
  case WAKE_WORKER:
    if (state->threads[WORKER].step == SLEEPING_ON_QUEUE)
      state->threads[WORKER].step = SET_ASLEEP;
    self->step = AFTER_WAKING;
    break;
  }
}

static void wait(struct state *state, struct thread *self, int after) {
  bool late = mistake_made == WAITER_READS_WAKES_AFTER_CHECKING;
  switch (self->step) {
  case READ_WAKES:
    self->wakes = state->wakes;
    self->step = LOWER_WAKE_AT;
    break;
  case LOWER_WAKE_AT:
    if (state->wake_at == 0 || state->wake_at > self->point)
      state->wake_at = self->point;
    self->step = CHECK_FINISHED;
    break;
  case CHECK_FINISHED:
    self->step = state->finished >= self->point ? after : late ? READ_WAKES_LATE : SLEEP_ON_WAKES;
    break;
  case READ_WAKES_LATE:
    self->wakes = state->wakes;
    self->step = SLEEP_ON_WAKES;
    break;
  case SLEEP_ON_WAKES:
    self->step = state->wakes == self->wakes ? SLEEPING_ON_WAKES : READ_WAKES;
    break;
  }
}

static bool is_published(const struct state *state, int sequence) {
  return state->published[sequence % SLOTS] == sequence + 1;
}

static void work(struct state *state, struct thread *self) {
  switch (self->step) {
  case SPIN_FINISHED:
    self->sequence = state->finished;
    self->step = SPIN_PUBLISHED;
    break;
  case SPIN_PUBLISHED:
    self->step = is_published(state, self->sequence) ? BEGIN : SET_ASLEEP;
    break;
  case SET_ASLEEP:
    state->asleep = 1;
    self->step =
        mistake_made == WORKER_SLEEPS_WITHOUT_CHECKING_AGAIN ? SLEEP_ON_QUEUE : READ_FINISHED;
    break;
  case READ_FINISHED:
    self->sequence = state->finished;
    self->step = READ_PUBLISHED;
    break;
  case READ_PUBLISHED:
    self->step = is_published(state, self->sequence) ? CLEAR_OWN_ASLEEP : SLEEP_ON_QUEUE;
    break;
  case SLEEP_ON_QUEUE:
    self->step = state->asleep ? SLEEPING_ON_QUEUE : SET_ASLEEP;
    break;
  case CLEAR_OWN_ASLEEP:
    state->asleep = 0;
    self->step = BEGIN;
    break;
  case AFTER_FINISHING:
    self->step = mistake_made == FINISHED_BEFORE_DONE ? END : SPIN_FINISHED;
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

static void run(struct state *state, int thread) {
  struct thread *self = &state->threads[thread];
  bool early = mistake_made == FINISHED_BEFORE_DONE && thread == WORKER;
  switch (self->step) {
  case BEGIN:
    begin(state, thread == WORKER ? state->tasks[self->sequence % SLOTS] : 0);
    self->step = early ? FINISH : END;
    break;
  case END:
    state->running = 0;
    if (mistake_made == INLINE_WITHOUT_SEQUENCE && thread == INLINE_THREAD)
      self->step = DONE;
    else if (early)
      self->step = SPIN_FINISHED;
    else
      self->step =
          mistake_made == FINISHER_CHECKS_WAKE_AT_BEFORE_FINISHING ? CHECK_WAKE_AT_EARLY : FINISH;
    break;
  }
}

static void finish(struct state *state, struct thread *self) {
  bool early = mistake_made == FINISHER_CHECKS_WAKE_AT_BEFORE_FINISHING;
  switch (self->step) {
  case CHECK_WAKE_AT_EARLY:
    self->seen = state->wake_at;
    self->step = FINISH;
    break;
  case FINISH:
    state->finished = self->sequence + 1;
    self->step = CHECK_WAKE_AT;
    break;
  case CHECK_WAKE_AT: {
    int wake_at = early ? self->seen : state->wake_at;
    self->step = wake_at != 0 && wake_at <= self->sequence + 1 ? CLEAR_WAKE_AT : AFTER_FINISHING;
    break;
  }
  case CLEAR_WAKE_AT:
    state->wake_at = 0;
    self->step = INCREMENT_WAKES;
    break;
  case INCREMENT_WAKES:
    state->wakes += mistake_made != WAKES_DOES_NOT_CHANGE;
    self->step = WAKE_WAITERS;
    break;
  case WAKE_WAITERS:
    for (int i = 0; i < THREADS; i++)
      if (state->threads[i].step == SLEEPING_ON_WAKES)
        state->threads[i].step = READ_WAKES;
    self->step = AFTER_FINISHING;
    break;
  }
}

static void run_inline(struct state *state, struct thread *self) {
  switch (self->step) {
  case READ_IDLE:
    self->sequence = state->finished;
    self->step = TRY_TAKE;
    break;
  case TRY_TAKE:
    if (state->submitted != self->sequence) {
      self->step = DONE;
      break;
    }
    state->submitted += mistake_made != INLINE_WITHOUT_SEQUENCE;
    self->step = BEGIN;
    break;
  case AFTER_FINISHING:
    self->step = state->submitted == self->sequence + 1 || mistake_made == INLINE_WAKES_NO_WAITER
                     ? DONE
                     : CHECK_ASLEEP;
    break;
  case AFTER_WAKING:
    self->step = DONE;
    break;
  }
}

/* Executes one step of a thread. Returns false if the thread has no step to take. */
static bool take_step(struct state *state, int thread) {
  struct thread *self = &state->threads[thread];
  int step = self->step;
  if (step >= SLEEPING_ON_WAKES)
    return false;
  if (step >= CHECK_ASLEEP && step < AFTER_WAKING)
    wake(state, self);
  else if (step >= READ_WAKES && step <= SLEEP_ON_WAKES)
    wait(state, self, thread == WAITER ? DONE : WRITE_TASK);
  else if (step == BEGIN || step == END)
    run(state, thread);
  else if (step >= CHECK_WAKE_AT_EARLY && step < AFTER_FINISHING)
    finish(state, self);
  else if (thread == WORKER)
    work(state, self);
  else if (thread == INLINE_THREAD)
    run_inline(state, self);
  else
    produce(state, thread);
  return true;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Visited states, as 64-bit hashes. Among a few million states, the probability of a collision is
 * below 10^-5. */
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
  size_t position = hash & (visited.capacity - 1);
  while (visited.hashes[position] != 0 && visited.hashes[position] != hash)
    position = (position + 1) & (visited.capacity - 1);
  if (visited.hashes[position] == hash)
    return false;
  visited.hashes[position] = hash;
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

/* Clears what a thread will write before it reads it, because that does not distinguish states. Of
 * `wakes` only the difference from the value that was read matters. */
static void forget_unread(struct state *state, int thread) {
  struct thread *self = &state->threads[thread];
  int step = self->step;
  bool waits = step > READ_WAKES && step <= SLEEP_ON_WAKES;
  self->wakes = waits ? (uint8_t)(state->wakes - self->wakes) : 0;
  if (thread != WAITER && !waits && step != READ_WAKES && step != SLEEPING_ON_WAKES)
    self->point = 0;
  bool has_sequence = step != SPIN_FINISHED && !(step >= SET_ASLEEP && step <= READ_FINISHED) &&
                      step != SLEEP_ON_QUEUE && step < SLEEPING_ON_QUEUE &&
                      !(step > PUBLISH && step <= AFTER_WAKING);
  if (!has_sequence)
    self->sequence = 0;
}

static bool is_new(const struct state *state) {
  struct state read = *state;
  for (int i = 0; i < THREADS; i++)
    forget_unread(&read, i);
  read.wakes = 0;
  if (2 * visited.count >= visited.capacity)
    grow();
  return insert(hash_of(&read));
}

static void check_end(const struct state *state) {
  bool well = state->finished == state->submitted;
  for (int i = 0; i < THREADS; i++)
    well = well && state->threads[i].step == (i == WORKER ? SLEEPING_ON_QUEUE : DONE);
  for (int i = 0; i < PRODUCERS; i++)
    well = well && state->last[i] == state->threads[i].count;
  if (!well)
    report("stuck");
}

/* Recursion is as deep as the longest execution: a few hundred steps. */
static void search(const struct state *state) {
  bool ended = true;
  if (found != NULL || !is_new(state))
    return;
  for (int i = 0; i < THREADS; i++) {
    struct state next = *state;
    if (take_step(&next, i)) {
      ended = false;
      search(&next);
    }
  }
  if (ended)
    check_end(state);
}

/* Searches from the start with the first `producers` producers and the given other threads. */
static const char *search_with(enum mistake mistake, int producers, bool with_inline,
                               bool with_waiter) {
  struct state start = {0};
  for (int i = producers; i < PRODUCERS; i++)
    start.threads[i].step = DONE;
  start.threads[WORKER].step = SPIN_FINISHED;
  start.threads[INLINE_THREAD].step = with_inline ? READ_IDLE : DONE;
  start.threads[WAITER].step = with_waiter ? READ_WAKES : DONE;
  start.threads[WAITER].point = (uint8_t)(producers * TASKS_EACH);
  mistake_made = mistake;
  found = NULL;
  search(&start);
  free(visited.hashes);
  memset(&visited, 0, sizeof visited);
  return found;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* All five threads together have 40 million states. That search takes half a minute and also
 * passed; here it runs in parts. */
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
  expect_found(WORKER_SLEEPS_WITHOUT_CHECKING_AGAIN, "stuck");
  expect_found(PRODUCER_CHECKS_ASLEEP_BEFORE_PUBLISHING, "stuck");
  expect_found(PRODUCER_IGNORES_FULL_RING, "stuck"); /* a task was overwritten */
  expect_found(INLINE_WITHOUT_SEQUENCE, "two run at once");
  expect_found(INLINE_WAKES_NO_WAITER, "stuck");
  expect_found(FINISHED_BEFORE_DONE, "two run at once");
  expect_found(FINISHER_CHECKS_WAKE_AT_BEFORE_FINISHING, "stuck");
  expect_found(WAITER_READS_WAKES_AFTER_CHECKING, "stuck");
  expect_found(WAKES_DOES_NOT_CHANGE, "stuck");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_order_of_steps_ends_well),
      cmocka_unit_test(every_rule_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
