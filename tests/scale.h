// How much of something a test does, by how it was compiled.
#ifndef BATON_TESTS_SCALE_H_
#define BATON_TESTS_SCALE_H_

namespace baton {

// Under sanitizers everything takes several times as long; `scripts/test release` does all of it.
#ifdef BATON_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace baton

#endif  // BATON_TESTS_SCALE_H_
