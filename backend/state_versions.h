// Which files in state_dir a newer version of Baton wrote: with one of them batond does not start.
// Pure.
#ifndef BATON_BACKEND_STATE_VERSIONS_H_
#define BATON_BACKEND_STATE_VERSIONS_H_

#include <cstddef>
#include <string_view>

namespace baton::backend {

// As much of a file as these look at, in bytes.
inline constexpr size_t kVersionsWithin = size_t{256} << 10;

bool IsNewerPods(std::string_view text);    // pods.json, pods.journal-*
bool IsNewerUsage(std::string_view text);   // usage
bool IsNewerOwners(std::string_view text);  // gpu-nodes.json
bool IsNewerHolder(std::string_view text);  // gpu-*.holder, gpu-*.next

}  // namespace baton::backend

#endif  // BATON_BACKEND_STATE_VERSIONS_H_
