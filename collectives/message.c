/* message.c: sends and receives.
 *
 * Each pair has a mailbox for each direction, with a few letters. What is small is put into it, and
 * done. Of what is large the letter says where it is; the receiver copies it, and takes the letter:
 * then it is done. So what a rank sends waits for nobody but a receiver, and one that serves all
 * messages of a call in turn, whichever is ready, never waits in a circle.
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
  uint64_t number; /* in the mailbox, when it is there */
};

struct exchange {
  openreg_comm *comm;
  struct task *tasks;
  int count, undone;
};

/* Ranks whose messages of one direction must wait in this pass: those behind one that waits. */
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
  return message->part.count * openreg_dtype_bytes(message->dtype);
}

static struct openreg_mailbox *mailbox_of(const openreg_comm *comm,
                                          const openreg_message *message) {
  return message->is_send ? openreg_segment_mailbox(comm->segment, comm->rank, message->peer)
                          : openreg_segment_mailbox(comm->segment, message->peer, comm->rank);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void write_letter(const openreg_comm *comm, const openreg_message *message,
                         struct openreg_mailbox *mailbox, uint64_t number) {
  size_t bytes = bytes_of(message);
  struct openreg_letter *letter = &mailbox->letters[number % OPENREG_LETTERS];
  *letter = (struct openreg_letter){.dtype = (uint32_t)message->dtype,
                                    .is_direct = bytes > OPENREG_LETTER_BYTES,
                                    .count = message->part.count};
  if (letter->is_direct)
    letter->offset = openreg_comm_offset(comm, &message->part);
  else if (bytes > 0)
    memcpy(mailbox->data[number % OPENREG_LETTERS], openreg_kernel_view(message->part.address),
           bytes);
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
  if (number - taken >= OPENREG_LETTERS)
    return false;
  write_letter(comm, message, mailbox, number);
  task->number = number;
  task->progress = bytes_of(message) > OPENREG_LETTER_BYTES ? IN_MAILBOX : DONE;
  atomic_store(&mailbox->sent, number + 1);
  openreg_doorbell_ring(&comm->segment->members[message->peer].letters);
  return true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void end_different(const openreg_comm *comm, const openreg_message *message,
                          const struct openreg_letter *letter, uint64_t number) {
  openreg_attachment *attachment = comm->attachment;
  char one[OPENREG_RANK_TEXT_BYTES], other[OPENREG_RANK_TEXT_BYTES];
  char group[OPENREG_GROUP_TEXT_BYTES];
  openreg_attachment_end(
      attachment,
      "openreg: %s%s sends message #%" PRIu64 " (%s, %" PRIu64 " elements) to %s, which "
      "receives (%s, %zu elements)",
      openreg_rank_text(attachment, message->peer, one), openreg_group_text(attachment, group),
      number + 1, openreg_dtype_name((openreg_dtype)letter->dtype), letter->count,
      openreg_rank_text(attachment, comm->rank, other), openreg_dtype_name(message->dtype),
      message->part.count);
}

static bool copy_direct(openreg_comm *comm, const openreg_message *message, uint64_t offset) {
  if (!openreg_moving_begin(comm))
    return false;
  bool is_done =
      openreg_copy_tiles(comm, openreg_kernel_view(message->part.address),
                         openreg_comm_memory(comm, message->peer, offset), bytes_of(message));
  openreg_moving_end(comm);
  return is_done;
}

static bool try_receive(openreg_comm *comm, struct task *task) {
  const openreg_message *message = &task->message;
  struct openreg_mailbox *mailbox = mailbox_of(comm, message);
  uint64_t number = atomic_load(&mailbox->taken);
  if (atomic_load(&mailbox->sent) == number)
    return false;
  const struct openreg_letter *letter = &mailbox->letters[number % OPENREG_LETTERS];
  size_t bytes = bytes_of(message);
  if (letter->dtype != (uint32_t)message->dtype || letter->count != message->part.count) {
    end_different(comm, message, letter, number);
    return false;
  }
  if (letter->is_direct && !copy_direct(comm, message, letter->offset))
    return false;
  if (!letter->is_direct && bytes > 0)
    memcpy(openreg_kernel_view(message->part.address), mailbox->data[number % OPENREG_LETTERS],
           bytes);
  task->progress = DONE;
  atomic_store(&mailbox->taken, number + 1);
  openreg_doorbell_ring(&comm->segment->members[message->peer].letters);
  return true;
}

/* ---- serving all ----------------------------------------------------------------------------- */

/* A message waits behind one of its pair and direction that is not in the mailbox yet. */
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

/* A peer of an undone message that has left; -1: none. */
static int find_left(const struct exchange *exchange) {
  const openreg_comm *comm = exchange->comm;
  if (atomic_load(&comm->segment->left) == 0)
    return -1;
  for (int i = 0; i < exchange->count; i++) {
    const struct task *task = &exchange->tasks[i];
    if (task->progress != DONE &&
        openreg_attachment_state_of(comm->attachment, task->message.peer) == OPENREG_MEMBER_LEFT)
      return task->message.peer;
  }
  return -1;
}

static bool has_news(void *context) {
  struct exchange *exchange = context;
  return serve_all(exchange) || exchange->undone == 0 ||
         openreg_attachment_has_ended(exchange->comm->attachment) || find_left(exchange) >= 0;
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
  openreg_attachment_end(
      comm->attachment,
      "openreg: %s did not %s message #%" PRIu64 " (%s, %zu elements) %s %s%s within %s",
      openreg_rank_text(comm->attachment, message->peer, peer),
      message->is_send ? "receive" : "send", number + 1, openreg_dtype_name(message->dtype),
      message->part.count, message->is_send ? "from" : "to",
      openreg_rank_text(comm->attachment, comm->rank, self),
      openreg_group_text(comm->attachment, group), openreg_time_text(timeout_ns, time));
  return openreg_comm_fail(comm);
}

/* Others may still read what this rank has in their mailboxes, and would get what comes there next:
 * then it is over for all. */
static openreg_status fail_left(const struct exchange *exchange, int left_rank) {
  openreg_comm *comm = exchange->comm;
  bool is_read = false;
  for (int i = 0; i < exchange->count; i++)
    is_read |=
        exchange->tasks[i].progress == IN_MAILBOX && exchange->tasks[i].message.peer != left_rank;
  openreg_status status = openreg_comm_fail_left(comm, left_rank);
  if (!is_read)
    return status;
  openreg_attachment_end(comm->attachment, "%s", openreg_last_error());
  return openreg_comm_fail(comm);
}

static openreg_status await_all(struct exchange *exchange, uint64_t timeout_ns) {
  openreg_comm *comm = exchange->comm;
  int64_t deadline_ns = openreg_deadline_ns(timeout_ns);
  struct openreg_doorbell *bell = &comm->segment->members[comm->rank].letters;
  while (exchange->undone > 0) {
    bool is_seen =
        openreg_doorbell_await(bell, comm->attachment->looks, deadline_ns, has_news, exchange);
    if (exchange->undone == 0)
      break;
    if (!is_seen)
      return fail_late(exchange, timeout_ns);
    /* Whatever happened first: it may have been done since. */
    bool has_ended = openreg_attachment_has_ended(comm->attachment);
    int left_rank = find_left(exchange);
    if ((!has_ended && left_rank < 0) || serve_all(exchange))
      continue;
    return has_ended ? openreg_comm_fail(comm) : fail_left(exchange, left_rank);
  }
  return OPENREG_OK;
}

/* ---- what is asked --------------------------------------------------------------------------- */

static openreg_status check(const openreg_comm *comm, const openreg_message *message) {
  if (message->peer < 0 || message->peer >= comm->size)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: a message %s rank %d: expected 0 to %d",
                        message->is_send ? "to" : "from", message->peer, comm->size - 1);
  if ((unsigned)message->dtype >= OPENREG_DTYPE_COUNT)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: there is no dtype %d",
                        (int)message->dtype);
  return openreg_comm_check_part(comm, &message->part, message->dtype);
}

