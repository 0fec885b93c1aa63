/* phase.c: all ranks waiting for each other, and the end of a communicator for who waits.
 *
 * Who waits looks first for what it waits for, and then for reasons to give up: what had all that
 * it needs succeeds. Who gives up waits until nobody moves data any more. A mover says that it
 * moves and then looks whether the communicator was ended; who ends it does so and then looks who
 * moves; in one order for all, so at least one of the two sees the other.
 */
#include "collectives/comm.h"

#include "base/futex.h"

#include "collectives/error_text.h"

/* ---- moving ---------------------------------------------------------------------------------- */

bool openreg_moving_begin(openreg_comm *comm) {
  atomic_fetch_add(&comm->segment->members[comm->rank].moving, 1);
  if (!openreg_attachment_has_ended(comm->attachment))
    return true;
  openreg_moving_end(comm);
  return false;
}

void openreg_moving_end(openreg_comm *comm) {
  atomic_fetch_sub(&comm->segment->members[comm->rank].moving, 1);
  if (openreg_attachment_has_ended(comm->attachment))
    openreg_doorbell_ring(&comm->segment->bell);
}

static bool is_quiet(void *context) {
  const openreg_comm *comm = context;
  for (int rank = 0; rank < comm->size; rank++)
    if (rank != comm->rank && atomic_load(&comm->segment->members[rank].moving) > 0)
      return false;
  return true;
}

openreg_status openreg_comm_fail(openreg_comm *comm) {
  enum { LONGEST_NS = 1000000000 }; /* for a process that is stopped */
  openreg_doorbell_await(&comm->segment->bell, 0, openreg_deadline_ns(LONGEST_NS), is_quiet, comm);
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "%s",
                      openreg_attachment_sentence(comm->attachment));
}

openreg_status openreg_comm_fail_left(openreg_comm *comm, int rank) {
  char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  return openreg_fail(OPENREG_COMMUNICATION_FAILURE, "openreg: %s%s has left",
                      openreg_rank_text(comm->attachment, rank, name),
                      openreg_group_text(comm->attachment, group));
}

/* ---- phases ---------------------------------------------------------------------------------- */

void openreg_phase_arrive(openreg_comm *comm) {
  struct openreg_segment *segment = comm->segment;
  uint64_t phase = ++comm->phase;
  atomic_store(&segment->members[comm->rank].arrived, phase);
  if (atomic_fetch_add(&segment->arrivals, 1) + 1 < phase * (uint64_t)comm->size)
    return;
  atomic_store(&segment->phase, phase);
  openreg_doorbell_ring(&segment->bell);
}

static bool is_complete(const openreg_comm *comm) {
  return atomic_load(&comm->segment->phase) >= comm->phase;
}

static bool has_arrived(const openreg_comm *comm, int rank) {
  return atomic_load(&comm->segment->members[rank].arrived) >= comm->phase;
}

/* A rank that left without arriving; -1: none. */
static int find_left(const openreg_comm *comm) {
  if (atomic_load(&comm->segment->left) == 0)
    return -1;
  for (int rank = 0; rank < comm->size; rank++)
    if (openreg_attachment_state_of(comm->attachment, rank) == OPENREG_MEMBER_LEFT &&
        !has_arrived(comm, rank))
      return rank;
  return -1;
}

static bool is_over(void *context) {
  const openreg_comm *comm = context;
  return is_complete(comm) || openreg_attachment_has_ended(comm->attachment) ||
         find_left(comm) >= 0;
}

static bool is_missing(const void *context, int rank) {
  return !has_arrived(context, rank);
}

static void end_late(openreg_comm *comm) {
  const struct openreg_call *call = &comm->call;
  char ranks[OPENREG_RANKS_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
  char what[OPENREG_CALL_TEXT_BYTES], time[OPENREG_TIME_TEXT_BYTES];
  openreg_attachment_end(comm->attachment, "openreg: %s did not %s %s%s within %s",
                         openreg_ranks_text(comm->attachment, is_missing, comm, ranks),
                         call->has_moved ? "finish" : "come to",
                         openreg_call_text(comm->attachment, &call->signature, call->number, what),
                         openreg_group_text(comm->attachment, group),
                         openreg_time_text(call->what.timeout_ns, time));
}

/* In the first phase nobody has touched anything: only this rank's collectives are over. In the
 * second others may be moving, into this rank's memory too. */
static openreg_status give_up_on(openreg_comm *comm, int left_rank) {
  if (comm->call.has_moved) {
    char name[OPENREG_RANK_TEXT_BYTES], group[OPENREG_GROUP_TEXT_BYTES];
    openreg_attachment_end(comm->attachment, "openreg: %s%s has left in the middle of a collective",
                           openreg_rank_text(comm->attachment, left_rank, name),
                           openreg_group_text(comm->attachment, group));
    return openreg_comm_fail(comm);
  }
  comm->left_rank = left_rank;
  return openreg_comm_fail_left(comm, left_rank);
}

openreg_status openreg_phase_await(openreg_comm *comm, uint64_t patience_ns) {
  int64_t deadline_ns = comm->call.deadline_ns;
  bool is_patient = patience_ns == UINT64_MAX;
  if (!is_patient) {
    int64_t patience_end_ns = openreg_deadline_ns(patience_ns);
    if (patience_end_ns < deadline_ns)
      deadline_ns = patience_end_ns;
    else
      is_patient = true;
  }
  int looks = patience_ns == 0 ? 0 : comm->attachment->looks;
  bool is_seen = openreg_doorbell_await(&comm->segment->bell, looks, deadline_ns, is_over, comm);
  if (is_complete(comm))
    return OPENREG_OK;
  if (!is_seen && !is_patient)
    return OPENREG_NOT_READY;
  if (!is_seen)
    end_late(comm);
  if (openreg_attachment_has_ended(comm->attachment))
    return openreg_comm_fail(comm);
  return give_up_on(comm, find_left(comm));
}
