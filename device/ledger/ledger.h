/* ledger.h: the ledger, for this layer only. Extends device.h.
 *
 * A process joins once, during initialization. Other processes of the group are called peers.
 */
#ifndef OPENREG_DEVICE_LEDGER_LEDGER_H
#define OPENREG_DEVICE_LEDGER_LEDGER_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Joins the group's control file, which lists all devices of the group with the placement in
 * `properties`. The arenas must be mapped. Errors: INVALID_CONFIGURATION (the group's control file
 * has other devices, is corrupt, or belongs to another user), OUT_OF_MEMORY (too many processes),
 * SYSTEM. */
openreg_status openreg_ledger_join(const openreg_config *config,
                                   const openreg_device_properties properties[]);

/* Reserves the memory of this process's context on a device with that profile, once. Errors:
 * OUT_OF_MEMORY (does not fit), SYSTEM, NOT_PERMITTED (this process is ending). */
openreg_status openreg_ledger_reserve_context(int device, const openreg_profile *profile);

/* For a forked child: releases everything and leaves the parent's record unchanged. */
void openreg_ledger_abandon(void);

/* Identifies a process of the group in a form that can be sent: its slot in the control file, and a
 * number that no other process in that slot has, before or after it. */
typedef struct openreg_peer {
  uint64_t group;    /* identity of the control file */
  uint64_t identity; /* never 0 */
  uint32_t slot;     /* < OPENREG_MAX_PROCESSES */
} openreg_peer;

/* This process, which must have joined. */
openreg_peer openreg_ledger_self(void);

/* The process that is in a slot now. Its identity is 0 if the slot is free. */
openreg_peer openreg_ledger_peer_at(uint32_t slot);

/* Where another process of this group keeps the memory file of a device, to open it through /proc.
 * Returns false if the process is not of this group, is another process, is dead, or does not see
 * the device. */
typedef struct openreg_peer_location {
  int pid, file;
  uint64_t inode; /* inode number of the file, to verify what was opened */
} openreg_peer_location;
bool openreg_ledger_find_peer(openreg_peer peer, int device, openreg_peer_location *location);

/* Whether the process lives. Checks the lock that a process holds in the kernel as long as it
 * lives. */
bool openreg_ledger_is_alive(openreg_peer peer);

/* Keeps a process's record, if it dies, until this process unpins it or dies too. Used while memory
 * of the process is imported. Errors of pin: INVALID_ARGUMENT (already dead), SYSTEM. */
openreg_status openreg_ledger_pin_record(openreg_peer peer);
void openreg_ledger_unpin_record(openreg_peer peer);

/* Sets how many bytes of a dead process's device memory other processes still use. Errors: SYSTEM,
 * NOT_PERMITTED (this process is ending). */
openreg_status openreg_ledger_set_orphaned_bytes(openreg_peer peer, int device, uint64_t bytes);

#pragma GCC visibility pop
#endif
