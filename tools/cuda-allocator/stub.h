// What the player asks of the stub of the CUDA runtime and driver, besides CUDA's own functions.

#pragma once

#include <cstdint>
#include <string>

namespace stub {

// Bytes of the device's memory; a multiple of 2 MiB. Called before CUDA's functions.
void set_capacity(uint64_t bytes);

// Begins and ends work on a stream that is otherwise idle. Both do nothing the second time.
void hold(uint64_t stream);
void go(uint64_t stream);

// What was handed out since the last call, in order and separated by commas: ADDRESS:SIZE of
// memory, rADDRESS:SIZE of addresses.
std::string take_segments();

} // namespace stub
