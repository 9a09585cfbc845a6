#include "backend/pods_file.h"

#include "base/file.h"

namespace baton::backend {

void PodsFile::Save() {
  const auto saved = ReplaceFile(path_, pods_.Save(), 0600, false);
  const std::string trouble = saved ? ""
                                    : "pods could not be saved: " + saved.error().message +
                                          "; after a restart the newest would be missing";
  if (!trouble.empty() && degraded_.empty()) {
    log_.Add(node::EventLog::Level::kWarning, "daemon", trouble);
  }
  degraded_ = trouble;
}

}  // namespace baton::backend
