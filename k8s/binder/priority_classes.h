// Kubernetes' PriorityClasses: what a pod's priorityClassName is worth. Pure.
#ifndef BATON_K8S_BINDER_PRIORITY_CLASSES_H_
#define BATON_K8S_BINDER_PRIORITY_CLASSES_H_

#include <cstdint>
#include <map>
#include <string>

#include "k8s/api/object.h"

namespace baton::k8s {

class PriorityClasses {
 public:
  void Set(const Json& priority_class);
  void Remove(const Json& priority_class);

  // The priority that the API server gives such a pod: 0 where its class is not known.
  int64_t ValueOf(const Json& pod) const;

 private:
  std::map<std::string, int32_t> values_;
  std::string default_;  // the global one's name; empty: there is none
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_PRIORITY_CLASSES_H_
