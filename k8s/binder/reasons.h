// Why pods wait: the reason that holds now, and the one that their conditions show. A condition is
// written again at once where the kind of reason is another, else at most every `say_again`.
#ifndef BATON_K8S_BINDER_REASONS_H_
#define BATON_K8S_BINDER_REASONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

// There may be room; a ceiling of the pod's team keeps it out.
inline constexpr const char* kTeamCeiling = "TeamCeiling";

struct Reason {
  std::string kind;  // CamelCase; empty: there is none
  std::string text;
  friend bool operator==(const Reason&, const Reason&) = default;
};

class Reasons {
 public:
  Reasons(Duration say_again, WorkQueue& queue) : say_again_(say_again), queue_(queue) {}

  void Set(const std::string& key, Reason reason) { names_[key].now = std::move(reason); }
  // Nothing holds it back now; what is shown stays.
  void Clear(const std::string& key) { Set(key, {}); }
  // Nothing is shown either. Also for a name of which nothing is left.
  void Forget(const std::string& key) { names_.erase(key); }

  const Reason& shown(const std::string& key) const {
    static const Reason none;
    const auto it = names_.find(key);
    return it == names_.end() ? none : it->second.shown;
  }
  // That holds now.
  const Reason& now(const std::string& key) const {
    static const Reason none;
    const auto it = names_.find(key);
    return it == names_.end() ? none : it->second.now;
  }
  // How many names each kind of reason holds back now.
  std::map<std::string, uint64_t> Counts() const {
    std::map<std::string, uint64_t> counts;
    for (const auto& [key, name] : names_) {
      if (!name.now.kind.empty()) ++counts[name.now.kind];
    }
    return counts;
  }
  // Shows the reason that holds now, where it is time; else queues the name for then. True: it is
  // of another kind than the one before.
  bool Show(const std::string& key, Instant now) {
    Name& name = names_[key];
    if (name.now.kind.empty() || name.now == name.shown) return false;
    const bool other_kind = name.now.kind != name.shown.kind;
    if (!other_kind && now < name.shown_at + say_again_) {
      queue_.AddAt(name.shown_at + say_again_, key);
      return false;
    }
    name.shown = name.now;
    name.shown_at = now;
    return other_kind;
  }

 private:
  struct Name {
    Reason now;
    Reason shown;
    Instant shown_at = kAlways;
  };
  const Duration say_again_;
  WorkQueue& queue_;
  std::map<std::string, Name> names_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_REASONS_H_
