/* control.h: the control file of a group: its processes, and how much of each device they use.
 *
 *     control_folder.c   the folder of a user's control files
 *     control.c          opens, creates, removes and locks control files
 *     records.c          the records of processes, and sums over them
 *     utilization.c      how busy the devices were between two samples
 *
 * The control file is a file of fixed size in shared memory, /dev/shm/openreg-<user>/<group>, which
 * every process of the group maps. Kernel locks on bytes of the file ("open file description
 * locks") serve as its mutex and as proof that a process is alive. Such locks end with the process
 * that holds them, however and whenever it dies, and no byte in the file can fake them:
 *
 *     byte 0             held while the file is changed or read as a whole
 *     byte 1 + slot      write lock of the process in that slot, as long as it lives
 *     byte 1025 + slot   read lock of each process that still needs that slot's record
 *
 * The locks belong to a description of the file that no mapping uses and no forked child keeps.
 * Either would hold the locks longer than the process lives.
 *
 * - Devices are identified by their group index, whichever devices a process sees.
 * - bytes[device][slot] is what that process uses. Only that process writes it while it lives. The
 *   usage of a device is the sum over all slots and is not stored anywhere, so a process that dies
 *   between two stores cannot make it wrong. bytes of a free slot are 0.
 * - A slot is free if its identity is 0. A process stores its identity last when it enters, and
 *   clears it last when it leaves. All slots from used_slots on are free.
 * - No process enters a control file that has lost its name. The name is removed under the file's
 *   lock when no process is in the file. So two control files in use never have the same name.
 *
 * A process that is stopped while it holds byte 0 makes the others wait.
 *
 * Other processes of the user write to this file, and they may be broken. Values are therefore
 * checked or clamped where they are used. Only truncating the file while it is mapped is fatal: the
 * process ends with a message (fault.h).
 */
#ifndef OPENREG_DEVICE_LEDGER_CONTROL_H
#define OPENREG_DEVICE_LEDGER_CONTROL_H

#include "device/process/config.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

enum { OPENREG_CONTROL_VERSION = 3, OPENREG_CONTROL_PATH_BYTES = OPENREG_GROUP_NAME_BYTES + 64 };

struct control_device {
  uint64_t capacity_bytes;
  int64_t numa_node;
  char profile[OPENREG_NAME_BYTES];
  char name[OPENREG_NAME_BYTES];
  char cpuset[256];
};

/* Written before the control file gets its name; constant afterwards. */
struct control_header {
  char magic[8];
  uint32_t version, control_bytes;
  uint64_t identity; /* unique among all control files */
  uint64_t device_count;
  struct control_device devices[OPENREG_MAX_DEVICES];
};

struct control_record {
  _Atomic uint64_t identity;
  _Atomic int64_t started_ns;
  _Atomic int32_t pid;
  _Atomic uint32_t has_exited;
  char name[OPENREG_NAME_BYTES];              /* written and read under the lock */
  _Atomic int32_t files[OPENREG_MAX_DEVICES]; /* descriptors of its memory files; -1: none */
  _Atomic uint64_t inodes[OPENREG_MAX_DEVICES];
  _Atomic int64_t busy_counters[OPENREG_MAX_DEVICES]; /* see device/streams/busy_time.h */
};

/* Busy ticks of all processes together at one time. Accessed under the lock. */
struct utilization_sample {
  int64_t at_ticks; /* 0: no sample */
  int64_t busy_ticks[OPENREG_MAX_DEVICES];
};

struct control {
  struct control_header header;
  _Atomic uint64_t used_slots;
  _Atomic int64_t sampled_until_ns;               /* inline work is counted until then */
  struct utilization_sample samples[2];           /* the previous and the latest sample */
  int64_t exited_busy_ticks[OPENREG_MAX_DEVICES]; /* of processes that have ended; under the lock */
  struct control_record processes[OPENREG_MAX_PROCESSES];
  _Atomic uint64_t bytes[OPENREG_MAX_DEVICES][OPENREG_MAX_PROCESSES];
};

_Static_assert(sizeof(struct control_device) == 400, "the same in every process");
_Static_assert(sizeof(struct control_header) == 32 + 64 * 400, "the same in every process");
_Static_assert(sizeof(struct control_record) == 1368, "the same in every process");
_Static_assert(sizeof(struct utilization_sample) == 520, "the same in every process");
_Static_assert(sizeof(struct control) ==
                   32 + 64 * 400 + 8 + 8 + 2 * 520 + 64 * 8 + 1024 * 1368 + 64 * 1024 * 8,
               "the same in every process");

