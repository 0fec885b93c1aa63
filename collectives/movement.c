/* movement.c: the data of a collective, when all have published where theirs is.
 *
 * Inputs are in slots or in arenas; it makes no difference to who reads them. When they are small,
 * each rank computes all of its output. When they are large, what all want is computed once: rank i
 * reduces slice i and writes it into the outputs of all. All else is read by who wants it. Each
 * begins with the rank behind itself, so that not all read from one.
 */
#include "collectives/comm.h"

#include <string.h>

#include "collectives/reduction.h"

static bool has_ended(const void *context) {
  const openreg_comm *comm = context;
  return openreg_attachment_has_ended(comm->attachment);
}

/* ---- where things are ------------------------------------------------------------------------ */

static const struct openreg_published *published_by(const openreg_comm *comm, int rank) {
  return openreg_segment_call(comm->segment, rank, comm->call.number);
}

static const void *locate(const openreg_comm *comm, int rank, uint64_t offset) {
  if (published_by(comm, rank)->is_direct)
    return openreg_comm_memory(comm, rank, offset);
  return openreg_segment_slot(comm->segment, rank, comm->call.number) + offset;
}

/* The one input of a rank, and its part for another. */
static const void *input_of(const openreg_comm *comm, int rank) {
  return locate(comm, rank, published_by(comm, rank)->input_offset);
}

static const void *part_for(const openreg_comm *comm, int rank, int destination) {
  const struct openreg_published_part *parts =
      openreg_segment_parts(comm->segment, rank, comm->call.number);
  return locate(comm, rank, parts[destination].input_offset);
}

static openreg_part output_part(const openreg_comm *comm, int rank) {
  const openreg_collective *what = &comm->call.what;
  return openreg_part_of(what->outputs, what->output_count, comm->size, what->dtype, rank);
}

static void *output(const openreg_comm *comm) {
  return openreg_kernel_view(comm->call.what.outputs[0].address);
}

/* ---- reducing -------------------------------------------------------------------------------- */

/* What a rank reduces: `count` elements from `first` on. */
struct share {
  size_t first, count;
};

/* Slices begin and end at lines of the cache. */
static struct share slice_of(const openreg_comm *comm, size_t count) {
  size_t per_line = OPENREG_LINE / openreg_dtype_bytes(comm->call.what.dtype);
  size_t slice = (count + (size_t)comm->size - 1) / (size_t)comm->size;
  slice = (slice + per_line - 1) / per_line * per_line;
  size_t first = (size_t)comm->rank * slice;
  if (first >= count)
    return (struct share){0, 0};
  return (struct share){first, count - first < slice ? count - first : slice};
}

static bool reduce_all(const openreg_comm *comm, const void *const sources[], int destination_count,
                       void *const destinations[], size_t count) {
  double factors[OPENREG_MAX_RANKS];
  if (count == 0)
    return true;
  for (int rank = 0; rank < comm->size; rank++)
    factors[rank] = published_by(comm, rank)->factor;
  openreg_reduction_job job = {
      .reduction = comm->call.what.reduction,
      .dtype = comm->call.what.dtype,
      .source_count = comm->size,
      .destination_count = destination_count,
      .sources = sources,
      .destinations = destinations,
      .factors = comm->call.what.reduction == OPENREG_REDUCE_PREMUL_SUM ? factors : NULL,
      .count = count,
  };
  return openreg_reduce(&job, comm->call.is_direct ? has_ended : NULL, comm);
}

/* The outputs that get a slice: of the root alone, or of all. */
static int list_outputs(const openreg_comm *comm, size_t first_byte, void *destinations[]) {
  bool to_root = comm->call.what.kind == OPENREG_COLLECTIVE_REDUCE;
  int count = to_root ? 1 : comm->size;
  for (int i = 0; i < count; i++) {
    int rank = to_root ? comm->call.what.root : i;
    destinations[i] =
        openreg_comm_memory(comm, rank, published_by(comm, rank)->output_offset + first_byte);
  }
  return count;
}

