// PyTorch's Gloo process group, for classes that derive from it. PyTorch compiles its own sources
// with this macro, and its headers use it for nothing else.
#pragma once

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
