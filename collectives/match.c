/* match.c: checks that all ranks call the same collective with lengths that fit together.
 *
 * Each rank compares all ranks with rank 0, so all ranks report the same two that differ. Where
 * lengths must agree pairwise, each rank also compares what it sends and receives with what the
 * others receive and send.
 */
#include "collectives/comm.h"

#include <inttypes.h>

#include "collectives/error_text.h"

static const struct openreg_published_call *published_by(const openreg_comm *comm, int rank) {
  return openreg_comm_shm_call(comm->shm, rank, comm->call.number);
}

/* The chunk for `rank`, or from it, that `source` published. */
static const struct openreg_published_chunk *chunk_of(const openreg_comm *comm, int source,
                                                      int rank) {
  return &openreg_comm_shm_chunks(comm->shm, source, comm->call.number)[rank];
}

static bool is_same(const struct openreg_signature *one, const struct openreg_signature *other) {
  return one->kind == other->kind && one->dtype == other->dtype &&
         one->reduction == other->reduction && one->root == other->root &&
         one->layout == other->layout;
}

static void abort_for_mismatch(openreg_comm *comm, int rank) {
  openreg_segment_mapping *mapping = comm->mapping;
  const struct openreg_signature *first = &published_by(comm, 0)->signature;
  const struct openreg_signature *other = &published_by(comm, rank)->signature;
  char one_name[OPENREG_RANK_TEXT_BYTES], other_name[OPENREG_RANK_TEXT_BYTES];
  char one[OPENREG_CALL_TEXT_BYTES], two[OPENREG_CALL_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  bool only_lengths_differ = first->kind == other->kind && first->elements == other->elements &&
                             first->layout != other->layout && first->dtype == other->dtype;
  openreg_mapping_abort(
      mapping, "openreg: %s called %s%s, %s called %s%s", openreg_rank_text(mapping, 0, one_name),
      openreg_call_text(mapping, first, comm->call.number, one), openreg_group_text(mapping, group),
      openreg_rank_text(mapping, rank, other_name),
      openreg_call_text(mapping, other, comm->call.number, two),
      only_lengths_differ ? ": the lengths for each rank differ" : "");
}

static bool fits(openreg_comm *comm, int source, int destination, uint64_t sent,
                 uint64_t received) {
  if (sent == received)
    return true;
  openreg_segment_mapping *mapping = comm->mapping;
  const struct openreg_signature *signature = &comm->call.signature;
  char one[OPENREG_RANK_TEXT_BYTES], other[OPENREG_RANK_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  openreg_mapping_abort(mapping,
                        "openreg: in %s #%" PRIu64 "%s %s sends %" PRIu64
                        " elements of %s to %s, which expects %" PRIu64,
                        openreg_collective_name((openreg_collective_kind)signature->kind),
                        comm->call.number, openreg_group_text(mapping, group),
                        openreg_rank_text(mapping, source, one), sent,
                        openreg_dtype_name((openreg_dtype)signature->dtype),
                        openreg_rank_text(mapping, destination, other), received);
  return false;
}

static bool gathered_fits(openreg_comm *comm, int rank) {
  int root = comm->call.collective.root;
  return fits(comm, rank, root, published_by(comm, rank)->signature.elements,
              chunk_of(comm, root, rank)->output_count);
}

static bool scattered_fits(openreg_comm *comm, int rank) {
  int root = comm->call.collective.root;
  return fits(comm, root, rank, chunk_of(comm, root, rank)->input_count,
              published_by(comm, rank)->signature.elements);
}

static bool exchanged_fits(openreg_comm *comm, int rank) {
  int self = comm->rank;
  return fits(comm, rank, self, chunk_of(comm, rank, self)->input_count,
              chunk_of(comm, self, rank)->output_count) &&
         fits(comm, self, rank, chunk_of(comm, self, rank)->input_count,
              chunk_of(comm, rank, self)->output_count);
}

/* For collectives whose lengths must agree pairwise. */
static bool pairs_fit(openreg_comm *comm) {
  const openreg_collective_traits *traits = comm->call.traits;
  if (traits->lengths != OPENREG_LENGTHS_PAIRWISE)
    return true;
  bool (*fits_with)(openreg_comm *, int) = exchanged_fits;
  if (traits->outputs == OPENREG_BUFFERS_PER_RANK_AT_ROOT)
    fits_with = gathered_fits;
  else if (traits->inputs == OPENREG_BUFFERS_PER_RANK_AT_ROOT)
    fits_with = scattered_fits;
  for (int rank = 0; rank < comm->size; rank++)
    if (!fits_with(comm, rank))
      return false;
  return true;
}

bool openreg_calls_match(openreg_comm *comm) {
  const struct openreg_signature *first = &published_by(comm, 0)->signature;
  for (int rank = 1; rank < comm->size; rank++) {
    if (is_same(first, &published_by(comm, rank)->signature))
      continue;
    abort_for_mismatch(comm, rank);
    return false;
  }
  return pairs_fit(comm);
}
