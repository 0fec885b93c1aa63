/* call.c: what a rank asks of a collective: checked, published, and carried to its end.
 *
 * Nothing of a call that is refused here reaches the others. Small inputs are copied into the
 * rank's slot when it begins, so that it is done when all have come; of others it is published
 * where they are, and all have come once more when the data was moved.
 */
#include "collectives/comm.h"

#include "base/futex.h"
#include "base/half.h"

#include <inttypes.h>
#include <string.h>

#include "collectives/error_text.h"

/* ---- parts ----------------------------------------------------------------------------------- */

/* How many parts a side has. */
enum parts { NONE, ONE, EACH, ONE_AT_ROOT, EACH_AT_ROOT };

static const struct shape {
  enum parts inputs, outputs;
  bool is_rooted;
} shapes[OPENREG_COLLECTIVE_COUNT] = {
    [OPENREG_COLLECTIVE_ALL_REDUCE] = {ONE, ONE, false},
    [OPENREG_COLLECTIVE_REDUCE] = {ONE, ONE_AT_ROOT, true},
    [OPENREG_COLLECTIVE_REDUCE_SCATTER] = {EACH, ONE, false},
    [OPENREG_COLLECTIVE_BROADCAST] = {ONE_AT_ROOT, ONE, true},
    [OPENREG_COLLECTIVE_ALL_GATHER] = {ONE, EACH, false},
    [OPENREG_COLLECTIVE_GATHER] = {ONE, EACH_AT_ROOT, true},
    [OPENREG_COLLECTIVE_SCATTER] = {EACH_AT_ROOT, ONE, true},
    [OPENREG_COLLECTIVE_ALL_TO_ALL] = {EACH, EACH, false},
    [OPENREG_COLLECTIVE_BARRIER] = {NONE, NONE, false},
};

openreg_part openreg_part_of(const openreg_part *parts, int count, int size, openreg_dtype dtype,
                             int rank) {
  if (count == size)
    return parts[rank];
  size_t length = parts[0].count / (size_t)size;
  return (openreg_part){.address = (unsigned char *)parts[0].address +
                                   (size_t)rank * length * openreg_dtype_bytes(dtype),
                        .count = length};
}

openreg_status openreg_comm_check_part(const openreg_comm *comm, const openreg_part *part,
                                       openreg_dtype dtype) {
  size_t element = openreg_dtype_bytes(dtype);
  if (part->count == 0)
    return OPENREG_OK;
  if (part->count > comm->arena_bytes / element)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: %zu elements are more than device %d has", part->count,
                        comm->device);
  uintptr_t begin = (uintptr_t)part->address, arena = (uintptr_t)comm->arena;
  if (begin < arena || begin - arena > comm->arena_bytes - part->count * element)
    return openreg_fail(OPENREG_INVALID_ADDRESS,
                        "openreg: %p with %zu elements of %s is not memory that this process has "
                        "on device %d",
                        part->address, part->count, openreg_dtype_name(dtype), comm->device);
  if (begin % element != 0)
    return openreg_fail(OPENREG_INVALID_ADDRESS, "openreg: %p is not aligned for %s", part->address,
                        openreg_dtype_name(dtype));
  return OPENREG_OK;
}

static bool is_root(const openreg_comm *comm, const openreg_collective *what) {
  return comm->rank == what->root;
}

/* How many parts a side must have; EACH may also be one that holds them all. */
static int expected_parts(const openreg_comm *comm, const openreg_collective *what,
                          enum parts parts) {
  if (parts == NONE || ((parts == ONE_AT_ROOT || parts == EACH_AT_ROOT) && !is_root(comm, what)))
    return 0;
  return parts == ONE || parts == ONE_AT_ROOT ? 1 : comm->size;
}

