/* records.c: the records of processes in a control file, and sums over them. See control.h.
 *
 * The kernel's locks tell which processes are alive. Process ids serve only for display and for
 * /proc, because they are reused and mean nothing in other containers.
 */
#include "device/ledger/control.h"

#include <string.h>

int openreg_control_used_slots(const struct control_file *file) {
  uint64_t used = atomic_load(&file->control->used_slots);
  return used < OPENREG_MAX_PROCESSES ? (int)used : OPENREG_MAX_PROCESSES;
}

uint64_t openreg_control_sum(const struct control_file *file, int device) {
  uint64_t sum = 0;
  int used = openreg_control_used_slots(file);
  for (int i = 0; i < used; i++) {
    if (__builtin_add_overflow(sum, atomic_load(&file->control->bytes[device][i]), &sum))
      return UINT64_MAX;
  }
  return sum;
}

static void free_slot(struct control_file *file, int slot) {
  openreg_control_fold_counters(file, slot);
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    openreg_control_set_bytes(file, i, slot, 0);
  openreg_control_set_identity(file, slot, 0);
}

void openreg_control_reclaim(struct control_file *file) {
  struct control_record *processes = file->control->processes;
  int used = openreg_control_used_slots(file);
  for (int i = 0; i < used; i++) {
    if (atomic_load(&processes[i].identity) == 0 || i == file->own_slot ||
        openreg_control_is_alive(file, i))
      continue;
    if (openreg_control_is_record_pinned(file, i)) {
      openreg_control_fold_counters(file, i);
      atomic_store(&processes[i].has_exited, 1);
    } else {
      free_slot(file, i);
    }
  }
  while (used > 0 && atomic_load(&processes[used - 1].identity) == 0)
    used--;
  openreg_control_set_used_slots(file, used);
}

void openreg_control_copy_text(char *text, size_t text_bytes, const char *source,
                               size_t source_bytes) {
  size_t length = strnlen(source, source_bytes);
  if (length > text_bytes - 1)
    length = text_bytes - 1;
  for (size_t i = 0; i < length; i++) {
    unsigned char character = (unsigned char)source[i];
    text[i] = character < 0x20 || character == 0x7f ? '?' : (char)character;
  }
  text[length] = '\0';
}
