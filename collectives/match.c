/* match.c: whether all ranks ask for the same. Each compares all with rank 0, so all find the same
 * two that differ; and what it gives and takes with what the others take and give. */
#include "collectives/comm.h"

#include <inttypes.h>

#include "collectives/error_text.h"

static const struct openreg_published *published_by(const openreg_comm *comm, int rank) {
  return openreg_segment_call(comm->segment, rank, comm->call.number);
}

/* What `source` published of its part for or from `rank`. */
static const struct openreg_published_part *part_of(const openreg_comm *comm, int source,
                                                    int rank) {
  return &openreg_segment_parts(comm->segment, source, comm->call.number)[rank];
}

static bool is_same(const struct openreg_signature *one, const struct openreg_signature *other) {
  return one->kind == other->kind && one->dtype == other->dtype &&
         one->reduction == other->reduction && one->root == other->root &&
         one->layout == other->layout;
}

static void end_different(openreg_comm *comm, int rank) {
  openreg_attachment *attachment = comm->attachment;
  const struct openreg_signature *first = &published_by(comm, 0)->signature;
  const struct openreg_signature *other = &published_by(comm, rank)->signature;
  char one_name[OPENREG_RANK_TEXT_BYTES], other_name[OPENREG_RANK_TEXT_BYTES];
  char one[OPENREG_CALL_TEXT_BYTES], two[OPENREG_CALL_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  bool parts_differ = first->kind == other->kind && first->elements == other->elements &&
                      first->layout != other->layout && first->dtype == other->dtype;
  openreg_attachment_end(attachment, "openreg: %s called %s%s, %s called %s%s",
                         openreg_rank_text(attachment, 0, one_name),
                         openreg_call_text(attachment, first, comm->call.number, one),
                         openreg_group_text(attachment, group),
                         openreg_rank_text(attachment, rank, other_name),
                         openreg_call_text(attachment, other, comm->call.number, two),
                         parts_differ ? ": their parts are of other lengths" : "");
}

static bool fits(openreg_comm *comm, int source, int destination, uint64_t given, uint64_t taken) {
  if (given == taken)
    return true;
  openreg_attachment *attachment = comm->attachment;
  const struct openreg_signature *signature = &comm->call.signature;
  char one[OPENREG_RANK_TEXT_BYTES], other[OPENREG_RANK_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  openreg_attachment_end(attachment,
                         "openreg: in %s #%" PRIu64 "%s %s gives %" PRIu64
                         " elements of %s to %s, which takes %" PRIu64,
                         openreg_collective_name((openreg_collective_kind)signature->kind),
                         comm->call.number, openreg_group_text(attachment, group),
                         openreg_rank_text(attachment, source, one), given,
                         openreg_dtype_name((openreg_dtype)signature->dtype),
                         openreg_rank_text(attachment, destination, other), taken);
  return false;
}

static bool gathered_fits(openreg_comm *comm, int rank) {
  int root = comm->call.what.root;
  return fits(comm, rank, root, published_by(comm, rank)->signature.elements,
              part_of(comm, root, rank)->output_count);
}

static bool scattered_fits(openreg_comm *comm, int rank) {
  int root = comm->call.what.root;
  return fits(comm, root, rank, part_of(comm, root, rank)->input_count,
              published_by(comm, rank)->signature.elements);
}

static bool exchanged_fits(openreg_comm *comm, int rank) {
  int self = comm->rank;
  return fits(comm, rank, self, part_of(comm, rank, self)->input_count,
              part_of(comm, self, rank)->output_count) &&
         fits(comm, self, rank, part_of(comm, self, rank)->input_count,
              part_of(comm, rank, self)->output_count);
}

/* Of kinds where pairs agree by themselves. */
static bool pairs_fit(openreg_comm *comm) {
  bool (*fits_with)(openreg_comm *, int) = NULL;
  switch (comm->call.what.kind) {
  case OPENREG_COLLECTIVE_GATHER:
    fits_with = gathered_fits;
    break;
  case OPENREG_COLLECTIVE_SCATTER:
    fits_with = scattered_fits;
    break;
  case OPENREG_COLLECTIVE_ALL_TO_ALL:
    fits_with = exchanged_fits;
    break;
  default:
    return true;
  }
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
    end_different(comm, rank);
    return false;
  }
  return pairs_fit(comm);
}
