/* topology.c: places devices on the cores and NUMA nodes of this machine. The only file that uses
 * hwloc.
 *
 * Devices get equal shares of the machine's cores, which puts them on different NUMA nodes if there
 * are several. A device is placed on the first node of its cores. Its memory is allocated there,
 * and the workers of its streams run on its cores. Placement only affects speed: devices also work
 * on a machine that hwloc cannot describe or that refuses to bind.
 *
 * HWLOC_SYNTHETIC and HWLOC_XMLFILE may describe another machine. Then the cores are those of that
 * machine, and nothing is bound.
 */
#include "device/memory/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct openreg_topology {
  hwloc_topology_t machine;
  int device_count;
  hwloc_cpuset_t cores[OPENREG_MAX_DEVICES]; /* owned */
  hwloc_cpuset_t allowed; /* owned: cores that this process could use; NULL: unknown */
};

/* Being slower is not a failure, but users should know the reason: one line on stderr per
 * process. */
static void warn_once(const char *what, const char *why) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    fprintf(stderr, "openreg: %s (%s); devices still work, but may be slower\n", what, why);
}

/* taskset or a batch system may have restricted the process to some cores. */
static hwloc_cpuset_t load_allowed(hwloc_topology_t machine) {
  hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
  if (allowed != NULL && hwloc_get_cpubind(machine, allowed, HWLOC_CPUBIND_PROCESS) != 0) {
    if (hwloc_topology_is_thissystem(machine))
      warn_once("cannot determine which cores this process may use", strerror(errno));
    hwloc_bitmap_free(allowed);
    allowed = NULL;
  }
  return allowed;
}

/* Assigns consecutive whole cores in the machine's order. The counts differ by at most one; if
 * there are more devices than cores, neighbors share a core. hwloc_distrib would divide among
 * packages and nodes first: of three devices on two packages, one would get twice as many cores as
 * the others.
 */
static bool spread_devices(openreg_topology *topology) {
  int depth = hwloc_get_type_or_below_depth(topology->machine, HWLOC_OBJ_CORE);
  int core_count = (int)hwloc_get_nbobjs_by_depth(topology->machine, depth);
  if (core_count == 0)
    return false;
  for (int i = 0; i < topology->device_count; i++) {
    int first = i * core_count / topology->device_count;
    int end = (i + 1) * core_count / topology->device_count;
    topology->cores[i] = hwloc_bitmap_alloc();
    if (topology->cores[i] == NULL)
      return false;
    for (int core = first; core == first || core < end; core++) {
      hwloc_obj_t object = hwloc_get_obj_by_depth(topology->machine, depth, (unsigned)core);
      if (hwloc_bitmap_or(topology->cores[i], topology->cores[i], object->cpuset) != 0)
        return false;
    }
  }
  return true;
}

static openreg_topology *load(int device_count) {
  openreg_topology *topology = calloc(1, sizeof *topology);
  if (topology == NULL)
    return NULL;
  topology->device_count = device_count;
  if (hwloc_topology_init(&topology->machine) != 0) {
    free(topology);
    return NULL;
  }
  /* A small topology is enough: only the objects that group cores and memory. The operating system
   * knows them. hwloc's component "x86" asks each core itself, and waits for those that are busy.
   * Elsewhere hwloc has no such component, and the call fails. */
  (void)hwloc_topology_set_components(topology->machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      "x86");
  hwloc_topology_set_all_types_filter(topology->machine, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_io_types_filter(topology->machine, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(topology->machine) != 0 || !spread_devices(topology)) {
    openreg_topology_free(topology);
    return NULL;
  }
  topology->allowed = load_allowed(topology->machine);
  return topology;
}

openreg_topology *openreg_topology_load(int device_count) {
  openreg_topology *topology = load(device_count);
  if (topology == NULL)
    warn_once("cannot place devices on cores and NUMA nodes", "hwloc cannot describe this machine");
  return topology;
}

void openreg_topology_free(openreg_topology *topology) {
  if (topology == NULL)
    return;
  for (int i = 0; i < topology->device_count; i++)
    hwloc_bitmap_free(topology->cores[i]);
  hwloc_bitmap_free(topology->allowed);
  hwloc_topology_destroy(topology->machine);
  free(topology);
}

void openreg_topology_list_cores(const openreg_topology *topology, int device, char *list,
                                 size_t list_bytes) {
  list[0] = '\0';
  if (topology == NULL)
    return;
  int length = hwloc_bitmap_list_snprintf(list, list_bytes, topology->cores[device]);
  if (length < 0 || (size_t)length >= list_bytes) {
    /* Cut a list that does not fit after a whole range, not inside a number. */
    char *last_comma = strrchr(list, ',');
    *(last_comma != NULL ? last_comma : list) = '\0';
  }
}

/* Returns the first node of the device's cores, or NULL if there is none. */
static hwloc_obj_t node_of(const openreg_topology *topology, int device) {
  hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
  hwloc_obj_t node = NULL;
  if (nodes != NULL &&
      hwloc_cpuset_to_nodeset(topology->machine, topology->cores[device], nodes) == 0)
    node =
        hwloc_get_numanode_obj_by_os_index(topology->machine, (unsigned)hwloc_bitmap_first(nodes));
  hwloc_bitmap_free(nodes);
  return node;
}

int openreg_topology_node(const openreg_topology *topology, int device) {
  hwloc_obj_t node = topology == NULL ? NULL : node_of(topology, device);
  return node == NULL ? -1 : (int)node->os_index;
}

bool openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                           size_t bytes) {
  if (topology == NULL || !hwloc_topology_is_thissystem(topology->machine) ||
      hwloc_get_nbobjs_by_type(topology->machine, HWLOC_OBJ_NUMANODE) < 2)
    return false;
  hwloc_obj_t node = node_of(topology, device);
  if (node == NULL)
    return false;
  /* Not HWLOC_MEMBIND_STRICT: if the node is full, memory from another node is better than a
   * failure. */
  bool bound = hwloc_set_area_membind(topology->machine, address, bytes, node->nodeset,
                                      HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
  if (!bound)
    warn_once("cannot bind device memory to NUMA nodes", strerror(errno));
  return bound;
}

bool openreg_topology_bind_thread(const openreg_topology *topology, int device) {
  if (topology == NULL || topology->allowed == NULL ||
      !hwloc_topology_is_thissystem(topology->machine))
    return false;
  hwloc_cpuset_t cores = hwloc_bitmap_dup(device < 0 ? topology->allowed : topology->cores[device]);
  if (cores == NULL)
    return false;
  hwloc_bitmap_and(cores, cores, topology->allowed);
  if (hwloc_bitmap_iszero(cores))
    hwloc_bitmap_copy(cores, topology->allowed);
  bool bound = hwloc_set_cpubind(topology->machine, cores, HWLOC_CPUBIND_THREAD) == 0;
  if (!bound)
    warn_once("cannot bind device threads to cores", strerror(errno));
  hwloc_bitmap_free(cores);
  return bound;
}
