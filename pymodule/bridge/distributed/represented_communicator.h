// The communicator of a rank that stands for all ranks of its group in a dry run
// (OPENREG_DRY_REPRESENT), because at least one of them does not run.
//
// Every other rank counts as passing what this rank passes: a sum is this rank's input times the
// number of ranks, and a gathered list is full of this rank's input. Received messages are left as
// they are. Nothing is compared, because there is nobody to compare with.
#pragma once

#include "distributed/communicator.h"

namespace openreg {

// Whether this is a dry run in which one of these ranks of the job does not run.
bool have_absent_rank(const std::vector<int> &ranks);

CommunicatorPtr make_represented_communicator(int rank, int size);

} // namespace openreg
