#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/k8s/stand_in/api_server_impl.h"

namespace baton::k8s::testing {
namespace {

std::string Chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace

bool ApiServer::Impl::Watch(Connection& connection, const Asked& asked,
                            const std::optional<Fault>& fault) {
  std::unique_lock lock(mutex_);
  Kind& kind = *asked.kind;
  const auto labels = ParseLabelSelector(asked.Query("labelSelector"));
  const auto fields = ParseFieldSelector(asked.Query("fieldSelector"), kind.resource);
  if (!labels || !fields) {
    lock.unlock();
    return Send(connection, asked, Failure(400, "BadRequest", "unable to parse the selector"));
  }
  const auto selected = [&](const StoredPtr& object) {
    return object != nullptr &&
           (!kind.resource.namespaced || asked.name_space.empty() ||
            TextAt(object->json, "metadata/namespace") == asked.name_space) &&
           (*labels)(object->json) && (*fields)(object->json);
  };
  const auto write = [&](const std::string& text) { return connection.stream.Write(text); };
  const auto event = [](const char* type, const std::string& object) {
    return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
  };
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string from = asked.Query("resourceVersion");
  uint64_t cursor = std::strtoull(from.c_str(), nullptr, 10);
  std::vector<std::string> lines;
  if (from.empty() || from == "0") {
    for (const auto& [name, object] : kind.objects) {
      if (selected(object)) lines.push_back(event("ADDED", object->text));
    }
    cursor = store_.version();
  }
  const Instant begin = MonotonicNow();
  const uint64_t timeout_s = std::strtoull(asked.Query("timeoutSeconds").c_str(), nullptr, 10);
  const Instant end =
      begin + (timeout_s == 0 ? kForEver : Duration(std::chrono::seconds(timeout_s)));
  const bool bookmarks = asked.Query("allowWatchBookmarks") == "true";
  Instant bookmark = begin + options_.bookmarks;
  uint32_t told = 0;
  bool stalled = false;
  std::string out = head;
  while (true) {
    if (ending_) return false;
    if (stalled_) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      if (!connection.stream.Alive()) return false;
      continue;
    }
    if (!kind.served) {
      lock.unlock();
      return write(out + "0\r\n\r\n") && asked.keep;
    }
    if (cursor < kind.floor) {
      Reply gone = Failure(410, "Expired",
                           fmt::format("too old resource version: {} ({})", cursor, kind.floor));
      lock.unlock();
      return write(out + Chunk(event("ERROR", gone.body)) + "0\r\n\r\n") && asked.keep;
    }
    auto at = std::upper_bound(
        kind.history.begin(), kind.history.end(), cursor,
        [](uint64_t version, const Change& change) { return version < change.version; });
    for (; at != kind.history.end(); ++at) {
      const bool is = selected(at->now);
      const bool was = selected(at->before);
      cursor = at->version;
      if (std::string_view(at->type) == "DELETED" ? was : was && !is) {
        lines.push_back(event("DELETED", at->now->text));
      } else if (is && std::string_view(at->type) != "DELETED") {
        lines.push_back(event(was ? "MODIFIED" : "ADDED", at->now->text));
      }
    }
    const Instant now = MonotonicNow();
    if (bookmarks && now >= bookmark) {
      bookmark = now + options_.bookmarks;
      cursor = std::max(cursor, store_.version());
      lines.push_back(event(
          "BOOKMARK",
          fmt::format(R"({{"kind":"{}","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}}}})",
                      kind.resource.kind, kind.resource.ApiVersion(), cursor)));
    }
    const bool over = now >= end;
    if (!lines.empty() || !out.empty() || over) {
      lock.unlock();
      // Several events come in one chunk, and where it is long one comes in several.
      std::string text;
      bool cut = false;
      for (const std::string& line : lines) {
        if (fault && told >= fault->events) {
          if (fault->kind == FaultKind::kStallWatch) stalled = true;
          if (stalled) break;
          if (fault->kind == FaultKind::kCutWatch || fault->kind == FaultKind::kHalfBody) {
            text += line.substr(0, line.size() / 2);
            cut = true;
            break;
          }
          if (fault->kind == FaultKind::kEndWatch) {
            write(out + (text.empty() ? "" : Chunk(text)) + "0\r\n\r\n");
            return asked.keep;
          }
          if (fault->kind == FaultKind::kMalformed || fault->kind == FaultKind::kWrongType) {
            text += "{\"type\":\"ADDED\",\"object\":{\"metadata\":\n";
            cut = true;
            break;
          }
          if (fault->kind == FaultKind::kCutAfter) {
            cut = true;
            break;
          }
        }
        ++told;
        text += line;
      }
      lines.clear();
      for (size_t i = 0; i < text.size(); i += 16'384) out += Chunk(text.substr(i, 16'384));
      if (over && !cut && !stalled) out += "0\r\n\r\n";
      if (!write(out)) return false;
      out.clear();
      if (cut) return false;
      if (over) return asked.keep;
      lock.lock();
      continue;
    }
    if (stalled) {
      // Silent for ever, whatever happens.
      while (!ending_ && connection.stream.Alive()) {
        changed_.wait_for(lock, std::chrono::milliseconds(20));
      }
      return false;
    }
    if (!connection.stream.Alive()) return false;
    kind.changed.wait_for(
        lock, std::min<Duration>({std::max(end - now, Duration(1)), std::chrono::milliseconds(100),
                                  bookmarks ? std::max(bookmark - now, Duration(1)) : kForEver}));
  }
}

}  // namespace baton::k8s::testing
