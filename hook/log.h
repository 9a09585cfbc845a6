// What the hook has to say, on stderr, one line a time, each beginning with "baton: ". Never
// stdout, no stdio stream of the host, no allocation. Thread safe.
#ifndef BATON_HOOK_LOG_H_
#define BATON_HOOK_LOG_H_

#include <atomic>

namespace baton::hook {

// BATON_LOG=1.
extern std::atomic<bool> g_verbose;

void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace baton::hook

// Only with BATON_LOG=1.
#define BATON_SAY_MORE(...)                                                                        \
  do {                                                                                             \
    if (::baton::hook::g_verbose.load(std::memory_order_relaxed)) ::baton::hook::Say(__VA_ARGS__); \
  } while (false)

#endif  // BATON_HOOK_LOG_H_
