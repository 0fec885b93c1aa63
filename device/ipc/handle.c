/* handle.c: converts handles to bytes and back. */
#include "device/ipc/handle.h"

#include <stddef.h>
#include <string.h>

enum { VERSION = 0x6f720001 };

/* FNV-1a, 64 bits, of all preceding bytes. */
static uint64_t check_of(const struct openreg_handle *parts) {
  const unsigned char *bytes = (const unsigned char *)parts;
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < offsetof(struct openreg_handle, check); i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

void openreg_handle_pack(struct openreg_handle parts, openreg_ipc_handle *handle) {
  openreg_peer self = openreg_ledger_self();
  parts.version = VERSION;
  parts.slot = self.slot;
  parts.group = self.group;
  parts.identity = self.identity;
  parts.zero = 0;
  parts.check = check_of(&parts);
  memcpy(handle->bytes, &parts, sizeof parts);
}

bool openreg_handle_unpack(const openreg_ipc_handle *handle, struct openreg_handle *parts) {
  memcpy(parts, handle->bytes, sizeof *parts);
  return parts->version == VERSION && parts->zero == 0 && parts->check == check_of(parts);
}