static bool move_reduced(const openreg_comm *comm) {
  const openreg_collective *what = &comm->call.what;
  const void *sources[OPENREG_MAX_RANKS];
  void *destinations[OPENREG_MAX_RANKS];
  struct share share = {0, what->inputs[0].count};
  int destination_count = 1;
  if (comm->call.is_direct) {
    share = slice_of(comm, share.count);
    destination_count =
        list_outputs(comm, share.first * openreg_dtype_bytes(what->dtype), destinations);
  } else if (what->output_count > 0) {
    destinations[0] = output(comm);
  } else {
    return true;
  }
  for (int rank = 0; rank < comm->size; rank++)
    sources[rank] = (const unsigned char *)input_of(comm, rank) +
                    share.first * openreg_dtype_bytes(what->dtype);
  return reduce_all(comm, sources, destination_count, destinations, share.count);
}

static bool move_reduce_scatter(const openreg_comm *comm) {
  const void *sources[OPENREG_MAX_RANKS];
  void *destinations[] = {output(comm)};
  for (int rank = 0; rank < comm->size; rank++)
    sources[rank] = part_for(comm, rank, comm->rank);
  return reduce_all(comm, sources, 1, destinations, comm->call.what.outputs[0].count);
}

/* ---- copying --------------------------------------------------------------------------------- */

/* From slots a rank has all that it needs, whatever happened to the others since. */
static bool copy_elements(const openreg_comm *comm, const openreg_part *to, const void *from) {
  size_t bytes = to->count * openreg_dtype_bytes(comm->call.what.dtype);
  if (bytes == 0)
    return true;
  void *destination = openreg_kernel_view(to->address);
  if (comm->call.is_direct)
    return openreg_copy_tiles(comm, destination, from, bytes);
  if (destination != from)
    memcpy(destination, from, bytes);
  return true;
}

static bool move_from_root(const openreg_comm *comm) {
  const openreg_collective *what = &comm->call.what;
  if (what->output_count == 0)
    return true;
  if (what->kind == OPENREG_COLLECTIVE_SCATTER)
    return copy_elements(comm, &what->outputs[0], part_for(comm, what->root, comm->rank));
  const void *source = comm->rank == what->root ? openreg_kernel_view(what->inputs[0].address)
                                                : input_of(comm, what->root);
  return copy_elements(comm, &what->outputs[0], source);
}

static bool move_from_all(const openreg_comm *comm) {
  if (comm->call.what.output_count == 0)
    return true;
  bool is_exchange = comm->call.what.kind == OPENREG_COLLECTIVE_ALL_TO_ALL;
  for (int i = 1; i <= comm->size; i++) {
    int rank = (comm->rank + i) % comm->size;
    openreg_part to = output_part(comm, rank);
    if (!copy_elements(comm, &to,
                       is_exchange ? part_for(comm, rank, comm->rank) : input_of(comm, rank)))
      return false;
  }
  return true;
}

static bool move(const openreg_comm *comm) {
  switch (comm->call.what.kind) {
  case OPENREG_COLLECTIVE_ALL_REDUCE:
  case OPENREG_COLLECTIVE_REDUCE:
    return move_reduced(comm);
  case OPENREG_COLLECTIVE_REDUCE_SCATTER:
    return move_reduce_scatter(comm);
  case OPENREG_COLLECTIVE_BROADCAST:
  case OPENREG_COLLECTIVE_SCATTER:
    return move_from_root(comm);
  case OPENREG_COLLECTIVE_ALL_GATHER:
  case OPENREG_COLLECTIVE_GATHER:
  case OPENREG_COLLECTIVE_ALL_TO_ALL:
    return move_from_all(comm);
  default:
    return true;
  }
}

static bool is_any_direct(const openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++)
    if (published_by(comm, rank)->is_direct)
      return true;
  return false;
}

bool openreg_call_move(openreg_comm *comm) {
  comm->call.is_direct = is_any_direct(comm);
  if (!comm->call.is_direct)
    return move(comm);
  if (!openreg_moving_begin(comm))
    return false;
  bool is_done = move(comm);
  openreg_moving_end(comm);
  return is_done;
}
