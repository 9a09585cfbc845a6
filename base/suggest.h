// "Did you mean": the nearest of a few words.
#ifndef BATON_BASE_SUGGEST_H_
#define BATON_BASE_SUGGEST_H_

#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, or "" when none is near: at most a third of the letters differ
// (at least one may). Ties go to the first.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace baton

#endif  // BATON_BASE_SUGGEST_H_
