/* preview.c: the snapshot of a group without processes, from the configuration alone. */
#include "device/memory/topology.h"

#include <string.h>

#include "device/process/config.h"

static void preview_device(const openreg_config *config, const openreg_topology *topology,
                           const char *group, int index, openreg_ledger_device *device) {
  memcpy(device->profile, config->profiles[index].key, sizeof device->profile);
  memcpy(device->name, config->profiles[index].name, sizeof device->name);
  openreg_device_make_uuid(group, index, device->uuid);
  device->multiprocessor_count = config->profiles[index].multiprocessor_count;
  device->major = config->profiles[index].major;
  device->minor = config->profiles[index].minor;
  device->total_bytes = config->memory_bytes[index];
  device->used_bytes = 0;
  device->busy_percent = 0;
  device->numa_node = openreg_topology_node(topology, index);
  openreg_topology_list_cores(topology, index, device->cpuset, sizeof device->cpuset);
}

openreg_status openreg_ledger_preview(openreg_ledger_snapshot *snapshot) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status != OPENREG_OK)
    return status;
  openreg_topology *topology = openreg_topology_load(config->device_count);
  openreg_config_name_group(config, snapshot->group);
  snapshot->device_count = config->device_count;
  snapshot->process_count = 0;
  snapshot->processes = NULL;
  for (int i = 0; i < config->device_count; i++)
    preview_device(config, topology, snapshot->group, i, &snapshot->devices[i]);
  openreg_topology_free(topology);
  return OPENREG_OK;
}
