#include "net/bearer_token.h"

#include "base/file.h"

namespace baton::net {
namespace {

constexpr Duration kTokenAge = std::chrono::minutes(1);
constexpr size_t kTokenMax = size_t{64} << 10;

}  // namespace

Result<void> BearerToken::Check(const std::string& file) {
  auto text = ReadFile(file, kTokenMax);
  if (!text) return tl::unexpected(text.error());
  return {};
}

std::string BearerToken::Get() {
  const std::lock_guard lock(mutex_);
  if (file_.empty()) return text_;
  struct stat status {};
  const bool there = stat(file_.c_str(), &status) == 0;
  if (!there || status.st_mtim.tv_sec != seen_.st_mtim.tv_sec ||
      status.st_mtim.tv_nsec != seen_.st_mtim.tv_nsec || status.st_ino != seen_.st_ino ||
      MonotonicNow() - read_at_ > kTokenAge) {
    Read();
  }
  return text_;
}

void BearerToken::Refused() {
  const std::lock_guard lock(mutex_);
  if (!file_.empty()) Read();
}

void BearerToken::Read() {
  struct stat status {};
  // A file that is away for a moment leaves the old token, which may still be good.
  if (stat(file_.c_str(), &status) != 0) return;
  auto text = ReadFile(file_, kTokenMax);
  if (!text) return;
  // Nothing that would end the header field.
  std::erase_if(*text, [](char c) { return c <= ' ' || c > '~'; });
  if (text->empty()) return;
  text_ = std::move(*text);
  seen_ = status;
  read_at_ = MonotonicNow();
}

}  // namespace baton::net