/* The next message of one direction to this rank itself, from `i` on; the end when there is none.
 */
static int find_own(const openreg_comm *comm, const openreg_message *messages, int count, int i,
                    bool is_send) {
  while (i < count && (messages[i].peer != comm->rank || messages[i].is_send != is_send))
    i++;
  return i;
}

/* Goes through the pairs of what a rank sends itself; copies when `does_copy`. */
static openreg_status serve_own(const openreg_comm *comm, const openreg_message *messages,
                                int count, bool does_copy) {
  int send = find_own(comm, messages, count, 0, true);
  int receive = find_own(comm, messages, count, 0, false);
  while (send < count && receive < count) {
    const openreg_message *from = &messages[send], *to = &messages[receive];
    if (from->dtype != to->dtype || from->part.count != to->part.count)
      return openreg_fail(OPENREG_INVALID_ARGUMENT,
                          "openreg: rank %d sends itself (%s, %zu elements), and receives (%s, %zu "
                          "elements)",
                          comm->rank, openreg_dtype_name(from->dtype), from->part.count,
                          openreg_dtype_name(to->dtype), to->part.count);
    if (does_copy && bytes_of(from) > 0)
      memmove(openreg_kernel_view(to->part.address), openreg_kernel_view(from->part.address),
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
  openreg_status status = openreg_comm_require(comm);
  if (status == OPENREG_OK && count < 0)
    status = openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: %d messages", count);
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
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for %d messages", count);
  for (int i = 0; i < count; i++) {
    bool is_own = messages[i].peer == comm->rank;
    exchange.tasks[i] = (struct task){.message = messages[i], .progress = is_own ? DONE : TO_DO};
    exchange.undone += !is_own;
  }
  serve_own(comm, messages, count, true);
  status = await_all(&exchange, timeout_ns);
  if (exchange.tasks != few)
    free(exchange.tasks);
  return status;
}
