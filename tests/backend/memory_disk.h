// The pods' files in memory, which can be cut off at any write, as by a kill or a full disk.
#ifndef BATON_TESTS_BACKEND_MEMORY_DISK_H_
#define BATON_TESTS_BACKEND_MEMORY_DISK_H_

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "backend/pods_disk.h"

namespace baton::backend {

class MemoryDisk : public PodsDisk {
 public:
  // Thrown by the write at which the machine stops.
  struct Killed : std::exception {};

  std::map<std::string, std::string> files;
  uint64_t operations = 0;
  uint64_t bytes = 0;             // written
  uint64_t kill_at = UINT64_MAX;  // the operation that is cut short
  size_t torn_bytes = 0;          // of it that are still written
  size_t room = SIZE_MAX;         // bytes of all files together
  bool cut_back = true;           // a failed Append leaves the file as it was

  Result<std::string> Read(const std::string& name) override {
    const auto it = files.find(name);
    if (it == files.end()) return Fail(ErrorCode::kNotFound, "there is no " + name);
    return it->second;
  }
  Result<void> Create(const std::string& name, std::string_view text) override {
    if (Kills()) {
      files[name] = text.substr(0, torn_bytes);
      throw Killed();
    }
    files[name].clear();
    return Put(name, text) ? Result<void>() : Fail(ErrorCode::kInternal, "no room for " + name);
  }
  Result<void> Append(const std::string& name, std::string_view text) override {
    const auto it = files.find(name);
    if (it == files.end()) return Fail(ErrorCode::kInternal, "there is no " + name);
    if (Kills()) {
      it->second += text.substr(0, torn_bytes);
      throw Killed();
    }
    const size_t before = it->second.size();
    if (Put(name, text)) return {};
    if (cut_back) it->second.resize(before);
    return Fail(cut_back ? ErrorCode::kUnavailable : ErrorCode::kInternal, "no room for " + name);
  }
  Result<void> Rename(const std::string& from, const std::string& to) override {
    if (Kills()) throw Killed();
    const auto it = files.find(from);
    if (it == files.end()) return Fail(ErrorCode::kInternal, "there is no " + from);
    files[to] = it->second;
    files.erase(from);
    return {};
  }
  void Remove(const std::string& name) override {
    if (files.count(name) == 0) return;
    if (Kills()) throw Killed();
    files.erase(name);
  }
  Result<std::string> MoveAside(const std::string& name) override {
    const std::string aside = name + ".damaged";
    if (auto moved = Rename(name, aside); !moved) return tl::unexpected(moved.error());
    return aside;
  }
  std::vector<std::string> Names(const std::string& prefix) override {
    std::vector<std::string> names;
    for (const auto& [name, text] : files) {
      if (name.starts_with(prefix)) names.push_back(name);
    }
    return names;
  }
  std::string PathOf(const std::string& name) const override { return "/state/" + name; }

 private:
  bool Kills() { return ++operations == kill_at; }
  bool Put(const std::string& name, std::string_view text) {
    size_t used = 0;
    for (const auto& [other, contents] : files) used += contents.size();
    const size_t n = std::min(text.size(), room - std::min(room, used));
    files[name] += text.substr(0, n);
    bytes += n;
    return n == text.size();
  }
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_MEMORY_DISK_H_