static openreg_status check_side(const openreg_comm *comm, const openreg_collective *what,
                                 const char *side, enum parts kind, const openreg_part *parts,
                                 int count) {
  int expected = expected_parts(comm, what, kind);
  bool may_be_left_out =
      what->kind == OPENREG_COLLECTIVE_BROADCAST && kind == ONE && is_root(comm, what);
  bool is_whole = expected > 1 && count == 1;
  if (count != expected && !is_whole && !(count == 0 && may_be_left_out))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with %d %s on rank %d: expected %d",
                        openreg_collective_name(what->kind), count, side, comm->rank, expected);
  if (is_whole && parts[0].count % (size_t)expected != 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: %s of %zu elements, which %d ranks cannot share evenly",
                        openreg_collective_name(what->kind), parts[0].count, expected);
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < count; i++)
    status = openreg_comm_check_part(comm, &parts[i], what->dtype);
  return status;
}

static openreg_part input_of(const openreg_comm *comm, const openreg_collective *what, int rank) {
  return openreg_part_of(what->inputs, what->input_count, comm->size, what->dtype, rank);
}

static openreg_part output_of(const openreg_comm *comm, const openreg_collective *what, int rank) {
  return openreg_part_of(what->outputs, what->output_count, comm->size, what->dtype, rank);
}

/* This rank's part of each side goes from itself to itself: they must be of one length. */
static openreg_status check_lengths(const openreg_comm *comm, const openreg_collective *what) {
  const struct shape *shape = &shapes[what->kind];
  if (what->input_count == 0 || what->output_count == 0)
    return OPENREG_OK;
  bool many_in = shape->inputs == EACH || shape->inputs == EACH_AT_ROOT;
  bool many_out = shape->outputs == EACH || shape->outputs == EACH_AT_ROOT;
  size_t in = many_in ? input_of(comm, what, comm->rank).count : what->inputs[0].count;
  size_t out = many_out ? output_of(comm, what, comm->rank).count : what->outputs[0].count;
  if (in == out)
    return OPENREG_OK;
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: %s on rank %d: %zu elements go in where %zu come out",
                      openreg_collective_name(what->kind), comm->rank, in, out);
}

static bool reduces(openreg_collective_kind kind) {
  return kind == OPENREG_COLLECTIVE_ALL_REDUCE || kind == OPENREG_COLLECTIVE_REDUCE ||
         kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
}

static openreg_status check_kind(const openreg_comm *comm, const openreg_collective *what) {
  if ((unsigned)what->kind >= OPENREG_COLLECTIVE_COUNT ||
      (unsigned)what->dtype >= OPENREG_DTYPE_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: there is no collective %d of dtype %d",
                        (int)what->kind, (int)what->dtype);
  if (shapes[what->kind].is_rooted && (what->root < 0 || what->root >= comm->size))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with root %d: expected 0 to %d",
                        openreg_collective_name(what->kind), what->root, comm->size - 1);
  if (!reduces(what->kind))
    return OPENREG_OK;
  if ((unsigned)what->reduction >= OPENREG_REDUCTION_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: there is no reduction %d",
                        (int)what->reduction);
  if (!openreg_reduction_is_defined(what->reduction, what->dtype))
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %s with %s of %s is not defined",
                        openreg_collective_name(what->kind),
                        openreg_reduction_name(what->reduction), openreg_dtype_name(what->dtype));
  if (what->reduction != OPENREG_REDUCE_PREMUL_SUM || what->factor_address == NULL)
    return OPENREG_OK;
  openreg_part factor = {.address = (void *)(uintptr_t)what->factor_address, .count = 1};
  return openreg_comm_check_part(comm, &factor, what->dtype);
}

static openreg_status check(const openreg_comm *comm, const openreg_collective *what) {
  openreg_status status = check_kind(comm, what);
  if (status != OPENREG_OK)
    return status;
  const struct shape *shape = &shapes[what->kind];
  status = check_side(comm, what, "inputs", shape->inputs, what->inputs, what->input_count);
  if (status == OPENREG_OK)
    status = check_side(comm, what, "outputs", shape->outputs, what->outputs, what->output_count);
  return status == OPENREG_OK ? check_lengths(comm, what) : status;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t digest, uint64_t value) {
  digest = (digest ^ value) * 0x9E3779B97F4A7C15u;
  return digest ^ digest >> 29;
}

