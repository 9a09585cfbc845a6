// The file in which the pods are kept over restarts: replaced as a whole whenever they change.
// Not thread safe.
#ifndef BATON_BACKEND_PODS_FILE_H_
#define BATON_BACKEND_PODS_FILE_H_

#include <string>

#include "backend/pods.h"
#include "node/event_log.h"

namespace baton::backend {

class PodsFile {
 public:
  PodsFile(std::string path, Pods& pods, node::EventLog& log)
      : path_(std::move(path)), pods_(pods), log_(log) {}

  Pods& pods() { return pods_; }
  const Pods& pods() const { return pods_; }
  // Writes the pods as they are. Where that fails the daemon goes on, and degraded() says why.
  void Save();
  // Why the file is not up to date; empty when it is.
  const std::string& degraded() const { return degraded_; }

 private:
  const std::string path_;
  Pods& pods_;
  node::EventLog& log_;
  std::string degraded_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_FILE_H_
