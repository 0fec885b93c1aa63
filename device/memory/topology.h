/* topology.h: where devices are placed on this machine, and keeping memory and threads there. */
#ifndef OPENREG_DEVICE_MEMORY_TOPOLOGY_H
#define OPENREG_DEVICE_MEMORY_TOPOLOGY_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Where each of `device_count` devices is placed on this machine. */
typedef struct openreg_topology openreg_topology;

/* NULL when the machine does not let itself be described; the functions below take that. */
openreg_topology *openreg_topology_load(int device_count);
void openreg_topology_free(openreg_topology *topology);

/* Writes the cores placed with the device, in hwloc's list form; "" when they are not known. */
void openreg_topology_list_cores(const openreg_topology *topology, int device, char *list,
                                 size_t list_bytes);

/* hwloc's OS index of the NUMA node that the device is placed on: the first of its cores' nodes. -1
 * when that is not known. */
int openreg_topology_node(const openreg_topology *topology, int device);

/* Asks for the pages of a range, none of which was touched yet, to come from the device's NUMA
 * node. False when there is no choice, the system refuses, or the topology is that of another
 * machine. */
bool openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                           size_t bytes);

/* Keeps the calling thread on those of the device's cores that the process was allowed to use when
 * the topology was loaded; on any of those when the device has none of them, or for -1. False when
 * the system refuses, or the topology is that of another machine. */
bool openreg_topology_bind_thread(const openreg_topology *topology, int device);

#pragma GCC visibility pop
#endif
