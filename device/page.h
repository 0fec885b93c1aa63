/* page.h: the control page of a group: who is in it, and how much of each device they have.
 *
 * A file of fixed size in /dev/shm, mapped by every process of the group. The locks of the kernel
 * on bytes of that file ("open file description locks") are its mutex and its proof of life, since
 * they end with the process that holds them, by whatever death, at whatever instant, and no byte of
 * the file can forge them:
 *
 *     byte 0             held while the page is changed or read as a whole
 *     byte 1 + slot      held for writing by the process in that slot, as long as it lives
 *     byte 1025 + slot   held for reading by each process that still needs that slot's record
 *
 * The locks belong to a description of the file that no mapping refers to and no forked child
 * keeps: either would hold them longer than the process lives.
 *
 * - bytes[device][slot] is what that process has, stored by it alone while it lives; what is used
 *   of a device is always their sum and stored nowhere, so no death between two stores makes it
 *   wrong. bytes of a free slot are 0.
 * - A slot is free when its identity is 0. The identity is stored last on entering and cleared last
 *   on leaving; all that lies beyond used_slots is free.
 * - A page without its name is entered by nobody. The name is removed under the page's lock, when
 *   nobody is in it, so two pages that are in use never have one name.
 *
 * A process that is stopped while it holds byte 0 makes the others wait.
 *
 * The page is written by other processes, which may be broken: what is read from it is checked or
 * cut where it is used. Only a file that is made shorter while it is mapped is not survived.
 */
#ifndef OPENREG_DEVICE_PAGE_H
#define OPENREG_DEVICE_PAGE_H

#include "internal.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

#define OPENREG_PAGE_FOLDER "/dev/shm"

enum { OPENREG_PAGE_VERSION = 1, OPENREG_PAGE_PATH_BYTES = OPENREG_GROUP_NAME_BYTES + 64 };

struct page_device {
  uint64_t capacity_bytes;
  int64_t numa_node;
  char profile[OPENREG_NAME_BYTES];
  char name[OPENREG_NAME_BYTES];
  char cpuset[256];
};

/* Written before the page has a name, and constant. */
struct page_header {
  char magic[8];
  uint32_t version, page_bytes;
  uint64_t identity; /* of this page among all that ever were */
  uint64_t device_count;
  struct page_device devices[OPENREG_MAX_DEVICES];
};

struct page_process {
  _Atomic uint64_t identity;
  _Atomic int64_t started_ns;
  _Atomic int32_t pid;
  _Atomic uint32_t has_exited;
  char name[OPENREG_NAME_BYTES];              /* changed and read under the lock */
  _Atomic int32_t files[OPENREG_MAX_DEVICES]; /* descriptors of its memory files */
  _Atomic uint64_t inodes[OPENREG_MAX_DEVICES];
};

struct page {
  struct page_header header;
  _Atomic uint64_t used_slots;
  struct page_process processes[OPENREG_MAX_PROCESSES];
  _Atomic uint64_t bytes[OPENREG_MAX_DEVICES][OPENREG_MAX_PROCESSES];
};

_Static_assert(sizeof(struct page_device) == 400, "the same in every process");
_Static_assert(sizeof(struct page_header) == 32 + 64 * 400, "the same in every process");
_Static_assert(sizeof(struct page_process) == 856, "the same in every process");
_Static_assert(sizeof(struct page) == 32 + 64 * 400 + 8 + 1024 * 856 + 64 * 1024 * 8,
               "the same in every process");

/* A page that this process has open. */
struct page_file {
  struct page *page; /* mapped, not inherited by forked children; NULL: not open */
  int locks;         /* the descriptor that holds this process's locks */
  int own;           /* its slot; -1: none */
  char path[OPENREG_PAGE_PATH_BYTES];
  uint32_t remembered[OPENREG_MAX_PROCESSES]; /* how often, by this process */
};

/* ---- the file -------------------------------------------------------------------------------- */

/* What pages of this user are called, in OPENREG_PAGE_FOLDER, before the name of their group. */
void openreg_page_prefix(char prefix[OPENREG_PAGE_PATH_BYTES]);

/* How long to wait for a page's lock: who only looks does not hang on another's stopped process. */
enum page_patience { PAGE_WAIT, PAGE_WAIT_A_SECOND };

/* Opens the page of a group and locks it. NOT_READY: there is none.
 * Errors: INVALID_CONFIGURATION for a file that is no sound page of this user, or that stays locked
 * by another process; SYSTEM. */
openreg_status openreg_page_open(const char *group, enum page_patience patience,
                                 struct page_file *file);

/* Makes a page that nobody is in, complete before it has its name; does nothing when the group has
 * one. Errors: SYSTEM. */
openreg_status openreg_page_create(const char *group, const struct page_header *header);

/* Removes the name of a page that is locked, with nobody in it: it is entered by nobody any more.
 */
void openreg_page_retire(struct page_file *file);

/* Lets go of all locks and of the mapping. */
void openreg_page_close(struct page_file *file);

/* ---- locks ----------------------------------------------------------------------------------- */

/* Excludes other descriptions of the file, not other threads that use this one. Waits.
 * Errors: SYSTEM. */
openreg_status openreg_page_lock(struct page_file *file);
void openreg_page_unlock(struct page_file *file);

/* Whether a process other than this one lives in the slot; in any slot. */
bool openreg_page_is_alive(const struct page_file *file, int slot);
bool openreg_page_has_others(const struct page_file *file);

/* Holds the slot for this process. False when another process has it. */
bool openreg_page_claim(struct page_file *file, int slot);
void openreg_page_unclaim(struct page_file *file, int slot);

/* Whether any process needs the slot's record. */
bool openreg_page_is_remembered(const struct page_file *file, int slot);

/* Counted: as many calls of forget as of remember. Errors of remember: SYSTEM. */
openreg_status openreg_page_remember(struct page_file *file, int slot);
void openreg_page_forget(struct page_file *file, int slot);

/* ---- slots: all under the lock --------------------------------------------------------------- */

int openreg_page_used_slots(const struct page_file *file); /* <= OPENREG_MAX_PROCESSES */

/* What others see. A process may die before and after each of these. */
void openreg_page_set_identity(struct page_file *file, int slot, uint64_t identity);
void openreg_page_set_used_slots(struct page_file *file, int used_slots);
void openreg_page_set_bytes(struct page_file *file, int device, int slot, uint64_t bytes);

/* What all processes together have of a device; UINT64_MAX when that is more. */
uint64_t openreg_page_sum(const struct page_file *file, int device);

/* Frees the slots of the dead, this process's own aside, and marks as exited the dead whose record
 * somebody needs. */
void openreg_page_reclaim(struct page_file *file);

/* Copies text that may lack its end; what would disturb a terminal becomes '?'. */
void openreg_page_copy_text(char *text, size_t text_bytes, const char *source, size_t source_bytes);

#pragma GCC visibility pop
#endif
