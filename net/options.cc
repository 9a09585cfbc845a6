#include "net/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "base/file.h"

namespace baton::net {
namespace {

constexpr size_t kTokenMin = 16;
constexpr size_t kTokenMax = 4096;

Result<void> CheckMode(int fd, const std::string& path, bool group_may_read) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    return Fail(ErrorCode::kInvalid, path + " is not a file");
  }
  if ((st.st_mode & (group_may_read ? 0037 : 0077)) != 0) {
    return Fail(ErrorCode::kDenied, fmt::format("{} can be read by others; run 'chmod {} {}'", path,
                                                group_may_read ? "0640" : "0600", path));
  }
  return {};
}

Result<UniqueFd> Open(const std::string& path) {
  // Not to hang where the path names a pipe.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kDenied,
                fmt::format("cannot open {}: {}", path, strerror(errno)));
  }
  return fd;
}

}  // namespace

Result<ListenAddress> ParseListen(const std::string& text) {
  const auto bad = [&] {
    return Fail(ErrorCode::kInvalid,
                fmt::format("\"{}\" is no address to listen on; write one such as "
                            "\"127.0.0.1:7412\" or \"[::1]:7412\"",
                            text.substr(0, 64)));
  };
  ListenAddress address;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  address.host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || at != end) return bad();
  if (address.host.find('\0') != std::string::npos) return bad();
  if (address.host.front() == '[') {
    if (address.host.size() < 4 || address.host.back() != ']') return bad();
    address.host = address.host.substr(1, address.host.size() - 2);
    in6_addr six;
    if (inet_pton(AF_INET6, address.host.c_str(), &six) != 1) return bad();
    address.loopback = IN6_IS_ADDR_LOOPBACK(&six);
  } else {
    in_addr four;
    if (inet_pton(AF_INET, address.host.c_str(), &four) != 1) return bad();
    address.loopback = (ntohl(four.s_addr) >> 24) == 127;
  }
  return address;
}

std::string UrlOf(const HttpOptions& options, uint16_t port, const std::string& host) {
  const auto address = ParseListen(options.listen);
  if (!address) return "";
  std::string where = address->host;
  if (where == "0.0.0.0" || where == "::") {
    where = host;
  } else if (where.find(':') != std::string::npos) {
    where = "[" + where + "]";
  }
  return fmt::format("{}://{}:{}/", options.certificate_file.empty() ? "http" : "https", where,
                     port);
}

HttpOptions ForPrograms(std::string listen) {
  HttpOptions options;
  options.listen = std::move(listen);
  options.for_programs = true;
  options.streams_max = 0;
  options.workers = 16;
  options.first_timeout = options.idle_timeout = std::chrono::seconds(120);
  options.answer_timeout = std::chrono::hours(1);
  options.write_timeout = std::chrono::seconds(10);
  options.stop_timeout = std::chrono::seconds(5);
  return options;
}

Result<void> CheckHttpOptions(const HttpOptions& options) {
  if (options.listen.empty()) return {};
  const auto address = ParseListen(options.listen);
  if (!address) return tl::unexpected(address.error());
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return Fail(ErrorCode::kInvalid, "a certificate needs its key; set both files, or neither");
  }
  if (!options.for_programs && !address->loopback &&
      (options.token_file.empty() || options.key_file.empty())) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} can be reached from other machines; set a token file and a "
                            "certificate with its key, or listen on 127.0.0.1",
                            options.listen));
  }
  const auto range = [](const char* name, uint64_t value, uint64_t min,
                        uint64_t max) -> Result<void> {
    if (value >= min && value <= max) return {};
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} must be from {} to {}, not {}", name, min, max, value));
  };
  for (const auto& check : {range("connections_max", options.connections_max, 1, 16384),
                            range("streams_max", options.streams_max, 0, options.connections_max),
                            range("header_bytes_max", options.header_bytes_max, 256, 1 << 20),
                            range("workers", options.workers, 1, 256),
                            range("stream_backlog", options.stream_backlog, 1, 1024)}) {
    if (!check) return check;
  }
  for (const auto& [name, value] : {std::pair{"first_timeout", options.first_timeout},
                                    {"request_timeout", options.request_timeout},
                                    {"idle_timeout", options.idle_timeout},
                                    {"answer_timeout", options.answer_timeout},
                                    {"write_timeout", options.write_timeout},
                                    {"heartbeat", options.heartbeat}}) {
    if (value < std::chrono::milliseconds(10) || value > std::chrono::hours(1)) {
      return Fail(ErrorCode::kInvalid, fmt::format("{} must be from 10ms to 1h", name));
    }
  }
  return {};
}

Result<void> CheckSecretFile(const std::string& path, bool group_may_read) {
  const auto fd = Open(path);
  if (!fd) return tl::unexpected(fd.error());
  return CheckMode(fd->get(), path, group_may_read);
}

Result<std::string> ReadToken(const std::string& path) {
  const auto fd = Open(path);
  if (!fd) return tl::unexpected(fd.error());
  if (auto checked = CheckMode(fd->get(), path, false); !checked) {
    return tl::unexpected(checked.error());
  }
  std::string token(kTokenMax + 2, '\0');
  size_t size = 0;
  while (size < token.size()) {
    const ssize_t n = read(fd->get(), token.data() + size, token.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  token.resize(size);
  if (!token.empty() && token.back() == '\n') token.pop_back();
  bool visible = true;
  for (const char c : token) visible = visible && c > 0x20 && c < 0x7f;
  if (!visible || token.size() < kTokenMin || token.size() > kTokenMax) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} must hold one line of {} to {} visible ASCII characters; make one "
                            "with 'openssl rand -hex 32'",
                            path, kTokenMin, kTokenMax));
  }
  return token;
}

}  // namespace baton::net
