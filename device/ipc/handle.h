/* handle.h: the contents of an openreg_ipc_handle.
 *
 * A handle names an entry of an export table (exports.h), which holds all further information. The
 * checksum detects bytes that were truncated or changed in transit. It does not authenticate: a
 * process that opens a handle must not trust its contents.
 */
#ifndef OPENREG_DEVICE_IPC_HANDLE_H
#define OPENREG_DEVICE_IPC_HANDLE_H

#include "device/ledger/ledger.h"

#pragma GCC visibility push(hidden)

struct openreg_handle {
  uint32_t version;
  uint32_t kind;        /* same as in the entry */
  uint32_t group_index; /* of the device */
  uint32_t slot;        /* slot, group and identity are the exporter's openreg_peer */
  uint64_t group, identity;
  uint32_t index; /* of the entry */
  uint32_t point; /* of the entry's signal */
  uint64_t nonce; /* of the entry */
  uint64_t zero;
  uint64_t check;
};

_Static_assert(sizeof(struct openreg_handle) == sizeof(openreg_ipc_handle), "all bytes are used");

/* Packs a handle of this process. Fills in version, exporter, zero and check. */
void openreg_handle_pack(struct openreg_handle parts, openreg_ipc_handle *handle);

/* Returns false if the bytes were not packed by a process with this version. */
bool openreg_handle_unpack(const openreg_ipc_handle *handle, struct openreg_handle *parts);

static inline openreg_peer openreg_handle_peer(const struct openreg_handle *parts) {
  return (openreg_peer){.group = parts->group, .identity = parts->identity, .slot = parts->slot};
}

#pragma GCC visibility pop
#endif
