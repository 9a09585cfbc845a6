// Which node a GPU of another machine belongs to, kept over restarts: the first node that names it.
// Else whichever node speaks first after a restart of a central batond would have it.
//
// Kept in a file of its own, which versions that do not know it leave alone.
// Not thread safe.
#ifndef BATON_BACKEND_GPU_OWNERS_H_
#define BATON_BACKEND_GPU_OWNERS_H_

#include <cstddef>
#include <map>
#include <string>

#include "base/result.h"

namespace baton::backend {

class GpuOwners {
 public:
  // Of one node. Beyond that others make room, first those that it has not named since the start.
  static constexpr size_t kGpusOfNodeMax = 64;

  // `path` may not exist yet.
  explicit GpuOwners(std::string path) : path_(std::move(path)) {}

  // Takes over what the file says. What went wrong, for the operator; empty when nothing did: a
  // damaged file is moved aside. An error: the file is not for this daemon to touch.
  Result<std::string> Load();
  // Null: nobody's.
  const std::string* Find(const std::string& gpu) const;
  // The GPU is the node's from now on.
  void Set(const std::string& gpu, const std::string& node);
  // It is nobody's until a node names it. False: it was.
  bool Release(const std::string& gpu);
  // Why the file is not up to date; empty when it is.
  const std::string& degraded() const { return degraded_; }

 private:
  struct Owner {
    std::string node;
    bool named = false;  // since the start
  };
  Result<void> Read(const std::string& text);
  void Save();

  const std::string path_;
  std::map<std::string, Owner> owners_;  // by uuid
  std::string degraded_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_GPU_OWNERS_H_
