/* device.c: starting the layer up, forks, and what can be asked of a device.
 *
 * One word says where the process stands. It goes from NEVER to READY once everything is in place,
 * under the lock, and is read without it; an attempt that fails leaves nothing behind and NEVER as
 * it was, so that the next one may succeed. A child that is forked when it is READY gets FORKED and
 * keeps it. fork takes the lock, so that no child sees an attempt half done.
 */
#include "internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { NEVER, READY, FORKED };

static _Atomic int standing = NEVER;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current_device;

/* Written while starting, constant once READY. */
static openreg_device_properties properties_of[OPENREG_MAX_DEVICES];
static openreg_topology *topology; /* kept for threads that start later */

/* ---- forks ----------------------------------------------------------------------------------- */

static int stand(void) {
  return atomic_load_explicit(&standing, memory_order_acquire);
}

static void before_fork(void) {
  pthread_mutex_lock(&starting);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&starting);
}

static void after_fork_in_child(void) {
  if (stand() == READY) {
    openreg_ledger_abandon();
    openreg_arenas_abandon();
    atomic_store_explicit(&standing, FORKED, memory_order_release);
  }
  pthread_mutex_unlock(&starting);
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void watch_forks(void) {
  fork_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

openreg_status openreg_forks_hold(void) {
  pthread_once(&fork_once, watch_forks);
  if (fork_error != 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: watching for forks: %s", strerror(fork_error));
  pthread_mutex_lock(&starting);
  return OPENREG_OK;
}

void openreg_forks_release(void) {
  pthread_mutex_unlock(&starting);
}

bool openreg_in_bad_fork(void) {
  return stand() == FORKED;
}

openreg_status openreg_require_no_bad_fork(void) {
  if (openreg_in_bad_fork())
    return openreg_fail(OPENREG_BAD_FORK,
                        "openreg: devices were initialized before this process was forked, so it "
                        "has none: start it with the 'spawn' method");
  return OPENREG_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void place_device(const openreg_config *config, int device) {
  openreg_device_properties *properties = &properties_of[device];
  properties->profile = config->profiles[device];
  properties->total_memory_bytes = config->memory_bytes[device];
  openreg_topology_list_cores(topology, device, properties->cpuset, sizeof properties->cpuset);
  size_t bytes;
  void *kernel_base = openreg_arena_kernel_base(device, &bytes);
  properties->numa_node = openreg_topology_node(topology, device);
  openreg_topology_bind(topology, device, kernel_base, bytes);
}

static openreg_status start_locked(void) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    status = openreg_arenas_map(config);
  if (status != OPENREG_OK)
    return status;
  topology = openreg_topology_load(config->device_count);
  for (int i = 0; i < config->device_count; i++)
    place_device(config, i);
  status = openreg_ledger_join(config, properties_of);
  if (status != OPENREG_OK) {
    openreg_topology_free(topology);
    topology = NULL;
    openreg_arenas_unmap();
    return status;
  }
  openreg_fault_install();
  atomic_store_explicit(&standing, READY, memory_order_release);
  return OPENREG_OK;
}

openreg_status openreg_initialize(void) {
  if (stand() == READY)
    return OPENREG_OK;
  openreg_status status = openreg_require_no_bad_fork();
  if (status != OPENREG_OK)
    return status;
  status = openreg_forks_hold();
  if (status != OPENREG_OK)
    return status;
  status = stand() == READY ? OPENREG_OK : start_locked();
  openreg_forks_release();
  return status;
}

bool openreg_is_initialized(void) {
  return stand() == READY;
}

/* ---- devices --------------------------------------------------------------------------------- */

openreg_status openreg_device_count(int *count) {
  const openreg_config *config;
  openreg_status status = openreg_config_get(&config);
  if (status == OPENREG_OK)
    *count = config->device_count;
  return status;
}

openreg_status openreg_require_device(int device) {
  static _Atomic int known_count; /* 0: not asked yet. Every launch comes by here */
  if (device >= 0 && device < atomic_load_explicit(&known_count, memory_order_relaxed))
    return OPENREG_OK;
  int count;
  openreg_status status = openreg_device_count(&count);
  if (status != OPENREG_OK)
    return status;
  atomic_store_explicit(&known_count, count, memory_order_relaxed);
  if (device < 0 || device >= count)
    return openreg_fail(OPENREG_INVALID_DEVICE,
                        "openreg: invalid device ordinal %d: expected 0 to %d", device, count - 1);
  return OPENREG_OK;
}

openreg_status openreg_require_ready(int device) {
  openreg_status status = openreg_require_device(device);
  return status == OPENREG_OK ? openreg_initialize() : status;
}

void openreg_device_bind_thread(int device) {
  openreg_topology_bind_thread(topology, device);
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
    *properties = properties_of[device];
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
