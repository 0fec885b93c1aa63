/* device.c: initialization, and the properties of devices.
 *
 * openreg_initialize reads the configuration, maps the arenas, loads the topology, binds the
 * arenas, joins the group's ledger and installs the fault handler, in this order. A failed attempt
 * leaves nothing behind, so a later one may succeed. Forks are blocked meanwhile, so no child sees
 * a half-done attempt. A child that is forked from an initialized process releases everything.
 */
#include "device/device.h"

#include "base/forks.h"
#include "device/ledger/ledger.h"
#include "device/memory/arena.h"
#include "device/memory/fault.h"
#include "device/memory/topology.h"
#include "device/process/config.h"
#include "device/process/state.h"
#include "device/process/visible_devices.h"

static _Thread_local int current_device;

/* Written during initialization, constant afterwards. */
static openreg_device_properties properties_of[OPENREG_MAX_DEVICES]; /* by group index */
static openreg_topology *topology; /* for threads that start later */

static void after_fork_in_child(void) {
  if (!openreg_is_initialized())
    return;
  openreg_ledger_abandon();
  openreg_arenas_abandon();
  openreg_process_set_state(OPENREG_PROCESS_FORKED);
}

static struct openreg_fork_handlers fork_handlers =
    OPENREG_FORK_HANDLERS(NULL, NULL, after_fork_in_child);

/* ---- initializing ---------------------------------------------------------------------------- */

static void place_device(const openreg_config *config, const char *group, int index) {
  openreg_device_properties *properties = &properties_of[index];
  properties->profile = config->profiles[index];
  properties->total_memory_bytes = config->memory_bytes[index];
  properties->group_index = index;
  openreg_device_make_uuid(group, index, properties->uuid);
  openreg_topology_list_cores(topology, index, properties->cpuset, sizeof properties->cpuset);
  properties->numa_node = openreg_topology_node(topology, index);
}

static void bind_arena(int device) {
  size_t bytes;
  void *kernel_base = openreg_arena_kernel_base(device, &bytes);
  openreg_topology_bind(topology, openreg_visible_group_index(device), kernel_base, bytes);
}

static openreg_status start_locked(void) {
  const openreg_config *config;
  const struct openreg_visible *visible;
  openreg_status status = openreg_require_any_device();
  if (status == OPENREG_OK)
    status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    status = openreg_visible_get(&visible);
  if (status == OPENREG_OK)
    status = openreg_arenas_map(config, visible->count);
  if (status != OPENREG_OK)
    return status;
  topology = openreg_topology_load(config->device_count);
  char group[OPENREG_GROUP_NAME_BYTES];
  openreg_config_name_group(config, group);
  for (int i = 0; i < config->device_count; i++)
    place_device(config, group, i);
  for (int i = 0; i < visible->count; i++)
    bind_arena(i);
  status = openreg_ledger_join(config, properties_of);
  if (status != OPENREG_OK) {
    openreg_topology_free(topology);
    topology = NULL;
    openreg_arenas_unmap();
    return status;
  }
  openreg_fault_install();
  openreg_process_set_state(OPENREG_PROCESS_READY);
  return OPENREG_OK;
}

openreg_status openreg_initialize(void) {
  if (openreg_is_initialized())
    return OPENREG_OK;
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  status = openreg_forks_register(&fork_handlers);
  if (status == OPENREG_OK)
    status = openreg_forks_block();
  if (status != OPENREG_OK)
    return status;
  status = openreg_is_initialized() ? OPENREG_OK : start_locked();
  openreg_forks_unblock();
  return status;
}

/* ---- contexts -------------------------------------------------------------------------------- */

openreg_status openreg_context_create(int device) {
  const openreg_config *config;
  openreg_status status = openreg_require_ready(device);
  if (status == OPENREG_OK)
    status = openreg_config_get(&config);
  if (status == OPENREG_OK && config->gpu_overhead)
    status = openreg_ledger_reserve_context(
        device, &properties_of[openreg_visible_group_index(device)].profile);
  if (status == OPENREG_OK)
    openreg_process_set_context(device);
  return status;
}

openreg_status openreg_device_create_context(int device) {
  const openreg_config *config;
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_config_get(&config);
  if (status == OPENREG_OK && config->gpu_overhead)
    return openreg_require_context(device);
  if (status == OPENREG_OK && openreg_is_initialized())
    openreg_process_set_context(device); /* it takes no memory */
  return status;
}

/* ---- devices --------------------------------------------------------------------------------- */

void openreg_device_bind_thread(int device) {
  openreg_topology_bind_thread(topology, device < 0 ? -1 : openreg_visible_group_index(device));
}

int openreg_device_current(void) {
  return current_device;
}

openreg_status openreg_device_set_current(int device) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    current_device = device;
  return status;
}

openreg_status openreg_device_get_properties(int device, openreg_device_properties *properties) {
  openreg_status status = openreg_require_ready(device);
  if (status == OPENREG_OK)
    *properties = properties_of[openreg_visible_group_index(device)];
  return status;
}

openreg_status openreg_device_can_access_peer(int device, int peer, bool *can_access) {
  openreg_status status = openreg_require_device(device);
  if (status == OPENREG_OK)
    status = openreg_require_device(peer);
  if (status == OPENREG_OK)
    *can_access = device != peer;
  return status;
}
