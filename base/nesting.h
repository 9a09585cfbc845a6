// How deep values lie in each other: what copies, prints or compares JSON recurses, and has a stack
// to lose. Thread safe.
#ifndef BATON_BASE_NESTING_H_
#define BATON_BASE_NESTING_H_

#include <cstddef>
#include <string_view>

namespace baton {

// Whether at most `max` lists and objects lie in each other in a JSON text. Where it is no JSON,
// this holds for the part before its first mistake.
bool JsonNestsWithin(std::string_view text, size_t max);

}  // namespace baton

#endif  // BATON_BASE_NESTING_H_
