// The communicator of a rank that stands for all ranks of its group in a dry run
// (OPENREG_DRY_REPRESENT). No other rank runs.
//
// Every other rank counts as passing what this rank passes: a sum is this rank's input times the
// number of ranks, and a gathered list is full of this rank's input. Received messages are left as
// they are. Nothing is compared, because there is nobody to compare with.
#pragma once

#include "distributed/communicator.h"

namespace openreg {

// Whether this process is such a rank.
bool represents_ranks();

CommunicatorPtr make_represented_communicator(int rank, int size);

} // namespace openreg
