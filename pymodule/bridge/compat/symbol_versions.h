// Older versions of libstdc++'s symbols, so that a wheel runs with an older libstdc++.
//
// A compiler refers to the newest version that its libstdc++ has. gcc 12 has a second version of
// std::condition_variable::wait (GLIBCXX_3.4.30). Unlike the first, it does not end the process if
// the waiting thread is cancelled. tools/check-wheel reports files that must include this header.
#ifndef OPENREG_BRIDGE_COMPAT_SYMBOL_VERSIONS_H
#define OPENREG_BRIDGE_COMPAT_SYMBOL_VERSIONS_H

#include <cstddef> // defines __GLIBCXX__

#ifdef __GLIBCXX__
__asm__(".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
#endif

#endif
