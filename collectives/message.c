/* message.c: sends and receives.
 *
 * Each pair of ranks has a mailbox for each direction, with a few slots. A small message is copied
 * into the mailbox, and the send is done. For a large message the slot holds the address; the
 * receiver copies the data and frees the slot, and then the send is done. So a send waits for its
 * receiver only. A rank serves all messages of a call in turn, whichever is ready, so
 * ranks never wait for each other in a cycle.
 */
#include "collectives/comm.h"

#include "base/futex.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/error_text.h"

enum progress { TO_DO, IN_MAILBOX, DONE };

struct task {
  openreg_message message;
  enum progress progress;
  uint64_t number; /* of the message in the mailbox, once it is there */
};

struct exchange {
  openreg_comm *comm;
  struct task *tasks;
  int count, undone;
};

/* The ranks whose messages of one direction must wait in this pass, because an earlier message of
 * the pair and direction waits. */
struct blocked {
  uint64_t ranks[2][OPENREG_MAX_RANKS / 64];
};

static bool is_blocked(const struct blocked *blocked, const openreg_message *message) {
  return blocked->ranks[message->is_send][message->peer / 64] >> message->peer % 64 & 1;
}

static void block(struct blocked *blocked, const openreg_message *message) {
  blocked->ranks[message->is_send][message->peer / 64] |= (uint64_t)1 << message->peer % 64;
}

static size_t bytes_of(const openreg_message *message) {
  return message->buffer.count * openreg_dtype_bytes(message->dtype);
}

