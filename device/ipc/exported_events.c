/* exported_events.c: entries for this process's events, and for its recordings of events of other
 * processes. See export_table.h.
 */
#include "device/ipc/export_table.h"

#include "device/streams/stream.h"

openreg_status openreg_exports_add_event(int device, uint64_t of,
                                         struct openreg_event_entry *entry) {
  struct export_table *table;
  uint32_t index = OPENREG_NO_EXPORT;
  uint32_t kind = of == 0 ? OPENREG_EXPORT_EVENT : OPENREG_EXPORT_RECORDINGS;
  openreg_status status = openreg_export_table_lock(device, &table);
  if (status != OPENREG_OK)
    return status;
  openreg_exports_free_destroyed_events(table);
  status = openreg_export_allocate(table, &index);
  if (status == OPENREG_OK)
    status = openreg_export_fill(table, index, kind, of, 0);
  if (status == OPENREG_OK)
    *entry = (struct openreg_event_entry){.device = device,
                                          .index = index,
                                          .nonce = table->exported[index].nonce,
                                          .shared = &table->entries[index],
                                          .signal = &table->exported[index].signal};
  openreg_exports_unlock();
  return status;
}

void openreg_exports_remove_event(const struct openreg_event_entry *entry) {
  struct export_table *table = &openreg_export_tables[entry->device];
  if (openreg_streams_are_shut_down())
    return;
  openreg_exports_lock();
  openreg_signal_finish_all(entry->signal);
  atomic_store(&entry->shared->nonce, 0);
  if (!openreg_export_free_event(table, entry->index))
    openreg_export_push(table, &table->destroyed, entry->index);
  openreg_exports_unlock();
}
