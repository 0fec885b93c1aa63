/* control.h: the control file of a group: who is in it, and how much of each device they have.
 *
 *     control_folder.c   the folder of a user's control files
 *     control.c          control files as files: opening, making and retiring them, their locks
 *     records.c          who is in one, and what they have together
 *     looks.c            how busy the devices were between two looks at one
 *
 * A file of fixed size in shared memory, /dev/shm/openreg-<user>/<group>, mapped by every process
 * of the group. The locks of the kernel on bytes of that file ("open file description locks") are
 * its mutex and its proof of life, since they end with the process that holds them, by whatever
 * death, at whatever instant, and no byte of the file can forge them:
 *
 *     byte 0             held while the file is changed or read as a whole
 *     byte 1 + slot      held for writing by the process in that slot, as long as it lives
 *     byte 1025 + slot   held for reading by each process that still needs that slot's record
 *
 * The locks belong to a description of the file that no mapping refers to and no forked child
 * keeps: either would hold them longer than the process lives.
 *
 * - A device is its number in the group here, whichever devices a process sees.
 * - bytes[device][slot] is what that process has, stored by it alone while it lives; what is used
 *   of a device is always their sum and stored nowhere, so no death between two stores makes it
 *   wrong. bytes of a free slot are 0.
 * - A slot is free when its identity is 0. The identity is stored last on entering and cleared last
 *   on leaving; all that lies beyond used_slots is free.
 * - A control file without its name is entered by nobody. The name is removed under the file's
 *   lock, when nobody is in it, so two control files that are in use never have one name.
 *
 * A process that is stopped while it holds byte 0 makes the others wait.
 *
 * The file is written by other processes of the user, which may be broken: what is read from it is
 * checked or cut where it is used. Only a file that is made shorter while it is mapped is not
 * survived: the process ends with a sentence (fault.h).
 */
#ifndef OPENREG_DEVICE_LEDGER_CONTROL_H
#define OPENREG_DEVICE_LEDGER_CONTROL_H

#include "device/process/config.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

enum { OPENREG_CONTROL_VERSION = 2, OPENREG_CONTROL_PATH_BYTES = OPENREG_GROUP_NAME_BYTES + 64 };

struct control_device {
  uint64_t capacity_bytes;
  int64_t numa_node;
  char profile[OPENREG_NAME_BYTES];
  char name[OPENREG_NAME_BYTES];
  char cpuset[256];
};

/* Written before the control file has a name, and constant. */
struct control_header {
  char magic[8];
  uint32_t version, control_bytes;
  uint64_t identity; /* of this control file among all that ever were */
  uint64_t device_count;
  struct control_device devices[OPENREG_MAX_DEVICES];
};

struct control_record {
  _Atomic uint64_t identity;
  _Atomic int64_t started_ns;
  _Atomic int32_t pid;
  _Atomic uint32_t has_exited;
  char name[OPENREG_NAME_BYTES];              /* changed and read under the lock */
  _Atomic int32_t files[OPENREG_MAX_DEVICES]; /* descriptors of its memory files; -1: has none */
  _Atomic uint64_t inodes[OPENREG_MAX_DEVICES];
  _Atomic int64_t meters[OPENREG_MAX_DEVICES]; /* device/streams/busy_time.h */
};

/* What the meters of all processes together said once, in ticks: under the lock. */
struct control_look {
  int64_t at_ticks; /* 0: never */
  int64_t busy_ticks[OPENREG_MAX_DEVICES];
};

struct control {
  struct control_header header;
  _Atomic uint64_t used_slots;
  _Atomic int64_t watched_until_ns;               /* inline work is counted until then */
  struct control_look looks[2];                   /* the one before, the last */
  int64_t busy_ticks_before[OPENREG_MAX_DEVICES]; /* of processes that are gone; under the lock */
  struct control_record processes[OPENREG_MAX_PROCESSES];
  _Atomic uint64_t bytes[OPENREG_MAX_DEVICES][OPENREG_MAX_PROCESSES];
};

_Static_assert(sizeof(struct control_device) == 400, "the same in every process");
_Static_assert(sizeof(struct control_header) == 32 + 64 * 400, "the same in every process");
_Static_assert(sizeof(struct control_record) == 1368, "the same in every process");
_Static_assert(sizeof(struct control_look) == 520, "the same in every process");
_Static_assert(sizeof(struct control) ==
                   32 + 64 * 400 + 8 + 8 + 2 * 520 + 64 * 8 + 1024 * 1368 + 64 * 1024 * 8,
               "the same in every process");