/* Adds up a side, and what must agree of it. */
static void sum_up(const openreg_comm *comm, const openreg_part *parts, int count,
                   openreg_dtype dtype, struct openreg_signature *signature) {
  signature->layout = 1;
  for (int rank = 0; rank < comm->size; rank++) {
    size_t length = openreg_part_of(parts, count, comm->size, dtype, rank).count;
    signature->elements += length;
    signature->layout = mix(signature->layout, length);
  }
}

static struct openreg_signature sign(const openreg_comm *comm, const openreg_collective *what) {
  struct openreg_signature signature = {.kind = (uint32_t)what->kind};
  if (what->kind == OPENREG_COLLECTIVE_BARRIER)
    return signature;
  signature.dtype = (uint32_t)what->dtype;
  signature.reduction = reduces(what->kind) ? (uint32_t)what->reduction : 0;
  signature.root = shapes[what->kind].is_rooted ? (uint32_t)what->root : 0;
  switch (what->kind) {
  case OPENREG_COLLECTIVE_REDUCE_SCATTER:
    sum_up(comm, what->inputs, what->input_count, what->dtype, &signature);
    break;
  case OPENREG_COLLECTIVE_ALL_GATHER:
    sum_up(comm, what->outputs, what->output_count, what->dtype, &signature);
    break;
  case OPENREG_COLLECTIVE_ALL_TO_ALL:
    for (int rank = 0; rank < comm->size; rank++)
      signature.elements += input_of(comm, what, rank).count;
    break;
  case OPENREG_COLLECTIVE_GATHER:
    signature.elements = what->inputs[0].count;
    break;
  case OPENREG_COLLECTIVE_SCATTER:
    signature.elements = what->outputs[0].count;
    break;
  default:
    signature.elements = (what->input_count > 0 ? what->inputs : what->outputs)[0].count;
    signature.layout = signature.elements;
  }
  return signature;
}

