/* ledger.h: how much of each device is in use, and by whom: beside device.h.
 *
 * Joined once, on start-up; other processes of the group are known here as peers.
 */
#ifndef OPENREG_DEVICE_LEDGER_LEDGER_H
#define OPENREG_DEVICE_LEDGER_LEDGER_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Joins the group's control file, with all devices of the group as `properties` place them; the
 * arenas are mapped. Errors: INVALID_CONFIGURATION (a control file of that group with other
 * devices, or one that is corrupt or foreign), OUT_OF_MEMORY (too many processes), SYSTEM. */
openreg_status openreg_ledger_join(const openreg_config *config,
                                   const openreg_device_properties properties[]);

/* Takes this process's context on a device, which has that profile, unless it has it.
 * Errors: OUT_OF_MEMORY when it does not fit, SYSTEM, NOT_PERMITTED when this process is ending. */
openreg_status openreg_ledger_take_context(int device, const openreg_profile *profile);

/* In a forked child: lets go of everything, and leaves the parent's record as it is. */
void openreg_ledger_abandon(void);

/* A process of the group, in words that can be sent: its place in the control file, and a number
 * that no other process in that place, before or after, has. */
typedef struct openreg_peer {
  uint64_t group;    /* which control file */
  uint64_t identity; /* never 0 */
  uint32_t slot;     /* < OPENREG_MAX_PROCESSES */
} openreg_peer;

/* This process. It must have joined. */
openreg_peer openreg_ledger_self(void);

/* The process that has a place, < OPENREG_MAX_PROCESSES, now; its identity is 0 when none has. */
openreg_peer openreg_ledger_peer_at(uint32_t slot);

/* Where another process of this group keeps the memory file of a device, for opening it through
 * /proc. False when it is not of this group, not that process, dead, or does not see the device. */
typedef struct openreg_peer_location {
  int pid, file;
  uint64_t inode; /* of the file: what is opened must be it */
} openreg_peer_location;
bool openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_location *location);

/* Whether the process lives. Asks the kernel, by the lock that a process holds as long as it
 * lives. */
bool openreg_ledger_is_alive(openreg_peer peer);

/* Keeps a process's record, should it die, until this process forgets it or dies itself: for memory
 * of it that is imported. Errors of remember: INVALID_ARGUMENT when it is dead already, SYSTEM. */
openreg_status openreg_ledger_remember(openreg_peer peer);
void openreg_ledger_forget(openreg_peer peer);

/* States how much of a dead process's device memory is still there, in other processes' use.
 * Errors: SYSTEM, NOT_PERMITTED when this process is ending. */
openreg_status openreg_ledger_set_remains(openreg_peer peer, int device, uint64_t bytes);

#pragma GCC visibility pop
#endif
