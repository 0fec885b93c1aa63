// What the player needs from the stub of the CUDA runtime and driver, besides CUDA's own functions.

#pragma once

#include <cstdint>
#include <string>

namespace stub {

// Sets the bytes of the device's memory, a multiple of 2 MiB. Call it before CUDA's functions.
void set_capacity(uint64_t bytes);

// Begin and end work on an otherwise idle stream. Repeating either has no effect.
void hold(uint64_t stream);
void go(uint64_t stream);

// Returns what was placed since the last call, in order and separated by commas: ADDRESS:SIZE of
// memory, rADDRESS:SIZE of address ranges.
std::string take_segments();

} // namespace stub
