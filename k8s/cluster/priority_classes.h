// Kubernetes' PriorityClasses: what a pod's priorityClassName is worth, for pods that the API
// server has not seen yet. Pure.
#ifndef BATON_K8S_CLUSTER_PRIORITY_CLASSES_H_
#define BATON_K8S_CLUSTER_PRIORITY_CLASSES_H_

#include <cstdint>
#include <map>
#include <string>

#include "k8s/api/object.h"

namespace baton::k8s {

class PriorityClasses {
 public:
  void Set(const Json& priority_class);
  void Remove(const Json& priority_class);

  // By a pod's priorityClassName, which may be empty.

  // The priority that the API server gives such a pod: that of its class, or of the global default.
  // 0 without one, and where its class is not known: then the API server refuses the pod. What the
  // pod says of its priority in numbers does not count: nobody may say that.
  int32_t ValueOf(const std::string& name) const;
  // Whether others may be displaced for such a pod; not for one whose class is not known.
  bool MayPreempt(const std::string& name) const;

 private:
  struct Class {
    int32_t value = 0;
    bool preempts = true;
  };
  // Null: it is not known. Without a name: the global default, or one of value 0.
  const Class* ClassOf(std::string name) const;

  std::map<std::string, Class> classes_;
  std::string default_;  // the global one's name; empty: there is none
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_PRIORITY_CLASSES_H_
