/* foresee.c: what the devices would be, for who plans: nothing is initialized, nobody joins. */
#include "internal.h"

#include <string.h>

static void foresee_device(const openreg_config *config, const openreg_topology *topology,
                           int index, openreg_ledger_device *device) {
  memcpy(device->profile, config->profiles[index].key, sizeof device->profile);
  memcpy(device->name, config->profiles[index].name, sizeof device->name);
  device->total_bytes = config->memory_bytes[index];
  device->used_bytes = 0;
  device->numa_node = openreg_topology_node(topology, index);
  openreg_topology_list_cores(topology, index, device->cpuset, sizeof device->cpuset);
}

openreg_status openreg_ledger_foresee(openreg_ledger_picture *picture) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status != OPENREG_OK)
    return status;
  openreg_topology *topology = openreg_topology_load(config->device_count);
  openreg_config_name_group(config, picture->group);
  picture->device_count = config->device_count;
  picture->process_count = 0;
  picture->processes = NULL;
  for (int i = 0; i < config->device_count; i++)
    foresee_device(config, topology, i, &picture->devices[i]);
  openreg_topology_free(topology);
  return OPENREG_OK;
}
