#include "tests/k8s/stand_in/api_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <condition_variable>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/random.h"
#include "k8s/api/stream.h"
#include "tests/k8s/stand_in/certificates.h"
#include "tests/k8s/stand_in/store.h"

namespace baton::k8s::testing {
namespace {

namespace bhttp = boost::beast::http;
using Parser = bhttp::request_parser<bhttp::string_body>;

constexpr Duration kForEver = std::chrono::hours(24);

std::string Decoded(std::string_view text, bool plus) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size() + 0 &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
            text.data() + i + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += plus && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// A request, understood.
struct Asked {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string type;  // of its body
  std::string body;
  std::string token;
  bool keep = true;

  std::string group;
  Kind* kind = nullptr;  // null: see path
  std::string name_space;
  std::string name;
  std::string subresource;
  std::string verb;

  std::string Query(const std::string& key) const {
    const auto at = query.find(key);
    return at == query.end() ? std::string() : at->second;
  }
  bool dry_run() const { return Query("dryRun") == "All"; }
};

std::string Head(int status, size_t size, const std::string& type, const std::string& more = {}) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n", status,
                     status < 300 ? "OK" : "Error", type, size, more);
}

std::string Chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace

class ApiServer::Impl {
 public:
  explicit Impl(ApiServerOptions options)
      : options_(std::move(options)), token_(options_.token), random_(options_.seed) {
    store_.history_max = options_.history_max;
    store_.graceful = options_.graceful;
    if (options_.tls) MakeTls();
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    BATON_CHECK(listener_ >= 0 &&
                bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                listen(listener_, 256) == 0 &&
                getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { Accept(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      WakeAll();
    }
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    close(listener_);
    for (auto& connection : connections_) {
      connection.stream.Abort();
      connection.thread.join();
    }
    SSL_CTX_free(tls_);
  }

  struct Connection {
    explicit Connection(int fd) : stream(fd) {}
    Stream stream;
    std::thread thread;
    std::atomic<bool> done{false};
    std::string in;
  };

  void MakeTls();
  void Accept();
  void Serve(Connection& connection);
  bool ReadRequest(Connection& connection, Asked& asked);
  // False: the connection is over.
  bool Answer(Connection& connection, Asked& asked);
  bool Send(Connection& connection, const Asked& asked, const Reply& reply);
  void Understand(Asked& asked);
  Reply Do(const Asked& asked);
  Reply ListOf(const Asked& asked);
  Reply Discover(const Asked& asked);
  bool Watch(Connection& connection, const Asked& asked, const std::optional<Fault>& fault);
  std::optional<Fault> Meet(const Asked& asked);
  // Until then, or until the server ends or faults are cleared. Needs the lock.
  void Sleep(std::unique_lock<std::mutex>& lock, Duration duration);
  void WakeAll() {
    changed_.notify_all();
    for (auto& [name, kind] : store_.kinds()) kind->changed.notify_all();
  }

  const ApiServerOptions options_;
  KeyPair authority_;
  SSL_CTX* tls_ = nullptr;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread accepting_;
  std::list<Connection> connections_;  // of the accepting thread, but for CutConnections()

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ending_ = false;
  bool stalled_ = false;
  uint64_t cleared_ = 0;  // how often ClearFaults() was called
  std::string token_;
  Store store_;
  struct Pages {
    uint64_t version = 0;
    std::vector<StoredPtr> objects;
    size_t next = 0;
  };
  std::map<std::string, Pages> pages_;
  uint64_t page_serial_ = 0;
  Random random_;
  std::vector<Fault> faults_;
  uint64_t faults_met_ = 0;
  std::map<std::string, uint64_t> counts_;
};

void ApiServer::Impl::MakeTls() {
  authority_ = MakeAuthority("stand-in authority");
  const KeyPair own =
      MakeCertificate(authority_, "stand-in", "DNS:localhost,DNS:kubernetes.default,IP:127.0.0.1");
  tls_ = SSL_CTX_new(TLS_server_method());
  SSL_CTX_set_mode(tls_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  BIO* certificate = BIO_new_mem_buf(own.certificate.data(), -1);
  X509* x509 = PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr);
  BIO* key = BIO_new_mem_buf(own.key.data(), -1);
  EVP_PKEY* pkey = PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr);
  BATON_CHECK(SSL_CTX_use_certificate(tls_, x509) == 1 && SSL_CTX_use_PrivateKey(tls_, pkey) == 1);
  EVP_PKEY_free(pkey);
  X509_free(x509);
  BIO_free(key);
  BIO_free(certificate);
}

void ApiServer::Impl::Accept() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    {
      const std::lock_guard lock(mutex_);
      if (ending_) {
        if (fd >= 0) close(fd);
        return;
      }
    }
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const std::lock_guard lock(mutex_);
    for (auto at = connections_.begin(); at != connections_.end();) {
      if (!at->done) {
        ++at;
        continue;
      }
      at->thread.join();
      at = connections_.erase(at);
    }
    Connection& connection = connections_.emplace_back(fd);
    connection.thread = std::thread([this, &connection] {
      Serve(connection);
      connection.stream.Abort();
      connection.done = true;
    });
  }
}

