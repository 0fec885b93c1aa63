/* barrier.c: waiting until all ranks have arrived, and giving up when the communicator is aborted.
 *
 * A waiting rank checks first whether it has what it waits for, and only then for reasons to give
 * up: a call that has all it needs succeeds. A rank that gives up waits until no transfer is
 * active. A rank that transfers data first marks that it does and then checks for an abort; a rank
 * that aborts first marks that and then checks for transfers. All of these are sequentially
 * consistent, so at least one of the two ranks sees the other.
 */
#include "collectives/comm.h"

#include "base/futex.h"

#include "collectives/error_text.h"

/* ---- transfers ------------------------------------------------------------------------------- */

bool openreg_transfer_begin(openreg_comm *comm) {
  atomic_fetch_add(&comm->shm->members[comm->rank].active_transfers, 1);
  if (!openreg_mapping_is_aborted(comm->mapping))
    return true;
  openreg_transfer_end(comm);
  return false;
}

void openreg_transfer_end(openreg_comm *comm) {
  atomic_fetch_sub(&comm->shm->members[comm->rank].active_transfers, 1);
  if (openreg_mapping_is_aborted(comm->mapping))
    openreg_doorbell_ring(&comm->shm->bell);
}

static bool no_other_transfers(void *context) {
  const openreg_comm *comm = context;
  for (int rank = 0; rank < comm->size; rank++)
    if (rank != comm->rank && atomic_load(&comm->shm->members[rank].active_transfers) > 0)
      return false;
  return true;
}

openreg_status openreg_comm_fail_aborted(openreg_comm *comm) {
  enum { MAX_WAIT_NS = 1000000000 }; /* a rank's process may be stopped during a transfer */
  openreg_doorbell_wait(&comm->shm->bell, 0, openreg_deadline_ns(MAX_WAIT_NS), no_other_transfers,
                        comm);
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "%s",
                      openreg_mapping_abort_message(comm->mapping));
}

openreg_status openreg_comm_fail_left(openreg_comm *comm, int rank) {
  char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: %s%s has left",
                      openreg_rank_text(comm->mapping, rank, name),
                      openreg_group_text(comm->mapping, group));
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void openreg_barrier_arrive(openreg_comm *comm) {
  struct openreg_comm_shm *shm = comm->shm;
  uint64_t round = ++comm->round;
  atomic_store(&shm->members[comm->rank].arrived_round, round);
  if (atomic_fetch_add(&shm->arrivals, 1) + 1 == round * (uint64_t)comm->size)
    openreg_doorbell_ring(&shm->bell);
}

/* Reads the counter that every member has changed. The thread sanitizer sees only its own process,
 * and would not see an order that another process passed on. */
static bool is_complete(const openreg_comm *comm) {
  return atomic_load(&comm->shm->arrivals) >= comm->round * (uint64_t)comm->size;
}

static bool has_arrived(const openreg_comm *comm, int rank) {
  return atomic_load(&comm->shm->members[rank].arrived_round) >= comm->round;
}

/* A rank that left without arriving in this round; -1: none. */
static int find_left(const openreg_comm *comm) {
  if (atomic_load(&comm->shm->left_count) == 0)
    return -1;
  for (int rank = 0; rank < comm->size; rank++)
    if (openreg_mapping_member_state(comm->mapping, rank) == OPENREG_MEMBER_LEFT &&
        !has_arrived(comm, rank))
      return rank;
  return -1;
}

static bool should_wake(void *context) {
  const openreg_comm *comm = context;
  return is_complete(comm) || openreg_mapping_is_aborted(comm->mapping) || find_left(comm) >= 0;
}

static bool is_missing(const void *context, int rank) {
  return !has_arrived(context, rank);
}

static void abort_for_timeout(openreg_comm *comm) {
  const struct openreg_call *call = &comm->call;
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  char what[OPENREG_CALL_TEXT_BYTES], time[OPENREG_TIME_TEXT_BYTES];
  openreg_mapping_abort(comm->mapping, "openreg: %s did not %s %s%s within %s",
                        openreg_ranks_text(comm->mapping, is_missing, comm, ranks),
                        call->has_moved ? "finish" : "reach",
                        openreg_call_text(comm->mapping, &call->signature, call->number, what),
                        openreg_group_text(comm->mapping, group),
                        openreg_time_text(call->collective.timeout_ns, time));
}

/* In the first round no data has moved: only this rank's collectives end. In the second round
 * others may be writing, to this rank's memory too, so the communicator is aborted. */
static openreg_status give_up_on(openreg_comm *comm, int left_rank) {
  if (comm->call.has_moved) {
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_mapping_abort(comm->mapping, "openreg: %s%s has left during a collective",
                          openreg_rank_text(comm->mapping, left_rank, name),
                          openreg_group_text(comm->mapping, group));
    return openreg_comm_fail_aborted(comm);
  }
  comm->left_rank = left_rank;
  return openreg_comm_fail_left(comm, left_rank);
}

openreg_status openreg_barrier_wait(openreg_comm *comm, uint64_t patience_ns) {
  int64_t deadline_ns = comm->call.deadline_ns;
  bool is_patient = patience_ns == UINT64_MAX;
  if (!is_patient) {
    int64_t patience_end_ns = openreg_deadline_ns(patience_ns);
    if (patience_end_ns < deadline_ns)
      deadline_ns = patience_end_ns;
    else
      is_patient = true;
  }
  int spins = patience_ns == 0 ? 0 : comm->mapping->spins;
  bool is_seen = openreg_doorbell_wait(&comm->shm->bell, spins, deadline_ns, should_wake, comm);
  if (is_complete(comm))
    return OPENREG_OK;
  if (!is_seen && !is_patient)
    return OPENREG_NOT_READY;
  if (!is_seen)
    abort_for_timeout(comm);
  if (openreg_mapping_is_aborted(comm->mapping))
    return openreg_comm_fail_aborted(comm);
  return give_up_on(comm, find_left(comm));
}
