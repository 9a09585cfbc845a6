#include "config/page_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace baton::config {
namespace {

constexpr size_t kUrlMax = 1024;

bool IsUrl(std::string_view text) {
  const bool visible =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return visible && text.size() <= kUrlMax &&
         (text.starts_with("https://") || text.starts_with("http://"));
}

}  // namespace

Result<void> PageOptions::Check() const {
  for (const auto& [key, url] :
       {std::pair<const char*, const std::string&>{"node", node}, {"all_nodes", all_nodes}}) {
    if (url.empty() || IsUrl(url)) continue;
    return Fail(ErrorCode::kInvalid, fmt::format("page.{}: '{}' is no address; write one such as "
                                                 "https://gpu-node-1:7412/",
                                                 key, url.substr(0, 128)));
  }
  if (!node.empty() && node.find("{node}") == std::string::npos) {
    return Fail(ErrorCode::kInvalid,
                "page.node: the same address for every node; write {node} where its name stands");
  }
  return {};
}

}  // namespace baton::config