void ApiServer::Impl::Serve(Connection& connection) {
  if (tls_ != nullptr &&
      !connection.stream.Handshake(tls_, true, MonotonicNow() + std::chrono::seconds(30))) {
    return;
  }
  while (true) {
    Asked asked;
    if (!ReadRequest(connection, asked)) return;
    try {
      if (!Answer(connection, asked)) return;
    } catch (const Json::exception& error) {
      if (!Send(connection, asked, Failure(400, "BadRequest", error.what()))) return;
    }
  }
}

bool ApiServer::Impl::ReadRequest(Connection& connection, Asked& asked) {
  Parser parser;
  parser.eager(true);
  parser.body_limit(uint64_t{64} << 20);
  std::string& in = connection.in;
  while (!parser.is_done()) {
    if (!in.empty()) {
      boost::system::error_code error;
      const size_t taken = parser.put(boost::asio::const_buffer(in.data(), in.size()), error);
      in.erase(0, taken);
      if (error && error != bhttp::error::need_more) return false;
      if (parser.is_done()) break;
      if (taken > 0 && !in.empty()) continue;
    }
    const size_t before = in.size();
    in.resize(before + 16'384);
    const auto got = connection.stream.Read(in.data() + before, 16'384, MonotonicNow() + kForEver);
    in.resize(before + (got ? *got : 0));
    if (!got || *got == 0) return false;
  }
  auto& message = parser.get();
  const auto text = [](auto view) { return std::string(view.data(), view.size()); };
  asked.method = text(message.method_string());
  std::string target = text(message.target());
  if (const size_t mark = target.find('?'); mark != std::string::npos) {
    std::string query = target.substr(mark + 1) + "&";
    target.resize(mark);
    for (size_t end; (end = query.find('&')) != std::string::npos; query.erase(0, end + 1)) {
      const std::string one = query.substr(0, end);
      const size_t equal = std::min(one.find('='), one.size());
      if (!one.empty()) {
        asked.query[Decoded(one.substr(0, equal), true)] =
            Decoded(one.substr(std::min(equal + 1, one.size())), true);
      }
    }
  }
  asked.path = target;
  asked.type = text(message[bhttp::field::content_type]);
  asked.token = text(message[bhttp::field::authorization]);
  asked.keep = parser.keep_alive();
  asked.body = std::move(message.body());
  return true;
}

// Needs the lock.
void ApiServer::Impl::Understand(Asked& asked) {
  std::vector<std::string> parts;
  for (size_t at = 1; at <= asked.path.size();) {
    const size_t end = std::min(asked.path.find('/', at), asked.path.size());
    if (end > at) parts.push_back(Decoded(asked.path.substr(at, end - at), false));
    at = end + 1;
  }
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    asked.group = parts[1];
    at = 3;
  } else {
    asked.verb = "get";
    return;
  }
  if (parts[at] == "namespaces" && parts.size() > at + 2 && parts[at + 2] != "status" &&
      parts[at + 2] != "finalize") {
    asked.name_space = parts[at + 1];
    at += 2;
  }
  asked.kind = store_.Find(asked.group, parts[at]);
  if (parts.size() > at + 1) asked.name = parts[at + 1];
  if (parts.size() > at + 2) asked.subresource = parts[at + 2];
  const std::string watch = asked.Query("watch");
  asked.verb = asked.method == "GET"      ? (!asked.name.empty()               ? "get"
                                             : watch == "1" || watch == "true" ? "watch"
                                                                               : "list")
               : asked.method == "POST"   ? "create"
               : asked.method == "PUT"    ? "update"
               : asked.method == "DELETE" ? "delete"
               : asked.method == "PATCH"
                   ? (asked.type.find("apply-patch") != std::string::npos ? "apply" : "patch")
                   : "unknown";
  ++counts_[asked.verb + " " + parts[at] +
            (asked.subresource.empty() ? "" : "/" + asked.subresource)];
}

// Needs the lock.
std::optional<Fault> ApiServer::Impl::Meet(const Asked& asked) {
  for (Fault& fault : faults_) {
    const bool of_watch = fault.kind == FaultKind::kCutWatch ||
                          fault.kind == FaultKind::kEndWatch ||
                          fault.kind == FaultKind::kStallWatch;
    if ((of_watch && asked.verb != "watch") || (!fault.verb.empty() && fault.verb != asked.verb) ||
        (!fault.path.empty() && asked.path.find(fault.path) == std::string::npos) ||
        fault.times == UINT32_MAX) {
      continue;
    }
    if (fault.skip > 0) {
      --fault.skip;
      continue;
    }
    if (fault.one_in > 1 && !random_.OneIn(fault.one_in)) continue;
    ++faults_met_;
    Fault met = fault;
    if (fault.times > 0 && --fault.times == 0) fault.times = UINT32_MAX;  // used up
    return met;
  }
  return std::nullopt;
}

void ApiServer::Impl::Sleep(std::unique_lock<std::mutex>& lock, Duration duration) {
  const uint64_t cleared = cleared_;
  changed_.wait_for(lock, duration, [&] { return ending_ || cleared_ != cleared; });
}

bool ApiServer::Impl::Send(Connection& connection, const Asked& asked, const Reply& reply) {
  std::string more;
  if (reply.status == 429 || reply.status == 503) {
    const Json body = Json::parse(reply.body, nullptr, false);
    if (const Json* after = k8s::Find(body, "details/retryAfterSeconds"); after != nullptr) {
      more = "Retry-After: " + after->dump() + "\r\n";
    }
  }
  std::string text = Head(reply.status, reply.body.size(), "application/json", more);
  text += reply.body;
  return connection.stream.Write(text, MonotonicNow() + std::chrono::seconds(30)) && asked.keep;
}

bool ApiServer::Impl::Answer(Connection& connection, Asked& asked) {
  std::unique_lock lock(mutex_);
  while (stalled_ && !ending_) changed_.wait(lock);
  if (ending_) return false;
  Understand(asked);
  const bool authorised = token_.empty() || asked.token == "Bearer " + token_;
  const std::optional<Fault> fault = Meet(asked);
  if (fault) {
    switch (fault->kind) {
      case FaultKind::kAnswer: {
        static const std::map<int, std::string> kReasons{
            {400, "BadRequest"},        {401, "Unauthorized"},    {403, "Forbidden"},
            {404, "NotFound"},          {409, "Conflict"},        {410, "Expired"},
            {422, "Invalid"},           {429, "TooManyRequests"}, {500, "InternalError"},
            {503, "ServiceUnavailable"}};
        const auto known = kReasons.find(fault->status);
        const Reply reply =
            Failure(fault->status,
                    !fault->reason.empty()    ? fault->reason
                    : known != kReasons.end() ? known->second
                                              : "Unknown",
                    fault->message.empty() ? "a fault of the stand-in" : fault->message,
                    fault->retry_after_s);
        lock.unlock();
        return Send(connection, asked, reply);
      }
      case FaultKind::kSlow:
        Sleep(lock, fault->delay);
        break;
      case FaultKind::kHang:
        Sleep(lock, kForEver);
        return false;
      case FaultKind::kCutBefore:
        return false;
      default:
        break;
    }
    if (ending_) return false;
  }
  if (!authorised) {
    lock.unlock();
    return Send(connection, asked, Failure(401, "Unauthorized", "Unauthorized"));
  }
  if (asked.verb == "watch" && asked.kind != nullptr) {
    lock.unlock();
    return Watch(connection, asked, fault);
  }
  Reply reply;
  try {
    reply = Do(asked);
  } catch (const Json::exception& error) {
    reply = Failure(400, "BadRequest", error.what());
  }
  changed_.notify_all();
  lock.unlock();
  if (fault) {
    const Instant soon = MonotonicNow() + std::chrono::seconds(30);
    switch (fault->kind) {
      case FaultKind::kCutAfter:
        return false;
      case FaultKind::kLateAnswer:
        lock.lock();
        Sleep(lock, fault->delay);
        lock.unlock();
        break;
      case FaultKind::kHalfBody:
        (void)connection.stream.Write(Head(reply.status, reply.body.size(), "application/json") +
                                          reply.body.substr(0, reply.body.size() / 2),
                                      soon);
        return false;
      case FaultKind::kMalformed:
        reply = {200, "{\"kind\": \"Pod\", \"metadata\": {\"name\": nonsense"};
        break;
      case FaultKind::kWrongType: {
        const std::string page = "<html><body>502 Bad Gateway</body></html>";
        return connection.stream.Write(Head(200, page.size(), "text/html") + page, soon) &&
               asked.keep;
      }
      default:
        break;
    }
  }
  return Send(connection, asked, reply);
}

// Needs the lock.
Reply ApiServer::Impl::Do(const Asked& asked) {
  if (asked.kind == nullptr) return Discover(asked);
  Kind& kind = *asked.kind;
  const ObjectName name{kind.resource.namespaced ? asked.name_space : std::string(), asked.name};
  if (asked.verb == "list") return ListOf(asked);
  if (asked.verb == "get") {
    const auto at = kind.objects.find(name);
    if (at == kind.objects.end()) {
      return Failure(404, "NotFound",
                     fmt::format("{} \"{}\" not found", kind.resource.plural, asked.name));
    }
    return {200, at->second->text};
  }
  Json body = asked.body.empty() ? Json::object() : Json::parse(asked.body, nullptr, false);
  if (body.is_discarded()) return Failure(400, "BadRequest", "the body is no JSON");
  if (asked.verb == "create") {
    const bool pod = kind.resource.kind == "Pod";
    if (pod && asked.subresource == "binding") return store_.Bind(kind, name, body);
    if (pod && asked.subresource == "eviction") {
      Reply reply =
          store_.Delete(kind, name, body.value("deleteOptions", Json::object()), asked.dry_run());
      if (reply.status == 200) {
        reply = {201, R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"})"};
      }
      return reply;
    }
    if (!asked.name.empty()) {
      return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
    }
    return store_.Create(kind, asked.name_space, std::move(body), asked.dry_run());
  }
  if (asked.name.empty()) {
    return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
  }
  if (asked.verb == "update") {
    return store_.Update(kind, name, std::move(body), asked.subresource, asked.dry_run());
  }
  if (asked.verb == "delete") {
    if (const std::string grace = asked.Query("gracePeriodSeconds"); !grace.empty()) {
      body["gracePeriodSeconds"] = std::atoll(grace.c_str());
    }
    return store_.Delete(kind, name, body, asked.dry_run());
  }
  if (asked.verb == "patch" || asked.verb == "apply") {
    return store_.Patch(kind, name, asked.type.substr(0, asked.type.find(';')), body,
                        asked.subresource, asked.Query("fieldManager"), asked.dry_run());
  }
  return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
}

// Needs the lock.
Reply ApiServer::Impl::ListOf(const Asked& asked) {
  Kind& kind = *asked.kind;
  const auto labels = ParseLabelSelector(asked.Query("labelSelector"));
  const auto fields = ParseFieldSelector(asked.Query("fieldSelector"), kind.resource);
  if (!labels || !fields) return Failure(400, "BadRequest", "unable to parse the selector");
  Pages pages;
  if (const std::string token = asked.Query("continue"); !token.empty()) {
    const auto at = pages_.find(token);
    if (at == pages_.end() || at->second.version < kind.floor) {
      return Failure(410, "Expired", "The provided continue parameter is too old");
    }
    pages = at->second;
  } else {
    pages.version = store_.version();
    for (const auto& [name, object] : kind.objects) {
      if ((!kind.resource.namespaced || asked.name_space.empty() ||
           name.name_space == asked.name_space) &&
          (*labels)(object->json) && (*fields)(object->json)) {
        pages.objects.push_back(object);
      }
    }
  }
  const size_t limit = std::strtoull(asked.Query("limit").c_str(), nullptr, 10);
  const size_t end =
      limit == 0 ? pages.objects.size() : std::min(pages.objects.size(), pages.next + limit);
  std::string items;
  for (size_t i = pages.next; i < end; ++i) {
    if (!items.empty()) items += ',';
    items += pages.objects[i]->text;
  }
  std::string more;
  if (end < pages.objects.size()) {
    const std::string token = fmt::format("page-{}", ++page_serial_);
    more = fmt::format(R"(,"continue":"{}","remainingItemCount":{})", token,
                       pages.objects.size() - end);
    pages.next = end;
    if (pages_.size() > 100) pages_.clear();
    pages_[token] = std::move(pages);
  }
  return {
      200,
      fmt::format(
          R"({{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{}"{}}},"items":[{}]}})",
          kind.resource.kind, kind.resource.ApiVersion(), pages.version, more, items)};
}

