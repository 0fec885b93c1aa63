/* movement.c: moves the data of a collective, after all ranks have published their calls.
 *
 * Inputs are in the control segment (small ones, copied) or in arenas; readers treat both alike.
 * For small inputs each rank computes its whole output. For large inputs a result that all ranks
 * want is computed once: rank i reduces slice i and writes it to the outputs of all ranks. In every
 * other case the rank that wants data reads it. Each rank begins with the rank after itself, so
 * that not all ranks read from the same one.
 */
#include "collectives/comm.h"

#include <string.h>

#include "collectives/reduction.h"

static bool is_aborted(const void *context) {
  const openreg_comm *comm = context;
  return openreg_mapping_is_aborted(comm->mapping);
}

/* ---- locating inputs and outputs ------------------------------------------------------------- */

static const struct openreg_published_call *published_by(const openreg_comm *comm, int rank) {
  return openreg_comm_shm_call(comm->shm, rank, comm->call.number);
}

static const void *locate(const openreg_comm *comm, int rank, uint64_t offset) {
  if (published_by(comm, rank)->is_direct)
    return openreg_comm_memory(comm, rank, offset);
  return openreg_comm_shm_inline_input(comm->shm, rank, comm->call.number) + offset;
}

/* The only input of a rank. */
static const void *input_of(const openreg_comm *comm, int rank) {
  return locate(comm, rank, published_by(comm, rank)->input_offset);
}

/* The chunk of a rank's inputs that is for `destination`. */
static const void *chunk_for(const openreg_comm *comm, int rank, int destination) {
  const struct openreg_published_chunk *chunks =
      openreg_comm_shm_chunks(comm->shm, rank, comm->call.number);
  return locate(comm, rank, chunks[destination].input_offset);
}

static void *output(const openreg_comm *comm) {
  return openreg_kernel_view(comm->call.outputs.buffers[0].address);
}

/* ---- reducing -------------------------------------------------------------------------------- */

/* The elements that a rank reduces. */
struct slice {
  size_t first, count;
};

/* Slices begin at multiples of a cache line. */
static struct slice slice_of(const openreg_comm *comm, size_t count) {
  size_t per_line = OPENREG_CACHE_LINE_BYTES / comm->call.element_bytes;
  size_t slice = (count + (size_t)comm->size - 1) / (size_t)comm->size;
  slice = (slice + per_line - 1) / per_line * per_line;
  size_t first = (size_t)comm->rank * slice;
  if (first >= count)
    return (struct slice){0, 0};
  return (struct slice){first, count - first < slice ? count - first : slice};
}

static bool reduce_all(const openreg_comm *comm, const void *const sources[], int destination_count,
                       void *const destinations[], size_t count) {
  double factors[OPENREG_MAX_RANKS];
  if (count == 0)
    return true;
  for (int rank = 0; rank < comm->size; rank++)
    factors[rank] = published_by(comm, rank)->factor;
  openreg_reduction_job job = {
      .reduction = comm->call.collective.reduction,
      .dtype = comm->call.collective.dtype,
      .source_count = comm->size,
      .destination_count = destination_count,
      .sources = sources,
      .destinations = destinations,
      .factors = comm->call.collective.reduction == OPENREG_REDUCE_PREMUL_SUM ? factors : NULL,
      .count = count,
  };
  return openreg_reduce(&job, comm->call.is_direct ? is_aborted : NULL, comm);
}

/* Lists the addresses of the outputs that receive a slice: the root's alone, or those of all ranks.
 * Returns their number. */
static int list_outputs(const openreg_comm *comm, size_t first_byte, void *destinations[]) {
  bool to_root = comm->call.traits->outputs == OPENREG_BUFFERS_ONE_AT_ROOT;
  int count = to_root ? 1 : comm->size;
  for (int i = 0; i < count; i++) {
    int rank = to_root ? comm->call.collective.root : i;
    destinations[i] =
        openreg_comm_memory(comm, rank, published_by(comm, rank)->output_offset + first_byte);
  }
  return count;
}

static bool move_reduced(const openreg_comm *comm) {
  const struct openreg_call *call = &comm->call;
  const void *sources[OPENREG_MAX_RANKS];
  void *destinations[OPENREG_MAX_RANKS];
  struct slice slice = {0, call->inputs.buffers[0].count};
  int destination_count = 1;
  if (call->is_direct) {
    slice = slice_of(comm, slice.count);
    destination_count = list_outputs(comm, slice.first * call->element_bytes, destinations);
  } else if (call->outputs.count > 0) {
    destinations[0] = output(comm);
  } else {
    return true;
  }
  for (int rank = 0; rank < comm->size; rank++)
    sources[rank] = (const unsigned char *)input_of(comm, rank) + slice.first * call->element_bytes;
  return reduce_all(comm, sources, destination_count, destinations, slice.count);
}

static bool move_reduced_chunk(const openreg_comm *comm) {
  const void *sources[OPENREG_MAX_RANKS];
  void *destinations[] = {output(comm)};
  for (int rank = 0; rank < comm->size; rank++)
    sources[rank] = chunk_for(comm, rank, comm->rank);
  return reduce_all(comm, sources, 1, destinations, comm->call.outputs.buffers[0].count);
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Copied inputs stay valid whatever happens to the other ranks, so that case ignores aborts. */
static bool copy_elements(const openreg_comm *comm, const openreg_comm_buffer *to,
                          const void *from) {
  size_t bytes = to->count * comm->call.element_bytes;
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
  const struct openreg_call *call = &comm->call;
  int root = call->collective.root;
  if (call->outputs.count == 0)
    return true;
  const void *source;
  if (openreg_buffers_are_per_rank(call->traits->inputs))
    source = chunk_for(comm, root, comm->rank);
  else if (comm->rank == root)
    source = openreg_kernel_view(call->inputs.buffers[0].address);
  else
    source = input_of(comm, root);
  return copy_elements(comm, &call->outputs.buffers[0], source);
}

static bool move_from_all(const openreg_comm *comm) {
  const struct openreg_call *call = &comm->call;
  if (call->outputs.count == 0)
    return true;
  bool has_chunks = openreg_buffers_are_per_rank(call->traits->inputs);
  for (int i = 1; i <= comm->size; i++) {
    int rank = (comm->rank + i) % comm->size;
    openreg_comm_buffer to = openreg_chunk_of(call, &call->outputs, rank);
    if (!copy_elements(comm, &to,
                       has_chunks ? chunk_for(comm, rank, comm->rank) : input_of(comm, rank)))
      return false;
  }
  return true;
}

static bool move_nothing(const openreg_comm *comm) {
  (void)comm;
  return true;
}

static bool move(const openreg_comm *comm) {
  static bool (*const functions[])(const openreg_comm *) = {
#define X(name, text, inputs, outputs, lengths, flags, move)                                       \
  [OPENREG_COLLECTIVE_##name] = move_##move,
      OPENREG_COLLECTIVE_LIST(X)
#undef X
  };
  return functions[comm->call.collective.kind](comm);
}

static bool is_any_direct(const openreg_comm *comm) {
  for (int rank = 0; rank < comm->size; rank++)
    if (published_by(comm, rank)->is_direct)
      return true;
  return false;
}

bool openreg_call_move_data(openreg_comm *comm) {
  comm->call.is_direct = is_any_direct(comm);
  if (!comm->call.is_direct)
    return move(comm);
  if (comm->call.collective.only_checks)
    return true;
  if (!openreg_transfer_begin(comm))
    return false;
  bool is_done = move(comm);
  openreg_transfer_end(comm);
  return is_done;
}
