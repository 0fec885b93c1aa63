/* comm.c: joining a communicator, and leaving it.
 *
 * All ranks join; then each rank maps the arenas of all. No watchdog runs during that time, so each
 * waiting rank checks ten times a second whether the ranks that have joined still live.
 */
#include "collectives/comm.h"

#include "base/futex.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/liveness.h"
#include "collectives/error_text.h"

enum { POLL_INTERVAL_NS = 100000000 };

/* ---- creating -------------------------------------------------------------------------------- */

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
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a communicator");
  *comm = (openreg_comm){.size = size, .rank = rank, .device = device, .left_rank = -1};
  comm->arenas = calloc((size_t)size, sizeof *comm->arenas);
  void *base;
  openreg_status status = OPENREG_OK;
  if (comm->arenas == NULL)
    status = openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for a communicator");
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
                               struct openreg_comm_shm_locator *locator) {
  if (!openreg_comm_shm_locator_decode(id, locator))
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg: not a communicator id; pass the id that openreg_comm_id_create made");
  if (size < 1 || (uint32_t)size != locator->size)
    return openreg_fail(
        OPENREG_INVALID_ARGUMENT,
        "openreg: cannot join with size %d: the communicator was created for %u ranks", size,
        (unsigned)locator->size);
  if (rank < 0 || rank >= size)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: rank %d: expected 0 to %d", rank,
                        size - 1);
  return OPENREG_OK;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Does everything that can fail before it claims the rank. */
static openreg_status claim_rank(openreg_comm *comm) {
  struct openreg_member *member = &comm->shm->members[comm->rank];
  openreg_device_properties properties;
  openreg_ipc_handle arena;
  openreg_status status = openreg_device_get_properties(comm->device, &properties);
  if (status == OPENREG_OK)
    status = openreg_ipc_export_arena(comm->device, &arena);
  if (status != OPENREG_OK)
    return status;
  if (!openreg_mapping_claim_rank(comm->mapping, comm->rank)) {
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s%s has joined already",
                        openreg_rank_text(comm->mapping, comm->rank, name),
                        openreg_group_text(comm->mapping, group));
  }
  member->pid = getpid();
  member->started = openreg_process_started(getpid());
  memcpy(member->uuid, properties.uuid, sizeof member->uuid);
  member->arena = arena;
  atomic_store(&member->state, OPENREG_MEMBER_JOINED);
  atomic_fetch_add(&comm->shm->joined_count, 1);
  openreg_mapping_wake_all(comm->mapping);
  return OPENREG_OK;
}

static openreg_status join(const openreg_comm_id *id, int size, int rank, int device,
                           const openreg_comm_options *options, openreg_comm **joined) {
  struct openreg_comm_shm_locator locator;
  openreg_comm *comm = NULL;
  openreg_status status = check_id(id, size, rank, &locator);
  if (status == OPENREG_OK)
    status = make_comm(size, rank, device, &comm);
  if (status != OPENREG_OK)
    return status;
  status = openreg_mapping_get(&locator, options, &comm->mapping);
  if (status == OPENREG_OK) {
    comm->shm = comm->mapping->shm;
    status = claim_rank(comm);
    if (status == OPENREG_OK) {
      *joined = comm;
      return OPENREG_OK;
    }
    openreg_mapping_put(comm->mapping);
  }
  free_comm(comm);
  return status;
}

/* ---- waiting for the others ------------------------------------------------------------------ */

struct gathering {
  openreg_comm *comm;
  _Atomic uint32_t *count; /* ranks that have arrived */
};

static bool have_all_arrived(const struct gathering *gathering) {
  return atomic_load(gathering->count) == (uint32_t)gathering->comm->size;
}

static bool is_gathering_over(void *context) {
  const struct gathering *gathering = context;
  return have_all_arrived(gathering) || openreg_mapping_is_aborted(gathering->comm->mapping) ||
         atomic_load(&gathering->comm->shm->left_count) > 0;
}

static bool is_missing(const void *context, int rank) {
  enum openreg_member_state state = openreg_mapping_member_state(context, rank);
  return state == OPENREG_MEMBER_ABSENT || state == OPENREG_MEMBER_JOINING;
}

static bool has_left(const void *context, int rank) {
  return openreg_mapping_member_state(context, rank) == OPENREG_MEMBER_LEFT;
}

/* Aborts when a rank that has joined has died. */
static void abort_if_rank_died(openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++) {
    const struct openreg_member *member = &comm->shm->members[rank];
    if (openreg_mapping_member_state(comm->mapping, rank) != OPENREG_MEMBER_JOINED ||
        member->pid == getpid() || !openreg_process_has_ended(member->pid, member->started))
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_mapping_abort(comm->mapping, "openreg: %s%s has died (process %d)",
                          openreg_rank_text(comm->mapping, rank, name),
                          openreg_group_text(comm->mapping, group), member->pid);
  }
}

static void abort_for_timeout(openreg_comm *comm, uint64_t timeout_ns) {
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  char time[OPENREG_TIME_TEXT_BYTES];
  bool all_joined = atomic_load(&comm->shm->joined_count) == (uint32_t)comm->size;
  openreg_time_text(timeout_ns, time);
  openreg_group_text(comm->mapping, group);
  if (all_joined)
    openreg_mapping_abort(comm->mapping, "openreg: not all ranks%s were ready within %s", group,
                          time);
  else
    openreg_mapping_abort(comm->mapping, "openreg: %s%s did not join within %s",
                          openreg_ranks_text(comm->mapping, is_missing, comm->mapping, ranks),
                          group, time);
}