// Needs the lock.
Reply ApiServer::Impl::Discover(const Asked& asked) {
  std::string path = asked.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/version") {
    return {200, R"({"major":"1","minor":"32","gitVersion":"v1.32.0-stand-in"})"};
  }
  if (path == "/healthz" || path == "/livez" || path == "/readyz") return {200, "ok"};
  if (path == "/api") return {200, R"({"kind":"APIVersions","versions":["v1"]})"};
  std::map<std::string, std::string> groups;
  for (const auto& [name, kind] : store_.kinds()) {
    if (kind->served && !kind->resource.group.empty()) {
      groups[kind->resource.group] = kind->resource.version;
    }
  }
  const auto group_of = [](const std::string& group, const std::string& version) {
    const Json one{{"groupVersion", group + "/" + version}, {"version", version}};
    return Json{{"name", group}, {"versions", Json::array({one})}, {"preferredVersion", one}};
  };
  if (path == "/apis") {
    Json list{{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", Json::array()}};
    for (const auto& [group, version] : groups) list["groups"].push_back(group_of(group, version));
    return {200, list.dump()};
  }
  for (const auto& [group, version] : groups) {
    if (path == "/apis/" + group) {
      Json one = group_of(group, version);
      one["kind"] = "APIGroup";
      one["apiVersion"] = "v1";
      return {200, one.dump()};
    }
  }
  Json list{{"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"resources", Json::array()}};
  for (const auto& [name, kind] : store_.kinds()) {
    const Resource& resource = kind->resource;
    const std::string prefix = resource.group.empty() ? "/api/" : "/apis/";
    if (!kind->served || path != prefix + resource.ApiVersion()) continue;
    list["groupVersion"] = resource.ApiVersion();
    std::string singular = resource.kind;
    std::transform(singular.begin(), singular.end(), singular.begin(), ::tolower);
    const Json one{{"name", resource.plural},
                   {"singularName", singular},
                   {"namespaced", resource.namespaced},
                   {"kind", resource.kind},
                   {"verbs", {"create", "delete", "get", "list", "patch", "update", "watch"}}};
    list["resources"].push_back(one);
    if (kind->status) {
      Json status = one;
      status["name"] = resource.plural + "/status";
      status["verbs"] = {"get", "patch", "update"};
      list["resources"].push_back(status);
    }
  }
  if (!list["resources"].empty()) return {200, list.dump()};
  return Failure(404, "NotFound", "the server could not find the requested resource");
}

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
  const auto write = [&](const std::string& text) {
    return connection.stream.Write(text, MonotonicNow() + std::chrono::seconds(30)).has_value();
  };
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

// --------------------------------------------------------------------------------------- ApiServer

ApiServer::ApiServer(ApiServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ApiServer::~ApiServer() = default;

std::string ApiServer::url() const {
  return fmt::format("{}://127.0.0.1:{}", impl_->options_.tls ? "https" : "http", impl_->port_);
}

ClusterConfig ApiServer::config() const {
  ClusterConfig config;
  config.server = url();
  config.ca = impl_->authority_.certificate;
  const std::lock_guard lock(impl_->mutex_);
  config.token = impl_->token_;
  return config;
}

void ApiServer::AddFault(Fault fault) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->faults_.push_back(std::move(fault));
}

void ApiServer::ClearFaults() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->faults_.clear();
  ++impl_->cleared_;
  impl_->WakeAll();
}

uint64_t ApiServer::faults_met() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->faults_met_;
}

void ApiServer::Compact() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->store_.Compact();
  impl_->pages_.clear();
  impl_->WakeAll();
}

