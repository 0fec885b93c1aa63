// What ProcessGroupGloo.hpp needs of Gloo's own headers, which PyTorch's wheel does not have: names
// of types that stand behind pointers in it, and the one function that it calls inline. They are in
// libtorch_cpu. Nothing here is made or taken apart by the bridge.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace gloo {

class Context {
public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {

class Store {
public:
  virtual ~Store() = default;
  virtual void set(const std::string &key, const std::vector<char> &value) = 0;
  virtual std::vector<char> get(const std::string &key) = 0;
  virtual void wait(const std::vector<std::string> &keys) = 0;
  virtual void wait(const std::vector<std::string> &keys,
                    const std::chrono::milliseconds &timeout) = 0;
};

} // namespace rendezvous

namespace transport {

class Device;
class UnboundBuffer {
public:
  virtual ~UnboundBuffer() = default;
};

} // namespace transport
} // namespace gloo
