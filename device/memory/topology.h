/* topology.h: placement of devices on this machine, and binding memory and threads to it. */
#ifndef OPENREG_DEVICE_MEMORY_TOPOLOGY_H
#define OPENREG_DEVICE_MEMORY_TOPOLOGY_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* The placement of `device_count` devices on this machine. */
typedef struct openreg_topology openreg_topology;

/* Returns NULL if the machine cannot be described; the functions below accept NULL. */
openreg_topology *openreg_topology_load(int device_count);
void openreg_topology_free(openreg_topology *topology);

/* Writes the device's cores in hwloc's list format; "" if they are unknown. */
void openreg_topology_list_cores(const openreg_topology *topology, int device, char *list,
                                 size_t list_bytes);

/* hwloc's OS index of the device's NUMA node, the first node of its cores. -1: unknown. */
int openreg_topology_node(const openreg_topology *topology, int device);

/* Binds a range of pages that nobody has accessed yet to the device's NUMA node. Returns false
 * if there is only one node, if the system refuses, or if the topology describes another
 * machine. */
bool openreg_topology_bind(const openreg_topology *topology, int device, void *address,
                           size_t bytes);

/* Binds the calling thread to those cores of the device that the process was allowed to use when
 * the topology was loaded. If there are none, or for -1, binds it to all allowed cores. Returns
 * false if the system refuses or if the topology describes another machine. */
bool openreg_topology_bind_thread(const openreg_topology *topology, int device);

#pragma GCC visibility pop
#endif