void ApiServer::CutConnections() {
  const std::lock_guard lock(impl_->mutex_);
  for (auto& connection : impl_->connections_) connection.stream.Abort();
  impl_->WakeAll();
}

void ApiServer::SetToken(const std::string& token) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->token_ = token;
}

void ApiServer::Stall(bool stalled) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->stalled_ = stalled;
  impl_->WakeAll();
}

void ApiServer::Serve(const Resource& resource, bool status) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->store_.Serve(resource, status);
}

void ApiServer::Unserve(const Resource& resource) {
  const std::lock_guard lock(impl_->mutex_);
  if (Kind* kind = impl_->store_.Find(resource.group, resource.plural)) {
    kind->served = false;
    kind->objects.clear();
    kind->history.clear();
    kind->floor = impl_->store_.version();
    kind->changed.notify_all();
  }
}

Json ApiServer::Put(const Resource& resource, Json object) {
  const std::lock_guard lock(impl_->mutex_);
  Kind* kind = impl_->store_.Find(resource.group, resource.plural);
  BATON_CHECK(kind != nullptr);
  Json stored = impl_->store_.Put(*kind, std::move(object))->json;
  impl_->changed_.notify_all();
  return stored;
}

bool ApiServer::Remove(const Resource& resource, const ObjectName& name) {
  const std::lock_guard lock(impl_->mutex_);
  Kind* kind = impl_->store_.Find(resource.group, resource.plural);
  const bool erased = kind != nullptr && impl_->store_.Erase(*kind, name);
  impl_->changed_.notify_all();
  return erased;
}

