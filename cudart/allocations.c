/* allocations.c: the table of the device memory that this library has taken.
 *
 * The allocator knows where memory starts but not what a pointer into the middle belongs to, nor
 * who owns it. One array has all of this library's memory in address order.
 *
 * Memory that other processes imported must not be reused. If it is freed, it moves to a second
 * list, and goes back to the device when nobody has it open. The list is looked through at each
 * allocation and each free.
 */
#include "cudart/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list {
  struct cudart_allocation *entries;
  size_t count, room;
};

static struct list table, /* in address order */
    awaiting;             /* freed while other processes have it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- lists ----------------------------------------------------------------------------------- */

static bool ensure_room(struct list *list) {
  enum { FIRST_ROOM = 64 };
  if (list->count < list->room)
    return true;
  size_t room = list->room > 0 ? 2 * list->room : FIRST_ROOM;
  struct cudart_allocation *entries = realloc(list->entries, room * sizeof *entries);
  if (entries == NULL)
    return false;
  list->entries = entries;
  list->room = room;
  return true;
}

/* Returns the index of the first entry that starts after `address`. */
static size_t find_after(const struct list *list, const char *address) {
  size_t low = 0, high = list->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (list->entries[middle].address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void insert(struct list *list, size_t at, const struct cudart_allocation *entry) {
  memmove(list->entries + at + 1, list->entries + at, (list->count - at) * sizeof *entry);
  list->entries[at] = *entry;
  list->count++;
}

static void erase(struct list *list, size_t at) {
  list->count--;
  memmove(list->entries + at, list->entries + at + 1, (list->count - at) * sizeof *list->entries);
}

/* Finds the entry of the table that contains an address; NULL if none does. */
static struct cudart_allocation *find(const void *address) {
  size_t after = find_after(&table, address);
  struct cudart_allocation *entry = after > 0 ? &table.entries[after - 1] : NULL;
  return entry != NULL && (const char *)address < entry->address + entry->bytes ? entry : NULL;
}

/* ---- memory that other processes have -------------------------------------------------------- */

static openreg_status free_exported(struct cudart_allocation *entry) {
  openreg_status status = openreg_ipc_withdraw(entry->address);
  return status == OPENREG_OK ? openreg_device_free(entry->address) : status;
}

static void look_through_awaiting(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = awaiting.count; i > 0; i--)
    if (free_exported(&awaiting.entries[i - 1]) != OPENREG_NOT_READY)
      erase(&awaiting, i - 1);
  pthread_mutex_unlock(&lock);
}

/* The host's access is a property of whole pages. Device memory is allocated in larger units. */
static openreg_status set_host_access(const struct cudart_allocation *entry, bool is_allowed) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return openreg_arena_set_host_access(entry->address, (entry->bytes + page - 1) / page * page,
                                       is_allowed);
}

static openreg_status release(struct cudart_allocation *entry) {
  if (entry->is_managed)
    (void)set_host_access(entry, false);
  if (!entry->is_exported)
    return openreg_device_free(entry->address);
  openreg_status status = openreg_device_drain(entry->device);
  if (status == OPENREG_OK)
    status = free_exported(entry);
  if (status != OPENREG_NOT_READY)
    return status;
  pthread_mutex_lock(&lock);
  bool has_room = ensure_room(&awaiting);
  if (has_room)
    insert(&awaiting, awaiting.count, entry);
  pthread_mutex_unlock(&lock);
  return has_room ? OPENREG_OK
                  : openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory to free memory");
}

/* ---- shared functions ------------------------------------------------------------------------ */

openreg_status cudart_allocate(int device, size_t bytes, cudaMemPool_t pool, void **address) {
  look_through_awaiting();
  void *memory;
  openreg_status status = openreg_device_malloc(device, bytes, &memory);
  if (status != OPENREG_OK)
    return status;
  const struct cudart_allocation entry = {
      .address = memory, .bytes = bytes, .device = device, .pool = pool};
  pthread_mutex_lock(&lock);
  bool has_room = ensure_room(&table);
  if (has_room)
    insert(&table, find_after(&table, memory), &entry);
  pthread_mutex_unlock(&lock);
  if (!has_room) {
    (void)openreg_device_free(memory);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for an allocation");
  }
  *address = memory;
  return OPENREG_OK;
}

openreg_status cudart_release(void *address) {
  struct cudart_allocation entry = {0};
  pthread_mutex_lock(&lock);
  struct cudart_allocation *found = find(address);
  if (found != NULL && found->address == address) {
    entry = *found;
    erase(&table, (size_t)(found - table.entries));
  }
  pthread_mutex_unlock(&lock);
  if (entry.address == NULL)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "openreg: no memory of cudaMalloc starts at %p",
                        address);
  cudart_report_memory(OPENREG_OPERATION_FREE, entry.device, entry.address, entry.bytes);
  openreg_status status = release(&entry);
  look_through_awaiting();
  return status;
}

bool cudart_find_allocation(const void *address, struct cudart_allocation *result) {
  pthread_mutex_lock(&lock);
  const struct cudart_allocation *found = find(address);
  if (found != NULL)
    *result = *found;
  pthread_mutex_unlock(&lock);
  return found != NULL;
}

openreg_status cudart_make_managed(void *address) {
  openreg_status status = OPENREG_OK;
  pthread_mutex_lock(&lock);
  struct cudart_allocation *found = find(address);
  if (found != NULL) {
    status = set_host_access(found, true);
    found->is_managed = status == OPENREG_OK;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void cudart_mark_exported(void *address) {
  pthread_mutex_lock(&lock);
  struct cudart_allocation *found = find(address);
  if (found != NULL)
    found->is_exported = true;
  pthread_mutex_unlock(&lock);
}

void cudart_release_device(int device) {
  for (;;) {
    void *address = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table.count && address == NULL; i++)
      if (table.entries[i].device == device)
        address = table.entries[i].address;
    pthread_mutex_unlock(&lock);
    if (address == NULL)
      return;
    (void)cudart_release(address);
  }
}
