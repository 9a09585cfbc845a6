// What the tests' own driver hands out, and what it says about handles that are not alive.
#ifndef BATON_TESTS_HOOK_FAKE_OBJECTS_H_
#define BATON_TESTS_HOOK_FAKE_OBJECTS_H_

#include <cstdint>
#include <set>
#include <vector>

namespace baton::hook {

// The objects of one kind that are alive. A handle that is free is given out again at once, as a
// driver may do, and a call with one that is not alive is a mistake of the caller's.
template <class T>
class Objects {
 public:
  T* Make(const T& value) {
    T* made = nullptr;
    if (free_.empty()) {
      made = new T(value);
    } else {
      made = free_.back();
      free_.pop_back();
      *made = value;
    }
    alive_.insert(made);
    return made;
  }
  template <class Handle>
  T* Find(Handle handle) {
    auto* object = reinterpret_cast<T*>(handle);
    if (alive_.count(object) > 0) return object;
    ++mistakes_;
    return nullptr;
  }
  void End(T* object) {
    if (alive_.erase(object) > 0) free_.push_back(object);
  }
  template <class Match>
  void EndAll(Match match) {
    const std::set<T*> before = alive_;
    for (T* object : before) {
      if (match(object)) End(object);
    }
  }
  template <class Match>
  bool Any(Match match) const {
    for (const T* object : alive_) {
      if (match(object)) return true;
    }
    return false;
  }
  uint64_t mistakes() const { return mistakes_; }

 private:
  std::set<T*> alive_;
  std::vector<T*> free_;
  uint64_t mistakes_ = 0;
};

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_FAKE_OBJECTS_H_
