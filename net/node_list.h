// Who may connect to a batond: the nodes of its configuration, and those of a file that changes
// while it runs (LinkOptions::nodes_file). Not thread safe.
#ifndef BATON_NET_NODE_LIST_H_
#define BATON_NET_NODE_LIST_H_

#include <sys/stat.h>

#include <map>
#include <string>

#include "base/result.h"

namespace baton::net {

class NodeList {
 public:
  using Keys = std::map<std::string, std::string>;  // by node, in Z85

  // `file`: empty: none.
  explicit NodeList(std::string file) : file_(std::move(file)) {}

  // The nodes of the configuration; they come before those of the file.
  void Configure(Keys nodes) { configured_ = std::move(nodes); }
  // Reads the file where it has changed since. Whether it has; false where there is none (any
  // more): what it said before counts on. An error: what is wrong with it,
  // likewise; once for each change, but as long as it cannot be read.
  Result<bool> Look();
  Keys All() const;

 private:
  const std::string file_;
  struct stat seen_ {};  // of the file, as it was read last
  Keys configured_, of_file_;
};

}  // namespace baton::net

#endif  // BATON_NET_NODE_LIST_H_
