/* call.c: checks the arguments of a collective, publishes the call, and carries it to its end.
 *
 * A call that is rejected here does not reach the other ranks. Small inputs are copied into the
 * control segment when the call begins, so the call is finished after one barrier round. For larger
 * inputs the rank publishes their offsets, and a second round tells that all data was moved.
 */
#include "collectives/comm.h"

#include "base/futex.h"
#include "base/half.h"

#include <inttypes.h>
#include <string.h>

#include "collectives/error_text.h"

/* ---- the sides of a call --------------------------------------------------------------------- */

static bool is_root(const openreg_comm *comm, const openreg_collective *collective) {
  return comm->rank == collective->root;
}

/* How many buffers a side must have. One buffer that holds all chunks is also allowed. */
static int expected_buffers(const openreg_comm *comm, const openreg_collective *collective,
                            openreg_buffer_rule rule) {
  switch (rule) {
  case OPENREG_BUFFERS_ONE:
    return 1;
  case OPENREG_BUFFERS_PER_RANK:
    return comm->size;
  case OPENREG_BUFFERS_ONE_AT_ROOT:
    return is_root(comm, collective) ? 1 : 0;
  case OPENREG_BUFFERS_PER_RANK_AT_ROOT:
    return is_root(comm, collective) ? comm->size : 0;
  default:
    return 0;
  }
}

static struct openreg_call_side make_side(const openreg_comm *comm, openreg_buffer_rule rule,
                                          const openreg_comm_buffer *buffers, int count) {
  struct openreg_call_side side = {.buffers = buffers, .count = count};
  side.is_per_rank = openreg_buffers_are_per_rank(rule) && count > 0;
  side.is_split = side.is_per_rank && count == 1 && comm->size > 1;
  if (side.is_split)
    side.chunk_count = buffers[0].count / (size_t)comm->size;
  return side;
}

openreg_comm_buffer openreg_chunk_of(const struct openreg_call *call,
                                     const struct openreg_call_side *side, int rank) {
  if (!side->is_split)
    return side->buffers[rank];
  return (openreg_comm_buffer){
      .address = (unsigned char *)side->buffers[0].address +
                 (size_t)rank * side->chunk_count * call->element_bytes,
      .count = side->chunk_count,
  };
}

/* ---- checks ---------------------------------------------------------------------------------- */

openreg_status openreg_comm_check_buffer(const openreg_comm *comm,
                                         const openreg_comm_buffer *buffer, openreg_dtype dtype) {
  size_t element = openreg_dtype_bytes(dtype);
  if (buffer->count == 0)
    return OPENREG_OK;
  if (buffer->count > comm->arena_bytes / element)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: buffer of %zu elements exceeds the memory of device %d",
                        buffer->count, comm->device);
  uintptr_t begin = (uintptr_t)buffer->address, arena = (uintptr_t)comm->arena;
  if (begin < arena || begin - arena > comm->arena_bytes - buffer->count * element)
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: %p with %zu elements of %s is not memory of this process on "
                        "device %d",
                        buffer->address, buffer->count, openreg_dtype_name(dtype), comm->device);
  if (begin % element != 0)
    return openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not aligned for %s",
                        buffer->address, openreg_dtype_name(dtype));
  return OPENREG_OK;
}

static openreg_status check_side(const openreg_comm *comm, const struct openreg_call *call,
                                 const char *name, openreg_buffer_rule rule,
                                 const struct openreg_call_side *side) {
  const openreg_collective *collective = &call->collective;
  int expected = expected_buffers(comm, collective, rule);
  bool may_be_omitted =
      call->traits->is_root_output_optional && side == &call->outputs && is_root(comm, collective);
  bool is_whole = expected > 1 && side->count == 1;
  if (side->count != expected && !is_whole && !(side->count == 0 && may_be_omitted))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with %d %s on rank %d: expected %d",
                        call->traits->name, side->count, name, comm->rank, expected);
  if (is_whole && side->buffers[0].count % (size_t)expected != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: %s of %zu elements: expected a multiple of %d, the number of "
                        "ranks",
                        call->traits->name, side->buffers[0].count, expected);
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < side->count; i++)
    status = openreg_comm_check_buffer(comm, &side->buffers[i], collective->dtype);
  return status;
}

