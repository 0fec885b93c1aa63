/* chaos_worker.c: a process that allocates, fills, sends, receives and frees blocks at random.
 *
 * Work on a block's stream fills it once with a pattern that only its seed determines. The block
 * keeps the pattern until it is freed: its owner checks it then, and every receiver checks it on
 * arrival and on release. So memory that was reused too early, or processes that disagree about
 * where it is, are found.
 *
 * What a living process sent must arrive. Handles of dead processes may be rejected, and waiting
 * for their work may fail; then a process waits until everyone has noticed the death. Every holder
 * of an event records it, so a wait for it may fail because of any of them.
 */
#include "chaos.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  MOST_OWN = 24,
  MOST_RECEIVED = 12,
  STREAMS = 4,
  PATIENCE_MS = 60000, /* to notice a death; never reached unless something is wrong */
};

struct own {
  openreg_block *block; /* NULL: the slot is empty */
  uint64_t seed;
};

struct received {
  openreg_block *block;
  struct chaos_parcel parcel;
};

static struct chaos *chaos;
static int me;
static uint64_t random_state;
static struct own owned[MOST_OWN];
static struct received imports[MOST_RECEIVED];
static openreg_event *events[TEST_DEVICES];
static struct chaos_parcel unsent; /* its receiver had no room */
static int unsent_to = -1;

static _Noreturn void give_up(int line, const char *what) {
  fprintf(stderr, "chaos_worker.c:%d: required: %s (last error: %s)\n", line, what,
          openreg_last_error());
  _exit(1);
}
#define REQUIRE(condition) ((condition) ? (void)0 : give_up(__LINE__, #condition))
#define REQUIRE_OK(call)   REQUIRE((call) == OPENREG_OK)

static int below(int end) {
  return (int)(chaos_next(&random_state) % (uint64_t)end);
}

static void count(_Atomic uint64_t *counter) {
  atomic_fetch_add(counter, 1);
}

/* ---- patterns -------------------------------------------------------------------------------- */

struct task {
  openreg_block *block;
  uint64_t seed;
  bool differs;
};

static uint64_t *words_of(const openreg_block *block) {
  return openreg_kernel_view(block->address);
}

static openreg_status fill(void *data) {
  struct task *task = data;
  for (size_t i = 0; i < task->block->requested_bytes / 8; i++)
    words_of(task->block)[i] = chaos_next(&task->seed);
  free(task);
  return OPENREG_OK;
}

/* Work that takes long, so that its process is often killed before it is done. */
static openreg_status linger(void *unused) {
  (void)unused;
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  return OPENREG_OK;
}

static openreg_status compare(void *data) {
  struct task *task = data;
  for (size_t i = 0; i < task->block->requested_bytes / 8; i++)
    if (words_of(task->block)[i] != chaos_next(&task->seed))
      task->differs = true;
  return OPENREG_OK;
}

static void require_pattern(openreg_block *block, uint64_t seed) {
  struct task task = {.block = block, .seed = seed};
  compare(&task);
  REQUIRE(!task.differs);
}

/* ---- dead processes -------------------------------------------------------------------------- */

static void require_dead(const struct chaos_parcel *parcel) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; atomic_load(&chaos->places[parcel->sender].life) == parcel->sender_life; i++) {
    REQUIRE(i < PATIENCE_MS); /* the sender lives, so what it sent must be valid */
    nanosleep(&pause, NULL);
  }
}

/* It does not matter who died: some slot must have had more than one process. */
static void require_some_death(void) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0;; i++) {
    for (int place = 0; place < CHAOS_WORKERS; place++)
      if (atomic_load(&chaos->places[place].life) > 1)
        return;
    REQUIRE(i < PATIENCE_MS);
    nanosleep(&pause, NULL);
  }
}

/* ---- own blocks ------------------------------------------------------------------------------ */

static size_t random_size(void) {
  size_t bytes = (size_t)1 << (9 + below(12)); /* 512 to 1 MiB, and up to twice that */
  return (bytes + chaos_next(&random_state) % bytes) & ~(size_t)7;
}

