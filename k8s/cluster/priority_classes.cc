#include "k8s/cluster/priority_classes.h"

#include <algorithm>

#include "k8s/cluster/objects.h"

namespace baton::k8s {

void PriorityClasses::Set(const Json& priority_class) {
  Remove(priority_class);
  const std::string name = TextAt(priority_class, "metadata/name");
  classes_[name] = {static_cast<int32_t>(std::clamp<int64_t>(IntegerAt(priority_class, "value"),
                                                             INT32_MIN, INT32_MAX)),
                    TextAt(priority_class, "preemptionPolicy") != "Never"};
  if (Flag(priority_class, "globalDefault")) default_ = name;
}

void PriorityClasses::Remove(const Json& priority_class) {
  const std::string name = TextAt(priority_class, "metadata/name");
  classes_.erase(name);
  if (default_ == name) default_.clear();
}

const PriorityClasses::Class* PriorityClasses::ClassOf(std::string name) const {
  static constexpr Class kNone;
  if (name.empty()) name = default_;
  if (name.empty()) return &kNone;
  const auto found = classes_.find(name);
  return found != classes_.end() ? &found->second : nullptr;
}

int32_t PriorityClasses::ValueOf(const std::string& name) const {
  const Class* known = ClassOf(name);
  return known != nullptr ? known->value : 0;
}

bool PriorityClasses::MayPreempt(const std::string& name) const {
  const Class* known = ClassOf(name);
  return known != nullptr && known->preempts;
}

}  // namespace baton::k8s
