// Finds accesses of the host to pinned memory that streams still use.
//
// PyTorch's CPU operators are reported before they run, with their arguments (launches.cpp). For
// all other code, such as NumPy or C, the pages are protected. When a stream gets work that reads
// pinned memory, the pages that it reads completely become read-only. When the work writes, they
// become inaccessible. This lasts until the host synchronizes with the work. A fault on such a page
// is a conflicting access: it is reported, the pages are made accessible, and the program
// continues.
//
// Pages that the work uses only in part stay accessible, so correct programs never fault.
#pragma once

#include <ATen/core/Tensor.h>

#include "sanitizer/session.h"

namespace openreg {

// Enables or disables the protection of pages from now on.
void set_page_protection(SanitizerSession *session, bool close);

// Makes all pages accessible, and forgets all pinned memory.
void forget_host_memory();

// Pinned memory is known if it was allocated while the sanitizer was on.
void add_pinned(SanitizerSession &session, const void *address, size_t bytes);
void remove_pinned(SanitizerSession &session, const void *address);
bool is_known_pinned(const at::Tensor &tensor);

// Protects the pages of accesses that a stream was given.
void protect_pages(SanitizerSession &session, const openreg_sanitizer_access *accesses,
                   size_t count);

// Makes the pages of completed work accessible. Call it when the host has synchronized.
void unprotect_completed(SanitizerSession &session);

// Between these two calls a stream's work may read these bytes, or read and write them, whatever
// their protection. While it may write, accesses of the host are not seen. Calls may nest.
void begin_device_access(const void *address, size_t bytes, bool writes);
void end_device_access(const void *address, size_t bytes, bool writes);

// Writes to protected pages, which stay protected. Returns false if `to` is not in known pinned
// memory, or if the system does not allow it. `from` must not be protected; it may be a device
// view.
bool write_to_protected(void *to, const void *from, size_t bytes);

// Returns whether the calling thread is in the fault handler, where no Python may run.
bool is_in_fault();

} // namespace openreg
