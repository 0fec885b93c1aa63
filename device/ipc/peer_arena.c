/* peer_arena.c: whole arenas of other processes, for processes that compute on each other's memory.
 *
 * The handle contains the location of the memory file, which otherwise comes from the ledger. There
 * is no entry in the export table and no lock that keeps the memory: the owner tells by other means
 * which bytes may be accessed and when. The arena is mapped at any address, because this process
 * may not see the owner's device.
 */
#include "device/ipc/handle.h"
#include "device/ipc/imports.h"
#include "device/memory/arena.h"
#include "device/process/state.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

openreg_status openreg_ipc_export_arena(int device, openreg_ipc_handle *handle) {
  openreg_status status = openreg_require_context(device);
  if (status != OPENREG_OK)
    return status;
  struct stat file;
  if (fstat(openreg_arena_file(device), &file) != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot examine the memory file of device %d: %s",
                        device, strerror(errno));
  struct openreg_handle parts = {
      .kind = OPENREG_EXPORT_ARENA,
      .group_index = (uint32_t)device,
      .index = (uint32_t)openreg_arena_file(device),
      .point = (uint32_t)getpid(),
      .nonce = file.st_ino,
  };
  openreg_handle_pack(parts, handle);
  return OPENREG_OK;
}

static bool is_own(const struct openreg_handle *parts) {
  openreg_peer self = openreg_ledger_self(), owner = openreg_handle_peer(parts);
  return owner.group == self.group && owner.identity == self.identity && owner.slot == self.slot;
}

static openreg_status map_arena(const struct openreg_handle *parts, openreg_peer_arena *arena) {
  openreg_peer_location location = {
      .pid = (int)parts->point, .file = (int)parts->index, .inode = parts->nonce};
  int file;
  uint64_t bytes;
  openreg_status status = openreg_peer_memory_file_open(&location, &file, &bytes);
  if (status != OPENREG_OK)
    return status;
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  int error = errno;
  close(file);
  if (base == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot map the memory of process %d: %s",
                        location.pid, strerror(error));
  /* Useless for a child, and not this process's memory to put into a core file. */
  (void)madvise(base, bytes, MADV_DONTFORK);
  (void)madvise(base, bytes, MADV_DONTDUMP);
  *arena = (openreg_peer_arena){.base = base, .bytes = bytes, .pid = location.pid, .mapped = true};
  return OPENREG_OK;
}

openreg_status openreg_ipc_open_arena(const openreg_ipc_handle *handle, openreg_peer_arena *arena) {
  openreg_status status = openreg_initialize();
  if (status != OPENREG_OK)
    return status;
  struct openreg_handle parts;
  if (!openreg_handle_unpack(handle, &parts) || parts.kind != OPENREG_EXPORT_ARENA)
    return openreg_import_refuse("it is not a handle of an arena");
  if (!is_own(&parts))
    return map_arena(&parts, arena);
  size_t bytes;
  void *base = openreg_arena_kernel_base((int)parts.group_index, &bytes);
  *arena = (openreg_peer_arena){.base = base, .bytes = bytes, .pid = (int)parts.point};
  return OPENREG_OK;
}

void openreg_ipc_close_arena(openreg_peer_arena *arena) {
  if (arena->mapped)
    munmap(arena->base, arena->bytes);
  *arena = (openreg_peer_arena){0};
}
