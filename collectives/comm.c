/* comm.c: joining a communicator, and leaving it.
 *
 * All join, then each maps the arenas of all. Meanwhile there is no watchdog yet: who waits looks
 * for itself, ten times a second, whether those who have joined still live.
 */
#include "collectives/comm.h"

#include "base/futex.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/liveness.h"
#include "collectives/error_text.h"

enum { LOOK_EVERY_NS = 100000000 };

/* ---- making ---------------------------------------------------------------------------------- */

static void free_comm(openreg_comm *comm) {
  if (!openreg_in_bad_fork() && comm->arenas != NULL)
    for (int rank = 0; rank < comm->size; rank++)
      openreg_ipc_close_arena(&comm->arenas[rank]);
  free(comm->arenas);
  free(comm);
}

static openreg_status make_comm(int size, int rank, int device, openreg_comm **made) {
  openreg_comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a communicator");
  *comm = (openreg_comm){.size = size, .rank = rank, .device = device, .left_rank = -1};
  comm->arenas = calloc((size_t)size, sizeof *comm->arenas);
  void *base;
  openreg_status status = OPENREG_OK;
  if (comm->arenas == NULL)
    status = openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a communicator");
  if (status == OPENREG_OK)
    status = openreg_arena_get(device, &base, &comm->arena_bytes);
  if (status != OPENREG_OK) {
    free_comm(comm);
    return status;
  }
  comm->arena = base;
  *made = comm;
  return OPENREG_OK;
}

static openreg_status check_id(const openreg_comm_id *id, int size, int rank,
                               struct openreg_segment_name *name) {
  if (!openreg_segment_name_read(id, name))
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: these bytes are no id of a communicator");
  if (size < 1 || (uint32_t)size != name->size)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a communicator made for %u ranks cannot have %d",
                        (unsigned)name->size, size);
  if (rank < 0 || rank >= size)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: rank %d: expected 0 to %d", rank,
                        size - 1);
  return OPENREG_OK;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Everything that can fail is done before the place is taken. */
static openreg_status take_place(openreg_comm *comm) {
  struct openreg_member *member = &comm->segment->members[comm->rank];
  openreg_device_properties properties;
  openreg_ipc_handle arena;
  openreg_status status = openreg_device_get_properties(comm->device, &properties);
  if (status == OPENREG_OK)
    status = openreg_ipc_export_arena(comm->device, &arena);
  if (status != OPENREG_OK)
    return status;
  if (!openreg_attachment_take_place(comm->attachment, comm->rank)) {
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s%s has joined already",
                        openreg_rank_text(comm->attachment, comm->rank, name),
                        openreg_group_text(comm->attachment, group));
  }
  member->pid = getpid();
  member->started = openreg_process_started(getpid());
  memcpy(member->uuid, properties.uuid, sizeof member->uuid);
  member->arena = arena;
  atomic_store(&member->state, OPENREG_MEMBER_JOINED);
  atomic_fetch_add(&comm->segment->joined, 1);
  openreg_attachment_ring_all(comm->attachment);
  return OPENREG_OK;
}

static openreg_status join(const openreg_comm_id *id, int size, int rank, int device,
                           const openreg_comm_options *options, openreg_comm **joined) {
  struct openreg_segment_name name;
  openreg_comm *comm = NULL;
  openreg_status status = check_id(id, size, rank, &name);
  if (status == OPENREG_OK)
    status = make_comm(size, rank, device, &comm);
  if (status != OPENREG_OK)
    return status;
  status = openreg_attachment_get(&name, options, &comm->attachment);
  if (status == OPENREG_OK) {
    comm->segment = comm->attachment->segment;
    status = take_place(comm);
    if (status == OPENREG_OK) {
      *joined = comm;
      return OPENREG_OK;
    }
    openreg_attachment_put(comm->attachment);
  }
  free_comm(comm);
  return status;
}

/* ---- waiting for the others ------------------------------------------------------------------ */

struct gathering {
  openreg_comm *comm;
  _Atomic uint32_t *count; /* how many are there */
};

static bool are_all_there(const struct gathering *gathering) {
  return atomic_load(gathering->count) == (uint32_t)gathering->comm->size;
}

static bool is_gathering_over(void *context) {
  const struct gathering *gathering = context;
  return are_all_there(gathering) || openreg_attachment_has_ended(gathering->comm->attachment) ||
         atomic_load(&gathering->comm->segment->left) > 0;
}