static size_t own_count(const openreg_comm *comm, const struct openreg_call *call,
                        const struct openreg_call_side *side) {
  return side->is_per_rank ? openreg_chunk_of(call, side, comm->rank).count
                           : side->buffers[0].count;
}

/* This rank's own input goes to its own output: both must have the same length. */
static openreg_status check_lengths(const openreg_comm *comm, const struct openreg_call *call) {
  if (call->inputs.count == 0 || call->outputs.count == 0)
    return OPENREG_OK;
  size_t in = own_count(comm, call, &call->inputs), out = own_count(comm, call, &call->outputs);
  if (in == out)
    return OPENREG_OK;
  return openreg_fail(
      OPENREG_INVALID_ARGUMENT,
      "openreg: %s on rank %d: the rank's own input has %zu elements and its output "
      "has %zu",
      call->traits->name, comm->rank, in, out);
}

static bool has_factor(const struct openreg_call *call) {
  return call->traits->reduces && call->collective.reduction == OPENREG_REDUCE_PREMUL_SUM;
}

static openreg_status check_kind(const openreg_comm *comm, const openreg_collective *collective) {
  if ((unsigned)collective->kind >= OPENREG_COLLECTIVE_COUNT ||
      (unsigned)collective->dtype >= OPENREG_DTYPE_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: unknown collective %d or dtype %d: expected 0 to %d, and 0 to %d",
                        (int)collective->kind, (int)collective->dtype, OPENREG_COLLECTIVE_COUNT - 1,
                        OPENREG_DTYPE_COUNT - 1);
  const openreg_collective_traits *traits = openreg_collective_traits_of(collective->kind);
  if (traits->has_root && (collective->root < 0 || collective->root >= comm->size))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with root %d: expected 0 to %d",
                        traits->name, collective->root, comm->size - 1);
  if (!traits->reduces)
    return OPENREG_OK;
  if ((unsigned)collective->reduction >= OPENREG_REDUCTION_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: unknown reduction %d: expected 0 to %d",
                        (int)collective->reduction, OPENREG_REDUCTION_COUNT - 1);
  if (!openreg_reduction_is_defined(collective->reduction, collective->dtype))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with %s of %s is not defined",
                        traits->name, openreg_reduction_name(collective->reduction),
                        openreg_dtype_name(collective->dtype));
  return OPENREG_OK;
}

static openreg_status check(const openreg_comm *comm, const struct openreg_call *call) {
  const openreg_collective *collective = &call->collective;
  openreg_status status = OPENREG_OK;
  if (has_factor(call) && collective->factor_address != NULL) {
    openreg_comm_buffer factor = {.address = (void *)(uintptr_t)collective->factor_address,
                                  .count = 1};
    status = openreg_comm_check_buffer(comm, &factor, collective->dtype);
  }
  if (status == OPENREG_OK)
    status = check_side(comm, call, "inputs", call->traits->inputs, &call->inputs);
  if (status == OPENREG_OK)
    status = check_side(comm, call, "outputs", call->traits->outputs, &call->outputs);
  return status == OPENREG_OK ? check_lengths(comm, call) : status;
}

