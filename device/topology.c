/* topology.c: where on this machine each device lives. The only file that knows hwloc.
 *
 * Devices are spread over the machine's cores in equal shares, which puts them on different NUMA
 * nodes where there are several; a device's memory comes from the first node of its cores, and the
 * workers of its streams run on them. Nothing depends on it: a machine that cannot be described, or
 * refuses to bind, has devices all the same.
 *
 * hwloc's own variables, HWLOC_SYNTHETIC and HWLOC_XMLFILE, may describe another machine than this
 * one; cores are then those of that machine, and nothing is bound.
 */
#include "internal.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

struct openreg_topology {
  hwloc_topology_t machine;
  int device_count;
  hwloc_cpuset_t cores[OPENREG_MAX_DEVICES]; /* owned */
  hwloc_cpuset_t allowed; /* owned: where the process ran when this was loaded; NULL: not known */
};

/* A process may have been confined to some of the machine's cores, by taskset or a batch system. */
static hwloc_cpuset_t load_allowed(hwloc_topology_t machine) {
  hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
  if (allowed != NULL && hwloc_get_cpubind(machine, allowed, HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_free(allowed);
    allowed = NULL;
  }
  return allowed;
}

/* Equal shares of the cores, not of their hardware threads: two devices never split a core. */
static bool spread_devices(openreg_topology *topology) {
  hwloc_obj_t root = hwloc_get_root_obj(topology->machine);
  int depth = hwloc_get_type_or_below_depth(topology->machine, HWLOC_OBJ_CORE);
  return hwloc_distrib(topology->machine, &root, 1, topology->cores,
                       (unsigned)topology->device_count, depth, 0) == 0;
}

openreg_topology *openreg_topology_load(int device_count) {
  openreg_topology *topology = calloc(1, sizeof *topology);
  if (topology == NULL)
    return NULL;
  topology->device_count = device_count;
  if (hwloc_topology_init(&topology->machine) != 0) {
    free(topology);
    return NULL;
  }
  /* A small topology: what groups cores and memory, and nothing else. */
  hwloc_topology_set_all_types_filter(topology->machine, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_io_types_filter(topology->machine, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(topology->machine) != 0 || !spread_devices(topology)) {
    openreg_topology_free(topology);
    return NULL;
  }
  topology->allowed = load_allowed(topology->machine);
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
    /* A list that does not fit ends after a whole range, not in the middle of a number. */
    char *last_comma = strrchr(list, ',');
    *(last_comma != NULL ? last_comma : list) = '\0';
  }
}

int openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                          size_t bytes) {
  if (topology == NULL || !hwloc_topology_is_thissystem(topology->machine) ||
      hwloc_get_nbobjs_by_type(topology->machine, HWLOC_OBJ_NUMANODE) < 2)
    return -1;
  int node = -1;
  hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
  if (nodes != NULL &&
      hwloc_cpuset_to_nodeset(topology->machine, topology->cores[device], nodes) == 0) {
    hwloc_bitmap_singlify(nodes);
    /* Not HWLOC_MEMBIND_STRICT: a full node is a reason to be slower, not to fail. */
    if (hwloc_set_area_membind(topology->machine, address, bytes, nodes, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET) == 0)
      node = hwloc_bitmap_first(nodes);
  }
  hwloc_bitmap_free(nodes);
  return node;
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
  hwloc_bitmap_free(cores);
  return bound;
}
