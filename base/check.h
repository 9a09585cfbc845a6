// BATON_CHECK(condition): for what cannot be. It stays on in every build and ends the process with
// file, line and expression. Never used inside the hook, which must not end its host.
#ifndef BATON_BASE_CHECK_H_
#define BATON_BASE_CHECK_H_

namespace baton {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);
}  // namespace baton

#define BATON_CHECK(condition)                  \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::baton::CheckFailed(#condition, __FILE__, __LINE__))

#endif  // BATON_BASE_CHECK_H_