/* ---- the signature --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t digest, uint64_t value) {
  digest = (digest ^ value) * 0x9E3779B97F4A7C15u;
  return digest ^ digest >> 29;
}

static size_t count_elements(const openreg_comm *comm, const struct openreg_call *call,
                             const struct openreg_call_side *side) {
  size_t count = 0;
  for (int rank = 0; side->is_per_rank && rank < comm->size; rank++)
    count += openreg_chunk_of(call, side, rank).count;
  return side->is_per_rank ? count : side->buffers[0].count;
}

static uint64_t hash_lengths(const openreg_comm *comm, const struct openreg_call *call,
                             const struct openreg_call_side *side) {
  uint64_t digest = 1;
  for (int rank = 0; rank < comm->size; rank++)
    digest = mix(digest, openreg_chunk_of(call, side, rank).count);
  return digest;
}

static struct openreg_signature sign(const openreg_comm *comm, const struct openreg_call *call) {
  const openreg_collective *collective = &call->collective;
  const openreg_collective_traits *traits = call->traits;
  struct openreg_signature signature = {.kind = (uint32_t)collective->kind};
  if (traits->lengths == OPENREG_LENGTHS_NONE)
    return signature;
  signature.dtype = (uint32_t)collective->dtype;
  signature.reduction = traits->reduces ? (uint32_t)collective->reduction : 0;
  signature.root = traits->has_root ? (uint32_t)collective->root : 0;
  /* The side that every rank has: gather and scatter have the other one at the root alone. */
  const struct openreg_call_side *side = &call->inputs;
  if (traits->lengths == OPENREG_LENGTHS_OUTPUTS ||
      traits->inputs == OPENREG_BUFFERS_PER_RANK_AT_ROOT || side->count == 0)
    side = &call->outputs;
  signature.elements = count_elements(comm, call, side);
  if (traits->lengths == OPENREG_LENGTHS_EQUAL)
    signature.layout = signature.elements;
  else if (traits->lengths != OPENREG_LENGTHS_PAIRWISE)
    signature.layout = hash_lengths(comm, call, side);
  return signature;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static double read_factor(const openreg_collective *collective) {
  if (collective->factor_address == NULL)
    return collective->factor;
  const void *address = openreg_kernel_view(collective->factor_address);
  uint16_t half;
  float single;
  double number;
  switch (collective->dtype) {
  case OPENREG_DTYPE_FLOAT16:
  case OPENREG_DTYPE_COMPLEX32:
    memcpy(&half, address, sizeof half);
    return (double)float_of_half(half);
  case OPENREG_DTYPE_BFLOAT16:
    memcpy(&half, address, sizeof half);
    return (double)float_of_bfloat16(half);
  case OPENREG_DTYPE_FLOAT32:
  case OPENREG_DTYPE_COMPLEX64:
    memcpy(&single, address, sizeof single);
    return (double)single;
  default:
    memcpy(&number, address, sizeof number);
    return number;
  }
}

/* Publishes the lengths of a side that is per rank, and where its inputs are: in the arena, or one
 * after the other in the copied inputs. */
static void publish_chunks(openreg_comm *comm, const struct openreg_call *call, bool is_direct) {
  struct openreg_published_chunk *chunks =
      openreg_comm_shm_chunks(comm->shm, comm->rank, call->number);
  uint64_t inline_offset = 0;
  for (int rank = 0; call->inputs.is_per_rank && rank < comm->size; rank++) {
    openreg_comm_buffer chunk = openreg_chunk_of(call, &call->inputs, rank);
    chunks[rank].input_count = chunk.count;
    chunks[rank].input_offset = is_direct ? openreg_comm_offset(comm, &chunk) : inline_offset;
    inline_offset += chunk.count * call->element_bytes;
  }
  for (int rank = 0; call->outputs.is_per_rank && rank < comm->size; rank++)
    chunks[rank].output_count = openreg_chunk_of(call, &call->outputs, rank).count;
}

static void copy_inputs(openreg_comm *comm, const struct openreg_call *call) {
  unsigned char *to = openreg_comm_shm_inline_input(comm->shm, comm->rank, call->number);
  for (int i = 0; i < call->inputs.count; i++) {
    size_t bytes = call->inputs.buffers[i].count * call->element_bytes;
    if (bytes > 0)
      memcpy(to, openreg_kernel_view(call->inputs.buffers[i].address), bytes);
    to += bytes;
  }
}

/* The largest inputs that are copied into the segment. Each rank reduces all copied inputs itself,
 * which pays only while there is little data: measured on two cores, up to 16 KiB with 8 ranks and
 * up to 8 KiB with 32. */
static size_t max_inline_bytes(const openreg_comm *comm) {
  enum { MAX_OF_ALL_RANKS = 256 << 10 };
  size_t share = MAX_OF_ALL_RANKS / (size_t)comm->size;
  return share < OPENREG_INLINE_INPUT_BYTES ? share : OPENREG_INLINE_INPUT_BYTES;
}