static bool is_missing(const void *context, int rank) {
  enum openreg_member_state state = openreg_attachment_state_of(context, rank);
  return state == OPENREG_MEMBER_ABSENT || state == OPENREG_MEMBER_JOINING;
}

static bool has_left(const void *context, int rank) {
  return openreg_attachment_state_of(context, rank) == OPENREG_MEMBER_LEFT;
}

/* Ends it when one that has joined lives no more. */
static void look_for_dead(openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++) {
    const struct openreg_member *member = &comm->segment->members[rank];
    if (openreg_attachment_state_of(comm->attachment, rank) != OPENREG_MEMBER_JOINED ||
        member->pid == getpid() || !openreg_process_has_ended(member->pid, member->started))
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_attachment_end(comm->attachment, "openreg: %s%s has died (process %d)",
                           openreg_rank_text(comm->attachment, rank, name),
                           openreg_group_text(comm->attachment, group), member->pid);
  }
}

static void end_late(openreg_comm *comm, uint64_t timeout_ns) {
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  char time[OPENREG_TIME_TEXT_BYTES];
  bool all_joined = atomic_load(&comm->segment->joined) == (uint32_t)comm->size;
  openreg_time_text(timeout_ns, time);
  openreg_group_text(comm->attachment, group);
  if (all_joined)
    openreg_attachment_end(comm->attachment, "openreg: not all ranks%s were ready within %s", group,
                           time);
  else
    openreg_attachment_end(
        comm->attachment, "openreg: %s%s did not join within %s",
        openreg_ranks_text(comm->attachment, is_missing, comm->attachment, ranks), group, time);
}

static void end_left(openreg_comm *comm) {
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  openreg_attachment_end(comm->attachment, "openreg: %s%s left before all had joined",
                         openreg_ranks_text(comm->attachment, has_left, comm->attachment, ranks),
                         openreg_group_text(comm->attachment, group));
}

static openreg_status await_all(openreg_comm *comm, _Atomic uint32_t *count, int64_t deadline_ns,
                                uint64_t timeout_ns) {
  struct gathering gathering = {.comm = comm, .count = count};
  while (!are_all_there(&gathering)) {
    if (openreg_attachment_has_ended(comm->attachment))
      return openreg_comm_fail(comm);
    int64_t now_ns = openreg_now_ns();
    if (atomic_load(&comm->segment->left) > 0)
      end_left(comm);
    else if (now_ns >= deadline_ns)
      end_late(comm, timeout_ns);
    else
      look_for_dead(comm);
    int64_t next_ns = now_ns + LOOK_EVERY_NS < deadline_ns ? now_ns + LOOK_EVERY_NS : deadline_ns;
    openreg_doorbell_await(&comm->segment->bell, 0, next_ns, is_gathering_over, &gathering);
  }
  return OPENREG_OK;
}

/* ---- when all have joined -------------------------------------------------------------------- */

static bool share_device(const openreg_comm *comm, int one, int other) {
  const struct openreg_member *members = comm->segment->members;
  return memcmp(members[one].uuid, members[other].uuid, OPENREG_UUID_BYTES) == 0;
}

/* All come to the same sentence. */
static void check_devices(openreg_comm *comm) {
  for (int other = 1; other < comm->size; other++)
    for (int one = 0; one < other; one++) {
      if (!share_device(comm, one, other))
        continue;
      char name[OPENREG_RANK_TEXT_BYTES], second[OPENREG_RANK_TEXT_BYTES];
      char group[OPENREG_GROUP_TEXT_BYTES];
      openreg_attachment_end(
          comm->attachment,
          "openreg: %s and %s%s have the same device: each rank needs one of its own, or "
          "OPENREG_SHARE_DEVICE=1 allows ranks to share them",
          openreg_rank_text(comm->attachment, one, name),
          openreg_rank_text(comm->attachment, other, second),
          openreg_group_text(comm->attachment, group));
      return;
    }
}

static openreg_status map_arenas(openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++) {
    openreg_status status =
        openreg_ipc_open_arena(&comm->segment->members[rank].arena, &comm->arenas[rank]);
    if (status == OPENREG_OK)
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_attachment_end(comm->attachment, "openreg: %s%s could not reach the memory of others",
                           openreg_rank_text(comm->attachment, comm->rank, name),
                           openreg_group_text(comm->attachment, group));
    return status;
  }
  return OPENREG_OK;
}

