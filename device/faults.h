/* faults.h: the third contract of the device layer: who is asked about faults of the host before
 * they are told as faults of a device's memory.
 *
 * Nobody, as a rule. Whoever closes pages of the host's memory, to see who touches them, can open
 * them here and have the program go on.
 */
#ifndef OPENREG_DEVICE_FAULTS_H
#define OPENREG_DEVICE_FAULTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum openreg_fault_access {
  OPENREG_FAULT_READ,
  OPENREG_FAULT_WRITE,
  OPENREG_FAULT_UNKNOWN, /* this processor does not say it */
} openreg_fault_access;

/* Called by the thread that touched `address`, in the handler of SIGSEGV, perhaps on a small stack.
 * Returns whether the access can be made now: it is then made anew. */
typedef bool (*openreg_fault_resolver)(void *address, openreg_fault_access access);

/* Who is asked from now on; NULL: nobody. The devices must have been initialized. On any thread. */
void openreg_fault_resolve_with(openreg_fault_resolver resolver);

#ifdef __cplusplus
}
#endif
#endif