/* A control file that this process has open. */
struct control_file {
  struct control *control;      /* mapped, not inherited by forked children; NULL: not open */
  int locks;                    /* descriptor that holds this process's locks */
  int own_slot;                 /* slot of this process; -1: none */
  struct control_header header; /* the copy that was checked */
  char path[OPENREG_CONTROL_PATH_BYTES];
  uint32_t pin_counts[OPENREG_MAX_PROCESSES]; /* how often this process pinned each record */
};

/* ---- the folder ------------------------------------------------------------------------------ */

void openreg_control_folder(char path[OPENREG_CONTROL_PATH_BYTES]);

/* Returns NOT_READY if there is no folder. Errors: INVALID_CONFIGURATION (other users can access
 * it), SYSTEM. */
openreg_status openreg_control_check_folder(void);

/* Creates the folder if necessary. Errors: as above. */
openreg_status openreg_control_make_folder(void);

/* ---- the file -------------------------------------------------------------------------------- */

/* How long to wait for a control file's lock. Processes that only read snapshots must not hang
 * because another process is stopped. */
enum control_timeout { CONTROL_WAIT_FOREVER, CONTROL_WAIT_ONE_SECOND };

/* Opens and locks the control file of a group. Returns NOT_READY if there is none. Errors:
 * INVALID_CONFIGURATION (not a valid control file or folder of this user, or locked for too long by
 * another process), SYSTEM. */
openreg_status openreg_control_open(const char *group, enum control_timeout timeout,
                                    struct control_file *file);

/* Creates a control file without processes. It gets its name when it is complete. Does nothing if
 * the group has a control file. Errors: as openreg_control_make_folder. */
openreg_status openreg_control_create(const char *group, const struct control_header *header);

/* Removes the name of a control file, so that no process can enter it any more. The file must be
 * locked and without processes. */
void openreg_control_retire(struct control_file *file);

/* Releases all locks and the mapping. */
void openreg_control_close(struct control_file *file);

/* ---- locks ----------------------------------------------------------------------------------- */

/* Excludes other descriptions of the file, but not other threads that use this one. Waits. Errors:
 * SYSTEM. */
openreg_status openreg_control_lock(struct control_file *file);
void openreg_control_unlock(struct control_file *file);

/* Whether another process lives in the slot, or in any slot. */
bool openreg_control_is_alive(const struct control_file *file, int slot);
bool openreg_control_has_others(const struct control_file *file);

/* Claims the slot for this process, or releases it. Claiming returns false if another process has
 * the slot. */
bool openreg_control_claim_slot(struct control_file *file, int slot);
void openreg_control_release_slot(struct control_file *file, int slot);

/* Whether any process has pinned the slot's record. */
bool openreg_control_is_record_pinned(const struct control_file *file, int slot);

/* Pins keep a slot's record after its process has died. Counted: unpin as often as pin. Errors of
 * pin: SYSTEM. */
openreg_status openreg_control_pin_record(struct control_file *file, int slot);
void openreg_control_unpin_record(struct control_file *file, int slot);

/* ---- slots: call these under the lock -------------------------------------------------------- */

int openreg_control_used_slots(const struct control_file *file); /* <= OPENREG_MAX_PROCESSES */

/* Changes that other processes see. This process may die before or after each of them. */
void openreg_control_set_identity(struct control_file *file, int slot, uint64_t identity);
void openreg_control_set_used_slots(struct control_file *file, int used_slots);
void openreg_control_set_bytes(struct control_file *file, int device, int slot, uint64_t bytes);

/* The bytes that all processes together use on a device; UINT64_MAX on overflow. */
uint64_t openreg_control_sum(const struct control_file *file, int device);

/* Frees the slots of dead processes, except this process's own slot. A dead process whose record is
 * pinned is only marked as exited. */
void openreg_control_reclaim(struct control_file *file);

/* ---- utilization.c: call these under the lock ------------------------------------------------ */

/* Samples the busy counters of all processes and makes them count all work for the next ten
 * seconds. Returns each device's utilization since an earlier sample in percent, or -1 if there is
 * no sample that is old enough. */
void openreg_control_sample_utilization(struct control_file *file,
                                        int busy_percent[OPENREG_MAX_DEVICES]);

/* Adds the busy time of a slot's process, which has ended, to exited_busy_ticks and clears its
 * counters. */
void openreg_control_fold_counters(struct control_file *file, int slot);

/* ---- text ------------------------------------------------------------------------------------ */

/* Copies text that may not be terminated. Replaces characters that could disturb a terminal with
 * '?'. */
void openreg_control_copy_text(char *text, size_t text_bytes, const char *source,
                               size_t source_bytes);

#pragma GCC visibility pop
#endif