static openreg_status watch(openreg_comm *comm) {
  openreg_status status = openreg_attachments_lock();
  if (status != OPENREG_OK)
    return status;
  status = openreg_watchdog_add_locked(comm->attachment);
  openreg_attachments_unlock();
  return status;
}

/* For a rank when all have joined. */
static openreg_status prepare(openreg_comm *comm, const openreg_comm_options *options) {
  if (!options->share_device)
    check_devices(comm);
  if (openreg_attachment_has_ended(comm->attachment))
    return openreg_comm_fail(comm);
  openreg_status status = map_arenas(comm);
  if (status == OPENREG_OK)
    status = watch(comm);
  if (status != OPENREG_OK)
    return status;
  atomic_fetch_add(&comm->segment->mapped, 1);
  openreg_attachment_ring_all(comm->attachment);
  return OPENREG_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

static const openreg_comm_options no_options = {.timeout_ns = UINT64_MAX};

openreg_status openreg_comm_init(const openreg_comm_id *id, int size, int rank, int device,
                                 const openreg_comm_options *options, openreg_comm **comm) {
  if (options == NULL)
    options = &no_options;
  int64_t deadline_ns = openreg_deadline_ns(options->timeout_ns);
  openreg_comm *joined;
  openreg_status status = join(id, size, rank, device, options, &joined);
  if (status != OPENREG_OK)
    return status;
  struct openreg_segment *segment = joined->segment;
  status = await_all(joined, &segment->joined, deadline_ns, options->timeout_ns);
  if (status == OPENREG_OK) {
    openreg_comm_id_drop(id);
    status = prepare(joined, options);
  }
  if (status == OPENREG_OK)
    status = await_all(joined, &segment->mapped, deadline_ns, options->timeout_ns);
  if (status != OPENREG_OK) {
    openreg_comm_destroy(joined);
    return status;
  }
  *comm = joined;
  return OPENREG_OK;
}

openreg_status openreg_comm_init_all(int size, const int devices[],
                                     const openreg_comm_options *options, openreg_comm *comms[]) {
  if (options == NULL)
    options = &no_options;
  openreg_comm_id id;
  openreg_comm *joined[OPENREG_MAX_RANKS];
  int count = 0;
  openreg_status status = openreg_comm_id_create(size, &id);
  if (status != OPENREG_OK)
    return status;
  for (; status == OPENREG_OK && count < size; count += status == OPENREG_OK)
    status = join(&id, size, count, devices[count], options, &joined[count]);
  for (int rank = 0; status == OPENREG_OK && rank < size; rank++)
    status = prepare(joined[rank], options);
  openreg_comm_id_drop(&id);
  if (status == OPENREG_OK) {
    memcpy(comms, joined, (size_t)size * sizeof *comms);
    return OPENREG_OK;
  }
  while (count > 0)
    openreg_comm_destroy(joined[--count]);
  return status;
}

int openreg_comm_rank(const openreg_comm *comm) {
  return comm->rank;
}

int openreg_comm_size(const openreg_comm *comm) {
  return comm->size;
}

int openreg_comm_device(const openreg_comm *comm) {
  return comm->device;
}

openreg_status openreg_comm_require(const openreg_comm *comm) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK,
                        "openreg: a communicator was made before this process was forked, so it is "
                        "its parent's alone");
  if (!openreg_attachment_has_ended(comm->attachment))
    return OPENREG_OK;
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "%s",
                      openreg_attachment_sentence(comm->attachment));
}

openreg_status openreg_comm_check(const openreg_comm *comm) {
  return openreg_comm_require(comm);
}

void openreg_comm_abort(openreg_comm *comm, const char *why) {
  if (openreg_in_bad_fork())
    return;
  char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  openreg_group_text(comm->attachment, group);
  openreg_attachment_end(comm->attachment, "openreg: %s%s aborted the group%s%s",
                         openreg_rank_text(comm->attachment, comm->rank, name), group,
                         why == NULL ? "" : ": ", why == NULL ? "" : why);
}

void openreg_comm_destroy(openreg_comm *comm) {
  if (comm == NULL)
    return;
  openreg_attachment_leave(comm->attachment, comm->rank);
  openreg_attachment_put(comm->attachment);
  free_comm(comm);
}
