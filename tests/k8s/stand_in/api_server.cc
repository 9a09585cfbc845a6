#include "tests/k8s/stand_in/api_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tests/k8s/stand_in/api_server_impl.h"

namespace baton::k8s::testing {
namespace {

namespace bhttp = boost::beast::http;
using Parser = bhttp::request_parser<bhttp::string_body>;

std::string Head(int status, size_t size, const std::string& type, const std::string& more = {}) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n", status,
                     status < 300 ? "OK" : "Error", type, size, more);
}

}  // namespace

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

ApiServer::Impl::Impl(ApiServerOptions options)
    : options_(std::move(options)), token_(options_.token), random_(options_.seed) {
  store_.history_max = options_.history_max;
  store_.graceful = options_.graceful;
  if (options_.tls) {
    authority_ = MakeAuthority("stand-in authority");
    const KeyPair own = MakeCertificate(authority_, "stand-in",
                                        "DNS:localhost,DNS:kubernetes.default,IP:127.0.0.1");
    BATON_CHECK(tls_.Set(own.certificate, own.key));
  }
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

ApiServer::Impl::~Impl() {
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
}

void ApiServer::Impl::Accept() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
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
  const auto tls = tls_.context();
  if (tls && !connection.stream.Handshake(*tls)) return;
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
    const size_t got = connection.stream.Read(in.data() + before, 16'384);
    in.resize(before + got);
    if (got == 0) return false;
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
std::optional<Fault> ApiServer::Impl::Meet(const Asked& asked) {
  for (Fault& fault : faults_) {
    const bool of_watch = fault.kind == FaultKind::kCutWatch ||
                          fault.kind == FaultKind::kEndWatch ||
                          fault.kind == FaultKind::kStallWatch;
    if ((of_watch && asked.verb != "watch") || (!fault.verb.empty() && fault.verb != asked.verb) ||
        (!fault.path.empty() && asked.path.find(fault.path) == std::string::npos) ||
        (!fault.body.empty() && asked.body.find(fault.body) == std::string::npos) ||
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
  return connection.stream.Write(text) && asked.keep;
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
                                      reply.body.substr(0, reply.body.size() / 2));
        return false;
      case FaultKind::kMalformed:
        reply = {200, "{\"kind\": \"Pod\", \"metadata\": {\"name\": nonsense"};
        break;
      case FaultKind::kWrongType: {
        const std::string page = "<html><body>502 Bad Gateway</body></html>";
        return connection.stream.Write(Head(200, page.size(), "text/html") + page) && asked.keep;
      }
      default:
        break;
    }
  }
  return Send(connection, asked, reply);
}

ApiServer::ApiServer(ApiServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ApiServer::~ApiServer() = default;

std::string ApiServer::url() const {
  return fmt::format("{}://127.0.0.1:{}", impl_->options_.tls ? "https" : "http", impl_->port_);
}

ClusterConfig ApiServer::config() const {
  ClusterConfig config;
  config.server = url();
  config.tls.ca = impl_->authority_.certificate;
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

void ApiServer::SetBudget(const ObjectName& pod, bool kept) {
  const std::lock_guard lock(impl_->mutex_);
  kept ? (void)impl_->store_.budgeted.insert(pod) : (void)impl_->store_.budgeted.erase(pod);
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

void ApiServer::DropFields(const Resource& resource, std::set<std::string> fields) {
  const std::lock_guard lock(impl_->mutex_);
  if (Kind* kind = impl_->store_.Find(resource.group, resource.plural)) {
    kind->unknown = std::move(fields);
  }
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