static double read_factor(const openreg_collective *what) {
  if (what->factor_address == NULL)
    return what->factor;
  const void *address = openreg_kernel_view(what->factor_address);
  uint16_t half;
  float single;
  double number;
  switch (what->dtype) {
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

static size_t input_bytes(const openreg_collective *what) {
  size_t count = 0;
  for (int i = 0; i < what->input_count; i++)
    count += what->inputs[i].count;
  return count * openreg_dtype_bytes(what->dtype);
}

/* Where the inputs are: in the arena, or one behind the other in the slot. */
static void publish_parts(openreg_comm *comm, const openreg_collective *what, bool is_direct) {
  const struct shape *shape = &shapes[what->kind];
  struct openreg_published_part *parts =
      openreg_segment_parts(comm->segment, comm->rank, comm->number);
  bool many_in = shape->inputs >= EACH && shape->inputs != ONE_AT_ROOT && what->input_count > 0;
  bool many_out = shape->outputs >= EACH && shape->outputs != ONE_AT_ROOT && what->output_count > 0;
  uint64_t in_slot = 0;
  for (int rank = 0; many_in && rank < comm->size; rank++) {
    openreg_part part = input_of(comm, what, rank);
    parts[rank].input_count = part.count;
    parts[rank].input_offset = is_direct ? openreg_comm_offset(comm, &part) : in_slot;
    in_slot += part.count * openreg_dtype_bytes(what->dtype);
  }
  for (int rank = 0; many_out && rank < comm->size; rank++)
    parts[rank].output_count = output_of(comm, what, rank).count;
}

static void fill_slot(openreg_comm *comm, const openreg_collective *what) {
  unsigned char *slot = openreg_segment_slot(comm->segment, comm->rank, comm->number);
  for (int i = 0; i < what->input_count; i++) {
    size_t bytes = what->inputs[i].count * openreg_dtype_bytes(what->dtype);
    if (bytes > 0)
      memcpy(slot, openreg_kernel_view(what->inputs[i].address), bytes);
    slot += bytes;
  }
}

/* Each rank reduces all that is in slots, which pays only while there is little of it: it did up to
 * 16 KiB with 8 ranks on two cores, and up to 8 KiB with 32. */
static size_t most_in_slot(const openreg_comm *comm) {
  enum { MOST_OF_ALL = 256 << 10 };
  size_t share = MOST_OF_ALL / (size_t)comm->size;
  return share < OPENREG_SLOT_BYTES ? share : OPENREG_SLOT_BYTES;
}

static void publish(openreg_comm *comm) {
  const openreg_collective *what = &comm->call.what;
  struct openreg_published *published =
      openreg_segment_call(comm->segment, comm->rank, comm->number);
  *published = (struct openreg_published){
      .signature = comm->call.signature,
      .is_direct = input_bytes(what) > most_in_slot(comm),
  };
  if (reduces(what->kind) && what->reduction == OPENREG_REDUCE_PREMUL_SUM)
    published->factor = read_factor(what);
  if (published->is_direct)
    published->input_offset = openreg_comm_offset(comm, &what->inputs[0]);
  else
    fill_slot(comm, what);
  if (what->output_count > 0)
    published->output_offset = openreg_comm_offset(comm, &what->outputs[0]);
  publish_parts(comm, what, published->is_direct);
}

/* ---- public ---------------------------------------------------------------------------------- */

static openreg_status require_no_call(const openreg_comm *comm) {
  openreg_status status = openreg_comm_require(comm);
  if (status != OPENREG_OK)
    return status;
  if (comm->call.is_running)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a rank begins one collective at a time, and #%" PRIu64
                        " has not finished",
                        comm->number);
  return OPENREG_OK;
}

openreg_status openreg_comm_begin(openreg_comm *comm, const openreg_collective *collective) {
  openreg_status status = require_no_call(comm);
  if (status == OPENREG_OK)
    status = check(comm, collective);
  if (status != OPENREG_OK)
    return status;
  if (comm->left_rank >= 0)
    return openreg_comm_fail_left(comm, comm->left_rank);
  comm->call = (struct openreg_call){
      .what = *collective,
      .signature = sign(comm, collective),
      .number = ++comm->number,
      .deadline_ns = openreg_deadline_ns(collective->timeout_ns),
      .is_running = true,
  };
  publish(comm);
  openreg_phase_arrive(comm);
  return OPENREG_OK;
}

/* All have published; OK when this rank is done. Errors: NOT_READY when it must wait once more. */
static openreg_status do_share(openreg_comm *comm) {
  if (!openreg_calls_match(comm) || !openreg_call_move(comm))
    return openreg_comm_fail(comm);
  if (!comm->call.is_direct)
    return OPENREG_OK;
  comm->call.has_moved = true;
  openreg_phase_arrive(comm);
  return OPENREG_NOT_READY;
}

openreg_status openreg_comm_finish(openreg_comm *comm, uint64_t patience_ns) {
  if (openreg_in_bad_fork())
    return openreg_comm_require(comm);
  struct openreg_call *call = &comm->call;
  if (!call->is_running)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: no collective was begun that could be finished");
  openreg_status status = openreg_phase_await(comm, patience_ns);
  if (status == OPENREG_OK && !call->has_moved) {
    status = do_share(comm);
    if (status == OPENREG_NOT_READY)
      status = openreg_phase_await(comm, patience_ns);
  }
  if (status != OPENREG_NOT_READY)
    call->is_running = false;
  return status;
}

openreg_status openreg_comm_run(openreg_comm *comm, const openreg_collective *collective) {
  openreg_status status = openreg_comm_begin(comm, collective);
  return status == OPENREG_OK ? openreg_comm_finish(comm, UINT64_MAX) : status;
}

bool openreg_comm_has_cores(const openreg_comm *comm) {
  return comm->attachment->looks > 0;
}

uint64_t openreg_comm_next_number(const openreg_comm *comm) {
  return comm->number + 1;
}