static struct openreg_mailbox *mailbox_of(const openreg_comm *comm,
                                          const openreg_message *message) {
  return message->is_send ? openreg_comm_shm_mailbox(comm->shm, comm->rank, message->peer)
                          : openreg_comm_shm_mailbox(comm->shm, message->peer, comm->rank);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void fill_message_slot(const openreg_comm *comm, const openreg_message *message,
                              struct openreg_mailbox *mailbox, uint64_t number) {
  size_t bytes = bytes_of(message);
  struct openreg_message_slot *slot = &mailbox->slots[number % OPENREG_MAILBOX_SLOTS];
  *slot = (struct openreg_message_slot){.dtype = (uint32_t)message->dtype,
                                        .is_direct = bytes > OPENREG_INLINE_MESSAGE_BYTES,
                                        .count = message->buffer.count};
  if (slot->is_direct)
    slot->offset = openreg_comm_offset(comm, &message->buffer);
  else if (bytes > 0)
    memcpy(mailbox->data[number % OPENREG_MAILBOX_SLOTS],
           openreg_kernel_view(message->buffer.address), bytes);
}

/* Returns whether anything changed. */
static bool try_send(const openreg_comm *comm, struct task *task) {
  const openreg_message *message = &task->message;
  struct openreg_mailbox *mailbox = mailbox_of(comm, message);
  uint64_t taken = atomic_load(&mailbox->taken);
  if (task->progress == IN_MAILBOX) {
    if (taken <= task->number)
      return false;
    task->progress = DONE;
    return true;
  }
  uint64_t number = atomic_load(&mailbox->sent);
  if (number - taken >= OPENREG_MAILBOX_SLOTS)
    return false;
  fill_message_slot(comm, message, mailbox, number);
  task->number = number;
  task->progress = bytes_of(message) > OPENREG_INLINE_MESSAGE_BYTES ? IN_MAILBOX : DONE;
  atomic_store(&mailbox->sent, number + 1);
  openreg_doorbell_ring(&comm->shm->members[message->peer].mailbox_bell);
  return true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void abort_for_mismatch(const openreg_comm *comm, const openreg_message *message,
                               const struct openreg_message_slot *slot, uint64_t number) {
  openreg_segment_mapping *mapping = comm->mapping;
  char one[OPENREG_RANK_TEXT_BYTES], other[OPENREG_RANK_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  openreg_mapping_abort(
      mapping,
      "openreg: %s%s sends message #%" PRIu64 " (%s, %" PRIu64 " elements) to %s, which "
      "receives (%s, %zu elements)",
      openreg_rank_text(mapping, message->peer, one), openreg_group_text(mapping, group),
      number + 1, openreg_dtype_name((openreg_dtype)slot->dtype), slot->count,
      openreg_rank_text(mapping, comm->rank, other), openreg_dtype_name(message->dtype),
      message->buffer.count);
}

static bool copy_direct(openreg_comm *comm, const openreg_message *message, uint64_t offset) {
  if (!openreg_transfer_begin(comm))
    return false;
  bool is_done =
      openreg_copy_tiles(comm, openreg_kernel_view(message->buffer.address),
                         openreg_comm_memory(comm, message->peer, offset), bytes_of(message));
  openreg_transfer_end(comm);
  return is_done;
}

static bool try_receive(openreg_comm *comm, struct task *task) {
  const openreg_message *message = &task->message;
  struct openreg_mailbox *mailbox = mailbox_of(comm, message);
  uint64_t number = atomic_load(&mailbox->taken);
  if (atomic_load(&mailbox->sent) == number)
    return false;
  const struct openreg_message_slot *slot = &mailbox->slots[number % OPENREG_MAILBOX_SLOTS];
  size_t bytes = bytes_of(message);
  if (slot->dtype != (uint32_t)message->dtype || slot->count != message->buffer.count) {
    abort_for_mismatch(comm, message, slot, number);
    return false;
  }
  if (slot->is_direct && !message->only_checks && !copy_direct(comm, message, slot->offset))
    return false;
  if (!slot->is_direct && bytes > 0)
    memcpy(openreg_kernel_view(message->buffer.address),
           mailbox->data[number % OPENREG_MAILBOX_SLOTS], bytes);
  task->progress = DONE;
  atomic_store(&mailbox->taken, number + 1);
  openreg_doorbell_ring(&comm->shm->members[message->peer].mailbox_bell);
  return true;
}

/* ---- serving all messages of a call ---------------------------------------------------------- */

/* A message waits behind an earlier one of its pair and direction that is not in the mailbox yet.
 * Returns whether anything changed. */
static bool serve(struct exchange *exchange, bool sends) {
  struct blocked blocked = {0};
  bool has_changed = false;
  for (int i = 0; i < exchange->count; i++) {
    struct task *task = &exchange->tasks[i];
    if (task->message.is_send != sends || task->progress == DONE)
      continue;
    if (task->progress == TO_DO && is_blocked(&blocked, &task->message))
      continue;
    if (sends ? try_send(exchange->comm, task) : try_receive(exchange->comm, task))
      has_changed = true;
    if (task->progress == TO_DO)
      block(&blocked, &task->message);
    exchange->undone -= task->progress == DONE;
  }
  return has_changed;
}

static bool serve_all(struct exchange *exchange) {
  bool has_sent = serve(exchange, true);
  return serve(exchange, false) || has_sent;
}

/* The peer of an unfinished message that has left; -1: none. */
static int find_left(const struct exchange *exchange) {
  const openreg_comm *comm = exchange->comm;
  if (atomic_load(&comm->shm->left_count) == 0)
    return -1;
  for (int i = 0; i < exchange->count; i++) {
    const struct task *task = &exchange->tasks[i];
    if (task->progress != DONE &&
        openreg_mapping_member_state(comm->mapping, task->message.peer) == OPENREG_MEMBER_LEFT)
      return task->message.peer;
  }
  return -1;
}

static bool should_wake(void *context) {
  struct exchange *exchange = context;
  return serve_all(exchange) || exchange->undone == 0 ||
         openreg_mapping_is_aborted(exchange->comm->mapping) || find_left(exchange) >= 0;
}

/* ---- giving up ------------------------------------------------------------------------------- */

static openreg_status fail_late(const struct exchange *exchange, uint64_t timeout_ns) {
  openreg_comm *comm = exchange->comm;
  const struct task *task = exchange->tasks;
  while (task->progress == DONE)
    task++;
  const openreg_message *message = &task->message;
  const struct openreg_mailbox *mailbox = mailbox_of(comm, message);
  uint64_t number = !message->is_send              ? atomic_load(&mailbox->taken)
                    : task->progress == IN_MAILBOX ? task->number
                                                   : atomic_load(&mailbox->sent);
  char peer[OPENREG_RANK_TEXT_BYTES], self[OPENREG_RANK_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES], time[OPENREG_TIME_TEXT_BYTES];
  openreg_mapping_abort(
      comm->mapping,
      "openreg: %s did not %s message #%" PRIu64 " (%s, %zu elements) %s %s%s within %s",
      openreg_rank_text(comm->mapping, message->peer, peer), message->is_send ? "receive" : "send",
      number + 1, openreg_dtype_name(message->dtype), message->buffer.count,
      message->is_send ? "from" : "to", openreg_rank_text(comm->mapping, comm->rank, self),
      openreg_group_text(comm->mapping, group), openreg_time_text(timeout_ns, time));
  return openreg_comm_fail_aborted(comm);
}

/* Other ranks may still read the buffers of this call's sends, and the caller may overwrite those
 * after the failure. Then the communicator is aborted. */
static openreg_status fail_left(const struct exchange *exchange, int left_rank) {
  openreg_comm *comm = exchange->comm;
  bool is_read = false;
  for (int i = 0; i < exchange->count; i++)
    is_read |=
        exchange->tasks[i].progress == IN_MAILBOX && exchange->tasks[i].message.peer != left_rank;
  openreg_status status = openreg_comm_fail_left(comm, left_rank);
  if (!is_read)
    return status;
  openreg_mapping_abort(comm->mapping, "%s", openreg_last_error());
  return openreg_comm_fail_aborted(comm);
}

static openreg_status wait_for_all(struct exchange *exchange, uint64_t timeout_ns) {
  openreg_comm *comm = exchange->comm;
  int64_t deadline_ns = openreg_deadline_ns(timeout_ns);
  struct openreg_doorbell *bell = &comm->shm->members[comm->rank].mailbox_bell;
  while (exchange->undone > 0) {
    bool is_seen =
        openreg_doorbell_wait(bell, comm->mapping->spins, deadline_ns, should_wake, exchange);
    if (exchange->undone == 0)
      break;
    if (!is_seen)
      return fail_late(exchange, timeout_ns);
    /* Whatever woke this rank, its messages may have finished since. */
    bool has_ended = openreg_mapping_is_aborted(comm->mapping);
    int left_rank = find_left(exchange);
    if ((!has_ended && left_rank < 0) || serve_all(exchange))
      continue;
    return has_ended ? openreg_comm_fail_aborted(comm) : fail_left(exchange, left_rank);
  }
  return OPENREG_OK;
}

/* ---- checks and messages to oneself ---------------------------------------------------------- */

static openreg_status check(const openreg_comm *comm, const openreg_message *message) {
  if (message->peer < 0 || message->peer >= comm->size)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a message %s rank %d: expected rank 0 to %d",
                        message->is_send ? "to" : "from", message->peer, comm->size - 1);
  if ((unsigned)message->dtype >= OPENREG_DTYPE_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: unknown dtype %d: expected 0 to %d",
                        (int)message->dtype, OPENREG_DTYPE_COUNT - 1);
  return openreg_comm_check_buffer(comm, &message->buffer, message->dtype);
}

/* The index of the next message of one direction between this rank and itself, from `i` on; `count`
 * when there is none. */
static int find_own(const openreg_comm *comm, const openreg_message *messages, int count, int i,
                    bool is_send) {
  while (i < count && (messages[i].peer != comm->rank || messages[i].is_send != is_send))
    i++;
  return i;
}

/* Checks the pairs of messages that a rank sends to itself, and copies them if `does_copy`. */
static openreg_status serve_own(const openreg_comm *comm, const openreg_message *messages,
                                int count, bool does_copy) {
  int send = find_own(comm, messages, count, 0, true);
  int receive = find_own(comm, messages, count, 0, false);
  while (send < count && receive < count) {
    const openreg_message *from = &messages[send], *to = &messages[receive];
    if (from->dtype != to->dtype || from->buffer.count != to->buffer.count)
      return openreg_fail(OPENREG_INVALID_ARGUMENT,
                          "openreg: rank %d sends itself (%s, %zu elements), but receives (%s, %zu "
                          "elements)",
                          comm->rank, openreg_dtype_name(from->dtype), from->buffer.count,
                          openreg_dtype_name(to->dtype), to->buffer.count);
    if (does_copy && bytes_of(from) > 0)
      memmove(openreg_kernel_view(to->buffer.address), openreg_kernel_view(from->buffer.address),
              bytes_of(from));
    send = find_own(comm, messages, count, send + 1, true);
    receive = find_own(comm, messages, count, receive + 1, false);
  }
  if (send == receive)
    return OPENREG_OK;
  return openreg_fail(OPENREG_INVALID_ARGUMENT,
                      "openreg: rank %d %s itself a message that this call does not %s", comm->rank,
                      send < count ? "sends" : "receives from", send < count ? "receive" : "send");
}

openreg_status openreg_comm_exchange(openreg_comm *comm, const openreg_message *messages, int count,
                                     uint64_t timeout_ns) {
  enum { FEW = 32 };
  struct task few[FEW];
  openreg_status status = openreg_comm_require_usable(comm);
  if (status == OPENREG_OK && count < 0)
    status =
        openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %d messages: expected 0 or more", count);
  for (int i = 0; status == OPENREG_OK && i < count; i++)
    status = check(comm, &messages[i]);
  if (status == OPENREG_OK)
    status = serve_own(comm, messages, count, false);
  if (status != OPENREG_OK)
    return status;
  struct exchange exchange = {.comm = comm, .tasks = few, .count = count};
  if (count > FEW)
    exchange.tasks = malloc((size_t)count * sizeof *exchange.tasks);
  if (exchange.tasks == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: out of host memory for %d messages",
                        count);
  for (int i = 0; i < count; i++) {
    bool is_own = messages[i].peer == comm->rank;
    exchange.tasks[i] = (struct task){.message = messages[i], .progress = is_own ? DONE : TO_DO};
    exchange.undone += !is_own;
  }
  serve_own(comm, messages, count, true);
  status = wait_for_all(&exchange, timeout_ns);
  if (exchange.tasks != few)
    free(exchange.tasks);
  return status;
}
