// Signals between ranks that have each other's memory: words of it that are 0 or 1, and change on
// streams as soon as they have the value that is waited for. A signal is put by changing a word of
// the receiver's pad from 0 to 1, and taken by changing it back.
//
// Who waits sleeps. The wait ends with an error when its time has passed, when the process of who
// should change the word has ended, and when this process ends; with no time and nobody dead it
// lasts, as a kernel's would.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"

namespace openreg {

// Another process that ranks are in; 0: this one.
struct PeerProcess {
  int pid = 0;
  uint64_t started = 0; // openreg_process_started()
};

class Flip {
public:
  // Of a word at a device address; `what` has not happened as long as it is not `from`.
  Flip(void *address, uint32_t from, uint32_t to, std::string what, PeerProcess peer = {});

  // No deadline is for ever. COMMUNICATION_FAILURE with a sentence.
  openreg_status wait(const std::chrono::steady_clock::time_point *deadline) const;

private:
  uint32_t *word_;
  uint32_t from_, to_;
  std::string what_;
  PeerProcess peer_;
};

using Flips = std::vector<Flip>;

// One after the other, all within one time; 0 ms: any.
openreg_status wait_for(const Flips &flips, std::chrono::milliseconds time = {});

// The same on the current stream.
void queue_flips(c10::DeviceIndex device, Flips flips, size_t timeout_ms);

// At the end of the process: ends all waits.
void abort_signals();

} // namespace openreg
