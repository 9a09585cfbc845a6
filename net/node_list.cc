#include "net/node_list.h"

#include "net/keys.h"

namespace baton::net {

Result<bool> NodeList::Look() {
  struct stat is {};
  if (file_.empty() || stat(file_.c_str(), &is) != 0) return false;
  const bool same = is.st_ino == seen_.st_ino && is.st_dev == seen_.st_dev &&
                    is.st_size == seen_.st_size && is.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                    is.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
  if (same) return false;
  auto nodes = ReadNodeKeys(file_);
  // What could not be read is looked at again.
  if (nodes || nodes.error().code == ErrorCode::kInvalid) seen_ = is;
  if (!nodes) return tl::unexpected(nodes.error());
  of_file_ = std::move(*nodes);
  return true;
}

NodeList::Keys NodeList::All() const {
  Keys all = configured_;
  all.insert(of_file_.begin(), of_file_.end());
  return all;
}

}  // namespace baton::net
