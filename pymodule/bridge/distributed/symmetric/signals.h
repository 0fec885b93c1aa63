// Signals between ranks that can access each other's memory. A signal is a word with the value 0
// or 1. A rank sends a signal by changing a word in the receiver's signal pad from 0 to 1; the
// receiver takes it by changing it back. Each change is a compare-and-swap that waits until the
// word has the old value.
//
// Waiting threads sleep. A wait fails when its time has passed, when the process that should change
// the word has ended, and when this process is exiting. Without a timeout and with all processes
// alive it lasts, as a CUDA kernel's wait would.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"

namespace openreg {

// The process of another rank; pid 0: this process.
struct PeerProcess {
  int pid = 0;
  uint64_t started = 0; // openreg_process_started()
};

// One compare-and-swap of a signal word.
class SignalCas {
public:
  // Changes the word at a device address from `from` to `to`. `failure` describes in error messages
  // what has not happened yet.
  SignalCas(void *address, uint32_t from, uint32_t to, std::string failure, PeerProcess peer = {});

  // Waits and swaps. `deadline` may be null: none. Errors: COMMUNICATION_FAILURE with a message.
  openreg_status wait(const std::chrono::steady_clock::time_point *deadline) const;

private:
  uint32_t *word_;
  uint32_t from_, to_;
  std::string failure_;
  PeerProcess peer_;
};

using SignalSequence = std::vector<SignalCas>;

// Does the swaps one after the other, all within `time`; 0 ms: no limit.
openreg_status wait_for(const SignalSequence &signals, std::chrono::milliseconds time = {});

// The same, queued on the current stream.
void queue_signals(c10::DeviceIndex device, SignalSequence signals, size_t timeout_ms);

// At the end of the process: makes all waits fail.
void abort_signals();

} // namespace openreg
