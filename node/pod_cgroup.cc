#include "node/pod_cgroup.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace baton::node {
namespace {

// Takes `prefix` off the front.
bool Take(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The first part of a path, which is taken off it.
std::string_view NextPart(std::string_view& path) {
  while (!path.empty() && path.front() == '/') path.remove_prefix(1);
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(part.size());
  return part;
}

bool IsClass(std::string_view part) { return part == "burstable" || part == "besteffort"; }

// "pod<uid>", as the driver cgroupfs has it.
std::string PlainPod(std::string_view part) {
  if (!Take(part, "pod") || !IsKubernetesUid(part)) return "";
  return std::string(part);
}

// A part of the driver systemd: "kubepods-burstable-pod<uid>.slice". `ancestor`: it is one of those
// above the pods. Both false and empty: neither.
struct Slice {
  bool ancestor = false;
  std::string pod;
};
Slice ReadSlice(std::string_view part) {
  Slice slice;
  if (part.size() < 6 || part.substr(part.size() - 6) != ".slice") return slice;
  part.remove_suffix(6);
  if (part == "kubelet") return {true, ""};
  Take(part, "kubelet-");
  if (!Take(part, "kubepods")) return slice;
  if (part.empty()) return {true, ""};
  if (!Take(part, "-")) return slice;
  if (IsClass(part)) return {true, ""};
  if (!Take(part, "burstable-")) Take(part, "besteffort-");
  if (!Take(part, "pod")) return slice;
  // A dash would be a level of the hierarchy.
  if (part.find('-') != std::string_view::npos) return slice;
  std::string uid(part);
  std::replace(uid.begin(), uid.end(), '_', '-');
  if (IsKubernetesUid(uid)) slice.pod = std::move(uid);
  return slice;
}

// Of one path.
std::string PodOfPath(std::string_view path) {
  // Above our own cgroup namespace. What is there was made by who made us, so the hierarchy's root
  // may be among what is not shown.
  bool below = false;
  std::string_view part = NextPart(path);
  for (; part == ".."; part = NextPart(path)) below = true;
  if (part.size() > 6 && part.substr(part.size() - 6) == ".slice") {
    for (int level = 0; level < 4; ++level, part = NextPart(path)) {
      Slice slice = ReadSlice(part);
      if (!slice.pod.empty()) return below || level > 0 ? std::move(slice.pod) : "";
      if (!slice.ancestor) return "";
    }
    return "";
  }
  if (part == "kubelet") part = NextPart(path);
  if (part == "kubepods") {
    below = true;
    part = NextPart(path);
  }
  if (!below) return "";
  if (IsClass(part)) part = NextPart(path);
  return PlainPod(part);
}

// The next line's path, which is taken off the text; nothing where the line has none.
// "hierarchy:controllers:path"; controllers have no colon, a path may.
std::optional<std::string_view> NextPath(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  const size_t first = line.find(':');
  const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  return line.substr(second + 1);
}

// "<id>", "docker-<id>.scope"; what is before the id ends in a dash.
std::string_view ContainerOfPart(std::string_view part) {
  constexpr size_t kIdSize = 64;
  const std::string_view suffix = ".scope";
  if (part.size() > suffix.size() && part.substr(part.size() - suffix.size()) == suffix) {
    part.remove_suffix(suffix.size());
  }
  if (part.size() < kIdSize) return {};
  const std::string_view id = part.substr(part.size() - kIdSize);
  const bool begins = part.size() == kIdSize || part[part.size() - kIdSize - 1] == '-';
  return begins && id.find_first_not_of("0123456789abcdef") == std::string_view::npos
             ? id
             : std::string_view{};
}

}  // namespace

bool IsKubernetesUid(std::string_view text) {
  return !text.empty() && text.size() <= kKubernetesUidMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c < 0x80 && std::isalnum(c) != 0) || c == '-';
         });
}

std::string KubernetesPodIn(std::string_view text) {
  std::string found;
  while (!text.empty()) {
    const auto path = NextPath(text);
    if (!path) continue;
    std::string pod = PodOfPath(*path);
    if (pod.empty()) continue;
    if (!found.empty() && found != pod) return "";
    found = std::move(pod);
  }
  return found;
}

std::string ContainerIn(std::string_view text) {
  while (!text.empty()) {
    auto path = NextPath(text);
    while (path && !path->empty()) {
      const std::string_view id = ContainerOfPart(NextPart(*path));
      if (!id.empty()) return std::string(id);
    }
  }
  return "";
}

std::string ContainerGroupIn(std::string_view text) {
  for (;; text.remove_prefix(std::min(text.size(), text.find('\n')) + 1)) {
    if (text.empty()) return "";
    if (text.substr(0, 3) == "0::") break;
    if (text.find('\n') == std::string_view::npos) return "";
  }
  const auto path = NextPath(text);
  if (!path || path->empty() || path->front() != '/') return "";
  std::string_view rest = *path;
  while (!rest.empty()) {
    const std::string_view part = NextPart(rest);
    if (part == "..") return "";
    if (!ContainerOfPart(part).empty()) {
      return std::string(path->substr(0, path->size() - rest.size()));
    }
  }
  return "";
}

}  // namespace baton::node