/* A control file that this process has open. */
struct control_file {
  struct control *control; /* mapped, not inherited by forked children; NULL: not open */
  int locks;               /* the descriptor that holds this process's locks */
  int own;                 /* its slot; -1: none */
  char path[OPENREG_CONTROL_PATH_BYTES];
  uint32_t remembered[OPENREG_MAX_PROCESSES]; /* how often, by this process */
};

/* ---- the folder ------------------------------------------------------------------------------ */

void openreg_control_folder(char path[OPENREG_CONTROL_PATH_BYTES]);

/* NOT_READY: there is none. Errors: INVALID_CONFIGURATION (it is not this user's alone), SYSTEM. */
openreg_status openreg_control_check_folder(void);

/* Makes it where there is none. Errors: as above. */
openreg_status openreg_control_make_folder(void);

/* ---- the file -------------------------------------------------------------------------------- */

/* How long to wait for a control file's lock: who only looks does not hang on another's stopped
 * process. */
enum control_patience { CONTROL_WAIT, CONTROL_WAIT_A_SECOND };

/* Opens the control file of a group and locks it. NOT_READY: there is none.
 * Errors: INVALID_CONFIGURATION for a file that is no sound control file of this user, or that
 * stays locked by another process, and for such a folder; SYSTEM. */
openreg_status openreg_control_open(const char *group, enum control_patience patience,
                                    struct control_file *file);

/* Makes a control file that nobody is in, complete before it has its name; does nothing when the
 * group has one. Errors: those of openreg_control_make_folder. */
openreg_status openreg_control_create(const char *group, const struct control_header *header);

/* Removes the name of a control file that is locked and has nobody in it: nobody enters it any
 * more. */
void openreg_control_retire(struct control_file *file);

/* Lets go of all locks and of the mapping. */
void openreg_control_close(struct control_file *file);

/* ---- locks ----------------------------------------------------------------------------------- */

/* Excludes other descriptions of the file, not other threads that use this one. Waits.
 * Errors: SYSTEM. */
openreg_status openreg_control_lock(struct control_file *file);
void openreg_control_unlock(struct control_file *file);

/* Whether a process other than this one lives in the slot; in any slot. */
bool openreg_control_is_alive(const struct control_file *file, int slot);
bool openreg_control_has_others(const struct control_file *file);

/* Holds the slot for this process. False when another process has it. */
bool openreg_control_claim(struct control_file *file, int slot);
void openreg_control_unclaim(struct control_file *file, int slot);

/* Whether any process needs the slot's record. */
bool openreg_control_is_remembered(const struct control_file *file, int slot);

/* Counted: as many calls of forget as of remember. Errors of remember: SYSTEM. */
openreg_status openreg_control_remember(struct control_file *file, int slot);
void openreg_control_forget(struct control_file *file, int slot);

/* ---- slots: all under the lock --------------------------------------------------------------- */

int openreg_control_used_slots(const struct control_file *file); /* <= OPENREG_MAX_PROCESSES */

/* What others see. A process may die before and after each of these. */
void openreg_control_set_identity(struct control_file *file, int slot, uint64_t identity);
void openreg_control_set_used_slots(struct control_file *file, int used_slots);
void openreg_control_set_bytes(struct control_file *file, int device, int slot, uint64_t bytes);

/* What all processes together have of a device; UINT64_MAX when that is more. */
uint64_t openreg_control_sum(const struct control_file *file, int device);

/* Frees the slots of the dead, this process's own aside, and marks as exited the dead whose record
 * somebody needs. */
void openreg_control_reclaim(struct control_file *file);

/* ---- looks.c: all under the lock ---------------------------------------------------------------
 */

/* Looks at the meters of all processes, and has them count all work for a while: how busy each
 * device was since an earlier look, in percent; -1 when there is none that is old enough. */
void openreg_control_look(struct control_file *file, int busy_percent[OPENREG_MAX_DEVICES]);

/* Keeps what the process in a slot worked, which has ended, and clears its meters. */
void openreg_control_settle(struct control_file *file, int slot);

/* ---- text ------------------------------------------------------------------------------------ */

/* Copies text that may lack its end; what would disturb a terminal becomes '?'. */
void openreg_control_copy_text(char *text, size_t text_bytes, const char *source,
                               size_t source_bytes);

#pragma GCC visibility pop
#endif
