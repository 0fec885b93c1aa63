// A scope in which a thread's kernels and copies on known values run in a dry run, however large
// they are. Python objects that ranks exchange are bytes that must stay true.
#pragma once

namespace openreg {

class KnownScope {
public:
  KnownScope();
  ~KnownScope();
  KnownScope(const KnownScope &) = delete;
  KnownScope &operator=(const KnownScope &) = delete;
};

} // namespace openreg