std::optional<Json> ApiServer::Get(const Resource& resource, const ObjectName& name) const {
  const std::lock_guard lock(impl_->mutex_);
  Kind* kind = impl_->store_.Find(resource.group, resource.plural);
  if (kind == nullptr) return std::nullopt;
  const auto at = kind->objects.find(name);
  return at == kind->objects.end() ? std::nullopt : std::optional<Json>(at->second->json);
}

std::vector<Json> ApiServer::List(const Resource& resource) const {
  const std::lock_guard lock(impl_->mutex_);
  std::vector<Json> objects;
  if (Kind* kind = impl_->store_.Find(resource.group, resource.plural)) {
    for (const auto& [name, object] : kind->objects) objects.push_back(object->json);
  }
  return objects;
}

uint64_t ApiServer::version() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->store_.version();
}

std::map<std::string, uint64_t> ApiServer::counts() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->counts_;
}

uint64_t ApiServer::count(const std::string& verb_plural) const {
  const std::lock_guard lock(impl_->mutex_);
  const auto at = impl_->counts_.find(verb_plural);
  return at == impl_->counts_.end() ? 0 : at->second;
}

bool ApiServer::WaitFor(const std::function<bool()>& predicate, Duration timeout) const {
  const Instant until = MonotonicNow() + timeout;
  while (true) {
    if (predicate()) return true;
    if (MonotonicNow() >= until) return false;
    std::unique_lock lock(impl_->mutex_);
    impl_->changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

}  // namespace baton::k8s::testing
