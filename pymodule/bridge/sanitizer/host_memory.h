// The host's own accesses to pinned memory while streams have work to do there.
//
// PyTorch's operators on the CPU are seen before they run, with their arguments (launches.cpp). For
// all else, as numpy or C, there are the pages: when a stream is given work that reads pinned
// memory, the pages that it reads all of may not be written; of work that writes, not be touched,
// until the host is ordered behind it. A fault there is an access that conflicts: it is told of as
// such, the pages are opened, and the program goes on.
//
// Pages of which the work has only a part stay open: nothing that is right ever faults.
#pragma once

#include <ATen/core/Tensor.h>

#include "sanitizer/report_order.h"

namespace openreg {

// Whether pages are closed from now on.
void watch_pages(ToldOrder *order, bool close);

// Opens all, and knows of no pinned memory any more.
void forget_host_memory();

// Of pinned memory that is known: it was allocated since it is watched.
void note_pinned(ToldOrder &order, const void *address, size_t bytes);
void forget_pinned(ToldOrder &order, const void *address);
bool is_known_pinned(const at::Tensor &tensor);

// A stream was given work with such accesses.
void close_pages(ToldOrder &order, const openreg_sanitizer_access *accesses, size_t count);

// The host has waited for something.
void open_what_is_done(ToldOrder &order);

// Work of streams may read or write these bytes, whatever is said of their pages, until as many
// calls have closed them. While it may write, the host's own accesses are not seen.
void open_for_device(const void *address, size_t bytes, bool writes);
void close_for_device(const void *address, size_t bytes, bool writes);

// Writes through closed pages, which stay closed; false: this is no such memory, or the system does
// not do it. `from` is no memory that is closed; a device's, as it shows it, is read as such.
bool write_to_closed(void *to, const void *from, size_t bytes);

// Whether the calling thread is in the handler of a fault: no Python may run.
bool is_in_fault();

} // namespace openreg
