// PyTorch's Gloo, as C++ that derives from it needs it. PyTorch's own sources are compiled with
// this macro; its headers have no other use of it.
#pragma once

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