static void publish(openreg_comm *comm) {
  const struct openreg_call *call = &comm->call;
  struct openreg_published_call *published =
      openreg_comm_shm_call(comm->shm, comm->rank, call->number);
  *published = (struct openreg_published_call){
      .signature = call->signature,
      .is_direct = call->input_bytes > max_inline_bytes(comm),
  };
  if (has_factor(call))
    published->factor = read_factor(&call->collective);
  if (published->is_direct)
    published->input_offset = openreg_comm_offset(comm, &call->inputs.buffers[0]);
  else
    copy_inputs(comm, call);
  if (call->outputs.count > 0)
    published->output_offset = openreg_comm_offset(comm, &call->outputs.buffers[0]);
  publish_chunks(comm, call, published->is_direct);
}

/* ---- public ---------------------------------------------------------------------------------- */

static openreg_status require_no_call(const openreg_comm *comm) {
  openreg_status status = openreg_comm_require_usable(comm);
  if (status != OPENREG_OK)
    return status;
  if (comm->call.is_running)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: cannot begin a collective while #%" PRIu64
                        " of this rank is running; finish it first",
                        comm->number);
  return OPENREG_OK;
}

/* Everything of a call that follows from its arguments. The kind must be valid. */
static struct openreg_call make_call(const openreg_comm *comm,
                                     const openreg_collective *collective) {
  const openreg_collective_traits *traits = openreg_collective_traits_of(collective->kind);
  struct openreg_call call = {
      .collective = *collective,
      .traits = traits,
      .element_bytes = openreg_dtype_bytes(collective->dtype),
      .inputs = make_side(comm, traits->inputs, collective->inputs, collective->input_count),
      .outputs = make_side(comm, traits->outputs, collective->outputs, collective->output_count),
  };
  for (int i = 0; i < call.inputs.count; i++)
    call.input_bytes += call.inputs.buffers[i].count * call.element_bytes;
  return call;
}

openreg_status openreg_comm_begin(openreg_comm *comm, const openreg_collective *collective) {
  openreg_status status = require_no_call(comm);
  if (status == OPENREG_OK)
    status = check_kind(comm, collective);
  if (status != OPENREG_OK)
    return status;
  struct openreg_call call = make_call(comm, collective);
  status = check(comm, &call);
  if (status != OPENREG_OK)
    return status;
  if (comm->left_rank >= 0)
    return openreg_comm_fail_left(comm, comm->left_rank);
  call.signature = sign(comm, &call);
  call.number = ++comm->number;
  call.deadline_ns = openreg_deadline_ns(collective->timeout_ns);
  call.is_running = true;
  comm->call = call;
  publish(comm);
  openreg_barrier_arrive(comm);
  return OPENREG_OK;
}

/* Does this rank's share, after all have published the call. Returns OK when the call is finished,
 * NOT_READY when a second barrier round follows. */
static openreg_status do_share(openreg_comm *comm) {
  if (!openreg_calls_match(comm) || !openreg_call_move_data(comm))
    return openreg_comm_fail_aborted(comm);
  if (!comm->call.is_direct)
    return OPENREG_OK;
  comm->call.has_moved = true;
  openreg_barrier_arrive(comm);
  return OPENREG_NOT_READY;
}

openreg_status openreg_comm_finish(openreg_comm *comm, uint64_t patience_ns) {
  if (openreg_in_bad_fork())
    return openreg_comm_require_usable(comm);
  struct openreg_call *call = &comm->call;
  if (!call->is_running)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: there is no collective to finish; begin one first");
  openreg_status status = openreg_barrier_wait(comm, patience_ns);
  if (status == OPENREG_OK && !call->has_moved) {
    status = do_share(comm);
    if (status == OPENREG_NOT_READY)
      status = openreg_barrier_wait(comm, patience_ns);
  }
  if (status != OPENREG_NOT_READY)
    call->is_running = false;
  return status;
}

openreg_status openreg_comm_run(openreg_comm *comm, const openreg_collective *collective) {
  openreg_status status = openreg_comm_begin(comm, collective);
  return status == OPENREG_OK ? openreg_comm_finish(comm, UINT64_MAX) : status;
}

bool openreg_comm_has_core_per_rank(const openreg_comm *comm) {
  return comm->mapping->spins > 0;
}

uint64_t openreg_comm_next_number(const openreg_comm *comm) {
  return comm->number + 1;
}
