/* handle.h: what is in an openreg_ipc_handle.
 *
 * A handle names an entry of the table behind an arena (exports.h); all that is to be known of what
 * it stands for is read there. The check tells bytes that were cut or changed on their way from a
 * handle. It is no seal: who opens a handle believes nothing in it.
 */
#ifndef OPENREG_DEVICE_IPC_HANDLE_H
#define OPENREG_DEVICE_IPC_HANDLE_H

#include "device/ledger/ledger.h"

#pragma GCC visibility push(hidden)

struct openreg_handle {
  uint32_t version;
  uint32_t kind;   /* as in the entry */
  uint32_t number; /* of the device, in the group */
  uint32_t slot;   /* slot, group and identity are the exporter's openreg_peer */
  uint64_t group, identity;
  uint32_t index; /* of the entry */
  uint32_t point; /* of the entry's signal */
  uint64_t nonce; /* of the entry */
  uint64_t zero;
  uint64_t check;
};

_Static_assert(sizeof(struct openreg_handle) == sizeof(openreg_ipc_handle), "all bytes are used");

/* Fills in version, exporter, zero and check of a handle of this process. */
void openreg_handle_pack(struct openreg_handle parts, openreg_ipc_handle *handle);

/* False for bytes that no process of this version has packed. */
bool openreg_handle_unpack(const openreg_ipc_handle *handle, struct openreg_handle *parts);

static inline openreg_peer openreg_handle_peer(const struct openreg_handle *parts) {
  return (openreg_peer){.group = parts->group, .identity = parts->identity, .slot = parts->slot};
}

#pragma GCC visibility pop
#endif