static void allocate(struct own *own) {
  int device = below(TEST_DEVICES), stream = below(STREAMS);
  openreg_block *block = NULL;
  openreg_status status = openreg_block_allocate(device, stream, random_size(), &block);
  if (status == OPENREG_OUT_OF_MEMORY) {
    count(&chaos->counts.out_of_memory);
    return;
  }
  REQUIRE_OK(status);
  struct task *task = calloc(1, sizeof *task);
  REQUIRE(task != NULL);
  *own = (struct own){.block = block, .seed = chaos_next(&random_state)};
  *task = (struct task){.block = block, .seed = own->seed};
  REQUIRE_OK(openreg_stream_launch(device, stream, fill, task));
}

static void release(struct own *own) {
  REQUIRE_OK(openreg_stream_synchronize(own->block->device, own->block->stream));
  require_pattern(own->block, own->seed);
  openreg_block_free(own->block);
  own->block = NULL;
}

static void allocate_or_release(void) {
  struct own *own = &owned[below(MOST_OWN)];
  if (own->block != NULL)
    release(own);
  else
    allocate(own);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void try_to_send(void) {
  ssize_t sent = send(chaos->inboxes[unsent_to][0], &unsent, sizeof unsent, MSG_DONTWAIT);
  if (sent < 0) {
    REQUIRE(errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
    return;
  }
  count(&chaos->counts.sent);
  unsent_to = -1;
}

static struct chaos_parcel parcel_from_me(int device) {
  return (struct chaos_parcel){
      .device = device, .sender = me, .sender_life = atomic_load(&chaos->places[me].life)};
}

static bool pack_memory(void) {
  struct own *own = &owned[below(MOST_OWN)];
  if (own->block == NULL)
    return false;
  unsent = parcel_from_me(own->block->device);
  unsent.kind = CHAOS_MEMORY;
  unsent.seed = own->seed;
  unsent.bytes = own->block->requested_bytes;
  if (below(4) == 0)
    REQUIRE_OK(openreg_stream_launch(unsent.device, own->block->stream, linger, NULL));
  REQUIRE_OK(openreg_block_export(own->block, below(STREAMS), &unsent.handle));
  return true;
}

static bool pack_event(void) {
  int device = below(TEST_DEVICES);
  if (events[device] == NULL)
    REQUIRE_OK(openreg_event_create(device, false, &events[device]));
  REQUIRE_OK(openreg_event_record(events[device], below(STREAMS)));
  unsent = parcel_from_me(device);
  unsent.kind = CHAOS_EVENT;
  REQUIRE_OK(openreg_event_export(events[device], &unsent.handle));
  return true;
}

/* Other processes have recorded it too. */
static void look_at_own_event(void) {
  openreg_event *event = events[below(TEST_DEVICES)];
  if (event == NULL)
    return;
  openreg_status status = openreg_event_synchronize(event);
  if (status == OPENREG_LAUNCH_FAILURE)
    require_some_death();
  else
    REQUIRE_OK(status);
}

/* Sends one parcel at a time: a process that exports and then loses the handle keeps the memory
 * forever. */
static void send_something(void) {
  if (unsent_to < 0 && (below(4) == 0 ? pack_event() : pack_memory()))
    unsent_to = (me + 1 + below(CHAOS_WORKERS - 1)) % CHAOS_WORKERS;
  if (unsent_to >= 0)
    try_to_send();
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Whether the stream finished its work; if not, the sender of `parcel` must be dead. */
static bool finish(int device, int stream, const struct chaos_parcel *parcel) {
  openreg_status status = openreg_stream_synchronize(device, stream);
  if (status != OPENREG_LAUNCH_FAILURE) {
    REQUIRE_OK(status);
    return true;
  }
  require_dead(parcel);
  count(&chaos->counts.failed_with_the_dead);
  return false;
}

static void release_block(struct received *received) {
  require_pattern(received->block, received->parcel.seed);
  openreg_block_free(received->block);
  received->block = NULL;
}

static void open_memory(struct received *received) {
  const struct chaos_parcel *parcel = &received->parcel;
  int stream = below(STREAMS);
  openreg_block *block = NULL;
  openreg_status status = openreg_block_import(&parcel->handle, stream, &block);
  if (status == OPENREG_INVALID_ARGUMENT) {
    require_dead(parcel);
    count(&chaos->counts.refused_of_the_dead);
    return;
  }
  REQUIRE_OK(status);
  count(&chaos->counts.opened);
  REQUIRE(openreg_block_is_imported(block) && block->device == parcel->device &&
          block->requested_bytes == parcel->bytes);
  struct task task = {.block = block, .seed = parcel->seed};
  REQUIRE_OK(openreg_stream_launch(block->device, stream, compare, &task));
  if (!finish(block->device, stream, parcel)) {
    REQUIRE_OK(openreg_stream_synchronize(block->device, stream));
    openreg_block_free(block); /* its content is undefined */
    return;
  }
  REQUIRE(!task.differs);
  count(&chaos->counts.verified);
  received->block = block;
}

static void record_event(openreg_event *event, int device) {
  int stream = below(STREAMS);
  if (below(4) == 0)
    REQUIRE_OK(openreg_stream_launch(device, stream, linger, NULL));
  REQUIRE_OK(openreg_event_record(event, stream));
  count(&chaos->counts.events_recorded);
}

static void wait_for_event(openreg_event *event, int device) {
  int stream = below(STREAMS);
  openreg_status status = openreg_stream_wait_event(device, stream, event);
  if (status == OPENREG_OK)
    status = openreg_stream_synchronize(device, stream);
  if (status == OPENREG_LAUNCH_FAILURE) {
    require_some_death();
    count(&chaos->counts.failed_with_the_dead);
    return;
  }
  REQUIRE_OK(status);
  count(&chaos->counts.events_waited_for);
}

static void open_event(const struct chaos_parcel *parcel) {
  openreg_event *event = NULL;
  openreg_status status = openreg_event_import(&parcel->handle, &event);
  if (status == OPENREG_INVALID_ARGUMENT) {
    require_dead(parcel);
    count(&chaos->counts.refused_of_the_dead);
    return;
  }
  REQUIRE_OK(status);
  if (below(2) == 0)
    record_event(event, parcel->device);
  wait_for_event(event, parcel->device);
  openreg_event_destroy(event);
}

static void receive_or_release(void) {
  struct received *received = &imports[below(MOST_RECEIVED)];
  if (received->block != NULL) {
    release_block(received);
    return;
  }
  ssize_t got =
      recv(chaos->inboxes[me][1], &received->parcel, sizeof received->parcel, MSG_DONTWAIT);
  if (got < 0) {
    REQUIRE(errno == EAGAIN || errno == EWOULDBLOCK);
    return;
  }
  REQUIRE(got == sizeof received->parcel);
  if (received->parcel.kind == CHAOS_MEMORY)
    open_memory(received);
  else
    open_event(&received->parcel);
}

/* ---- main loop ------------------------------------------------------------------------------- */

static void keep_house(void) {
  int device = below(TEST_DEVICES);
  switch (below(3)) {
  case 0:
    REQUIRE_OK(openreg_memory_collect_shared(device));
    break;
  case 1:
    REQUIRE_OK(openreg_cache_empty(device));
    break;
  default:
    REQUIRE(openreg_memory_is_valid(device));
  }
}

/* Every other process uses expandable segments. */
static void choose_settings(void) {
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = me % 2;
  REQUIRE_OK(openreg_memory_set_settings(&settings));
}

_Noreturn void chaos_work(struct chaos *shared, int place, uint64_t random_seed) {
  chaos = shared;
  me = place;
  random_state = random_seed;
  choose_settings();
  while (!atomic_load(&chaos->places[me].must_leave)) {
    int choice = below(32);
    if (choice < 10)
      allocate_or_release();
    else if (choice < 20)
      send_something();
    else if (choice < 31)
      receive_or_release();
    else if (below(2) == 0)
      look_at_own_event();
    else
      keep_house();
    count(&chaos->places[me].steps);
  }
  for (int device = 0; device < TEST_DEVICES; device++)
    REQUIRE_OK(openreg_device_drain(device));
  exit(0);
}