static void abort_for_departure(openreg_comm *comm) {
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  openreg_mapping_abort(comm->mapping, "openreg: %s%s left before all had joined",
                        openreg_ranks_text(comm->mapping, has_left, comm->mapping, ranks),
                        openreg_group_text(comm->mapping, group));
}

static openreg_status wait_for_all(openreg_comm *comm, _Atomic uint32_t *count, int64_t deadline_ns,
                                   uint64_t timeout_ns) {
  struct gathering gathering = {.comm = comm, .count = count};
  while (!have_all_arrived(&gathering)) {
    if (openreg_mapping_is_aborted(comm->mapping))
      return openreg_comm_fail_aborted(comm);
    int64_t now_ns = openreg_now_ns();
    /* Counted before the ranks that have arrived: a rank that leaves after the last one has arrived
     * does not disturb. */
    bool has_departure = atomic_load(&comm->shm->left_count) > 0;
    if (has_departure && have_all_arrived(&gathering))
      break;
    if (has_departure)
      abort_for_departure(comm);
    else if (now_ns >= deadline_ns)
      abort_for_timeout(comm, timeout_ns);
    else
      abort_if_rank_died(comm);
    int64_t next_ns =
        now_ns + POLL_INTERVAL_NS < deadline_ns ? now_ns + POLL_INTERVAL_NS : deadline_ns;
    openreg_doorbell_wait(&comm->shm->bell, 0, next_ns, is_gathering_over, &gathering);
  }
  return OPENREG_OK;
}

/* ---- when all have joined -------------------------------------------------------------------- */

static bool share_device(const openreg_comm *comm, int one, int other) {
  const struct openreg_member *members = comm->shm->members;
  return memcmp(members[one].uuid, members[other].uuid, OPENREG_UUID_BYTES) == 0;
}

/* All ranks find the same pair, so all report the same message. */
static void check_devices(openreg_comm *comm) {
  for (int other = 1; other < comm->size; other++)
    for (int one = 0; one < other; one++) {
      if (!share_device(comm, one, other))
        continue;
      char name[OPENREG_RANK_TEXT_BYTES], second[OPENREG_RANK_TEXT_BYTES];
      char group[OPENREG_GROUP_TEXT_BYTES];
      openreg_mapping_abort(
          comm->mapping,
          "openreg: %s and %s%s have the same device: give each rank its own device, or set "
          "OPENREG_SHARE_DEVICE=1",
          openreg_rank_text(comm->mapping, one, name),
          openreg_rank_text(comm->mapping, other, second),
          openreg_group_text(comm->mapping, group));
      return;
    }
}

static openreg_status map_arenas(openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++) {
    openreg_status status =
        openreg_ipc_open_arena(&comm->shm->members[rank].arena, &comm->arenas[rank]);
    if (status == OPENREG_OK)
      continue;
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_mapping_abort(comm->mapping, "openreg: %s%s could not map the memory of another rank",
                          openreg_rank_text(comm->mapping, comm->rank, name),
                          openreg_group_text(comm->mapping, group));
    return status;
  }
  return OPENREG_OK;
}

static openreg_status watch(openreg_comm *comm) {
  openreg_status status = openreg_mappings_lock();
  if (status != OPENREG_OK)
    return status;
  status = openreg_watchdog_add_locked(comm->mapping);
  openreg_mappings_unlock();
  return status;
}

/* What each rank does after all have joined. */
static openreg_status prepare(openreg_comm *comm, const openreg_comm_options *options) {
  if (!options->share_device)
    check_devices(comm);
  if (openreg_mapping_is_aborted(comm->mapping))
    return openreg_comm_fail_aborted(comm);
  openreg_status status = map_arenas(comm);
  if (status == OPENREG_OK)
    status = watch(comm);
  if (status != OPENREG_OK)
    return status;
  atomic_fetch_add(&comm->shm->mapped_count, 1);
  openreg_mapping_wake_all(comm->mapping);
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
  struct openreg_comm_shm *shm = joined->shm;
  status = wait_for_all(joined, &shm->joined_count, deadline_ns, options->timeout_ns);
  if (status == OPENREG_OK) {
    openreg_comm_id_drop(id);
    status = prepare(joined, options);
  }
  if (status == OPENREG_OK)
    status = wait_for_all(joined, &shm->mapped_count, deadline_ns, options->timeout_ns);
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

openreg_status openreg_comm_require_usable(const openreg_comm *comm) {
  if (openreg_in_bad_fork())
    return openreg_fail(
        OPENREG_BAD_FORK,
        "openreg: a communicator cannot be used in a forked child; create it after the "
        "fork or use spawn");
  if (!openreg_mapping_is_aborted(comm->mapping))
    return OPENREG_OK;
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "%s",
                      openreg_mapping_abort_message(comm->mapping));
}

openreg_status openreg_comm_check(const openreg_comm *comm) {
  return openreg_comm_require_usable(comm);
}

void openreg_comm_abort(openreg_comm *comm, const char *why) {
  if (openreg_in_bad_fork())
    return;
  char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  openreg_group_text(comm->mapping, group);
  openreg_mapping_abort(comm->mapping, "openreg: %s%s aborted the group%s%s",
                        openreg_rank_text(comm->mapping, comm->rank, name), group,
                        why == NULL ? "" : ": ", why == NULL ? "" : why);
}

void openreg_comm_destroy(openreg_comm *comm) {
  if (comm == NULL)
    return;
  openreg_mapping_release_rank(comm->mapping, comm->rank);
  openreg_mapping_put(comm->mapping);
  free_comm(comm);
}
