#include "k8s/binder/priority_classes.h"

#include <algorithm>

#include "k8s/binder/objects.h"

namespace baton::k8s {

void PriorityClasses::Set(const Json& priority_class) {
  Remove(priority_class);
  const std::string name = TextAt(priority_class, "metadata/name");
  values_[name] = static_cast<int32_t>(
      std::clamp<int64_t>(IntegerAt(priority_class, "value"), INT32_MIN, INT32_MAX));
  if (Flag(priority_class, "globalDefault")) default_ = name;
}

void PriorityClasses::Remove(const Json& priority_class) {
  const std::string name = TextAt(priority_class, "metadata/name");
  values_.erase(name);
  if (default_ == name) default_.clear();
}

int64_t PriorityClasses::ValueOf(const Json& pod) const {
  const auto found = values_.find(TextAt(pod, "spec/priorityClassName", default_));
  return IntegerAt(pod, "spec/priority", found != values_.end() ? found->second : 0);
}

}  // namespace baton::k8s
