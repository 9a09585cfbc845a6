#include "net/server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/no_signals.h"
#include "net/connection.h"

namespace baton::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::beast::http::field;
using boost::system::error_code;

// How often connections are looked at for their time: what the limits are exact to.
constexpr auto kLookEvery = std::chrono::milliseconds(100);
// The loop of the tokens is left alone for so many times what a handler took.
constexpr int kPauses = 9;

std::string_view Text(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool EqualNoCase(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

std::string EntityTag(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string tag = "\"";
  for (size_t i = 0; i < 12; ++i) tag += fmt::format("{:02x}", digest[i]);
  return tag + "\"";
}

// Whether If-None-Match names this version of an asset (RFC 9110, 13.1.2: weak comparison).
bool Matches(std::string_view wanted, std::string_view tag) {
  if (wanted == "*") return true;
  while (!wanted.empty()) {
    std::string_view one = wanted.substr(0, wanted.find(','));
    wanted.remove_prefix(std::min(wanted.size(), one.size() + 1));
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (one.substr(0, 2) == "W/") one.remove_prefix(2);
    if (one == tag) return true;
  }
  return false;
}

// The name in a Host field, without its port.
std::string_view HostName(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? host : host.substr(0, end + 1);
  }
  return host.substr(0, host.find(':'));
}

std::string Events(const std::string& event, const std::string& data) {
  std::string text = "event: " + event + "\n";
  size_t begin = 0;
  while (true) {
    const size_t end = data.find('\n', begin);
    text += "data: ";
    text.append(data, begin, end - begin);
    text += '\n';
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return text + "\n";
}

// The certificate of the options' files, if they name one.
Result<void> LoadTls(const HttpOptions& options, TlsIdentity& identity) {
  if (options.certificate_file.empty()) return {};
  if (auto ok = CheckSecretFile(options.key_file, true); !ok) return ok;
  auto certificate = ReadFile(options.certificate_file, kPemMax);
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = ReadFile(options.key_file, kPemMax);
  if (!key) return tl::unexpected(key.error());
  if (auto set = identity.Set(*certificate, *key); !set) {
    return Fail(set.error().code, fmt::format("{} and {}: {}", options.certificate_file,
                                              options.key_file, set.error().message));
  }
  return {};
}

Result<void> Bind(tcp::acceptor& acceptor, const HttpOptions& options, bool listen) {
  const auto address = ParseListen(options.listen);
  if (!address) return tl::unexpected(address.error());
  error_code error;
  const tcp::endpoint endpoint(asio::ip::make_address(address->host, error), address->port);
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error && listen) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  error_code ignored;
  acceptor.close(ignored);
  return Fail(error == asio::error::address_in_use ? ErrorCode::kExists : ErrorCode::kInternal,
              fmt::format("cannot listen on {}: {}; choose another address or port", options.listen,
                          error.message()));
}

}  // namespace

Result<void> CheckHttpFiles(const HttpOptions& options) {
  if (options.listen.empty()) return {};
  if (!options.token_file.empty()) {
    if (auto token = ReadToken(options.token_file); !token) return tl::unexpected(token.error());
  }
  TlsIdentity identity;
  return LoadTls(options, identity);
}

Result<void> CheckHttpAddress(const HttpOptions& options) {
  if (options.listen.empty()) return {};
  asio::io_context io;
  tcp::acceptor acceptor(io);
  return Bind(acceptor, options, false);
}

// All that the server's threads use. Held by HttpServer and by every Respond that is out, so that
// one called late finds something to be ignored by.
class HttpServer::Core : public std::enable_shared_from_this<HttpServer::Core>,
                         private ConnectionListener {
 public:
  Core(asio::io_context* tokens, HttpOptions options, const TlsIdentity* tls, Service service)
      : tokens_(tokens), service_(std::move(service)), options_(std::move(options)), tls_(tls) {
    BATON_CHECK(options_.for_programs == (service_ != nullptr));
  }

  struct Stream;
  struct Entry {
    Access access = Access::kToken;
    Handler handler;
    // An asset
    std::string content_type;
    std::string tag;
    std::shared_ptr<const std::string> bytes;
    // A stream
    Stream* stream = nullptr;
  };
  struct Stream final : EventStream {
    explicit Stream(Core& owner) : core(owner) {}
    void Broadcast(std::string event, std::string data) override {
      Broadcast(std::move(event), [data = std::move(data)] { return data; });
    }
    void Broadcast(std::string event, std::function<std::string()> data) override {
      if (!core.serving_) return;
      asio::post(core.io_, [this, event = std::move(event), data = std::move(data)] {
        if (connections.empty()) return;
        const auto text = std::make_shared<const std::string>(Events(event, data()));
        const auto all = connections;  // who is dropped leaves the set
        for (const auto& connection : all) connection->Push(text);
      });
    }
    size_t readers() const override { return count.load(std::memory_order_relaxed); }

    Core& core;
    std::set<std::shared_ptr<Connection>> connections;
    std::atomic<size_t> count{0};
  };

  void Add(const std::string& path, Entry entry) {
    BATON_CHECK(!serving_ && !path.empty() && path[0] == '/');
    BATON_CHECK(routes_.emplace(path, std::move(entry)).second);
  }
  EventStream& AddStream(const std::string& path) {
    streams_.push_back(std::make_unique<Stream>(*this));
    Entry entry;
    entry.stream = streams_.back().get();
    Add(path, std::move(entry));
    return *streams_.back();
  }
  uint16_t port() const { return port_; }
  std::optional<int64_t> certificate_expires() const {
    return tls_ != nullptr ? tls_->expires() : std::nullopt;
  }
  Counts counts() const { return {accepted_, open_, answered_, refused_, handshakes_failed_}; }

  Result<void> Start();
  void Stop();

 private:
  // A request on its way to its handler.
  struct Asked {
    std::weak_ptr<Connection> connection;
    uint64_t serial = 0;
    const Entry* entry = nullptr;
    HttpRequest request;
  };

  Result<void> Listen();
  void Accept();
  void Admit(tcp::socket socket);
  bool MakeRoom();
  void LookLater();
  void Drain();
  void FinishAll();
  void OnRequest(Connection& connection) override;
  void OnRefused(bool handshake) override { ++(handshake ? handshakes_failed_ : refused_); }
  void OnClosed(Connection& connection) override;
  void AskService(Connection& connection);
  bool KnowsHost(std::string_view host) const;
  bool HasToken(const Connection& connection) const;
  void SendAsset(Connection& connection, const Entry& entry);
  void OpenStream(Connection& connection, Stream& stream);
  void AskNext();
  void Answer(const std::weak_ptr<Connection>& connection, uint64_t serial, HttpResponse response);
  void Deliver(const std::weak_ptr<Connection>& connection, uint64_t serial,
               const HttpResponse& response, std::shared_ptr<const std::string> body);
  static void Refuse(Connection& connection, const HttpResponse& response) {
    connection.Send(response, std::make_shared<const std::string>(response.body));
  }

  asio::io_context* const tokens_;  // null where there is a service
  const Service service_;
  const HttpOptions options_;
  // Set before the threads start, and never changed after.
  std::map<std::string, Entry> routes_;
  std::vector<std::unique_ptr<Stream>> streams_;
  ListenAddress address_;
  std::string token_;
  TlsIdentity own_tls_;  // of the options' files
  const TlsIdentity* tls_;
  uint16_t port_ = 0;
  std::atomic<bool> serving_ = false;
  std::atomic<uint64_t> accepted_{0}, open_{0}, answered_{0}, refused_{0}, handshakes_failed_{0};

  // Of the server's thread.
  ConnectionTerms terms_{options_, *this};
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_pause_{io_};
  asio::steady_timer look_timer_{io_};
  asio::steady_timer ask_pause_{io_};
  bool looking_ = false;
  std::set<std::shared_ptr<Connection>> connections_;
  size_t stream_count_ = 0;
  std::deque<Asked> asked_;
  bool asking_ = false;
  std::optional<std::promise<void>> drained_;  // while Stop() waits for it

  std::thread thread_;
  std::optional<asio::thread_pool> workers_;
};

Result<void> HttpServer::Core::Start() {
  if (options_.listen.empty()) return {};
  BATON_CHECK(!serving_ && !thread_.joinable());
  if (auto checked = CheckHttpOptions(options_); !checked) return checked;
  address_ = *ParseListen(options_.listen);
  if (!options_.token_file.empty()) {
    auto token = ReadToken(options_.token_file);
    if (!token) return tl::unexpected(token.error());
    token_ = std::move(*token);
  }
  if (auto loaded = LoadTls(options_, own_tls_); !loaded) return loaded;
  if (!options_.certificate_file.empty()) tls_ = &own_tls_;
  if (auto listening = Listen(); !listening) return listening;
  serving_ = true;
  Accept();
  const NoSignals none;
  workers_.emplace(options_.workers);
  thread_ = std::thread([this] {
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
  return {};
}

void HttpServer::Core::Stop() {
  if (!thread_.joinable()) return;
  if (options_.stop_timeout > Duration(0)) Drain();
  serving_ = false;
  workers_->stop();
  io_.stop();
  workers_->join();
  thread_.join();
  error_code ignored;
  acceptor_.close(ignored);
  while (!connections_.empty()) (*connections_.begin())->Close();
}

Result<void> HttpServer::Core::Listen() {
  if (auto bound = Bind(acceptor_, options_, true); !bound) return bound;
  error_code error;
  port_ = acceptor_.local_endpoint(error).port();
  return {};
}

void HttpServer::Core::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (error) {
      // Out of descriptors: those who wait are served when others have left.
      accept_pause_.expires_after(std::chrono::milliseconds(100));
      accept_pause_.async_wait([this](error_code e) {
        if (!e) Accept();
      });
      return;
    }
    Admit(std::move(socket));
    Accept();
  });
}

void HttpServer::Core::Admit(tcp::socket socket) {
  ++accepted_;
  if (connections_.size() >= options_.connections_max && !MakeRoom()) {
    // Without a word under TLS, which would have to be agreed on first.
    if (tls_) return;
    static const std::string kFull =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.send(asio::buffer(kFull), 0, ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    return;
  }
  const auto tls = tls_ != nullptr ? tls_->context() : nullptr;
  if (tls_ != nullptr && tls == nullptr) return OnRefused(true);
  auto connection = std::make_shared<Connection>(std::move(socket), tls.get(), terms_);
  connections_.insert(connection);
  open_ = connections_.size();
  connection->Start();
  if (!looking_) LookLater();
}

// Ends the connection that has been waiting longest for a request to begin or to be complete: who
// says nothing keeps nobody out.
bool HttpServer::Core::MakeRoom() {
  Connection* silent = nullptr;
  for (const auto& connection : connections_) {
    const auto since = connection->silent_since();
    if (since && (silent == nullptr || *since < *silent->silent_since())) silent = connection.get();
  }
  if (silent == nullptr) return false;
  silent->Close();
  return true;
}

// While there are connections.
void HttpServer::Core::LookLater() {
  looking_ = !connections_.empty();
  if (!looking_) return;
  look_timer_.expires_after(kLookEvery);
  look_timer_.async_wait([this](error_code error) {
    if (error) return;
    const Instant now = MonotonicNow();
    const auto all = connections_;
    for (const auto& connection : all) connection->Look(now);
    if (drained_) FinishAll();
    LookLater();
  });
}

// Waits, on the thread that stops the server, until what has begun is answered.
void HttpServer::Core::Drain() {
  std::promise<void> done;
  const auto drained = done.get_future();
  asio::post(io_, [this, done = std::move(done)]() mutable {
    drained_ = std::move(done);
    error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    FinishAll();
  });
  drained.wait_for(options_.stop_timeout);
}

// Ends who has no request to be answered, and says when that is all.
void HttpServer::Core::FinishAll() {
  const auto all = connections_;
  size_t busy = 0;
  for (const auto& connection : all) busy += connection->Finish() ? 1 : 0;
  if (busy > 0) return;
  drained_->set_value();
  drained_.reset();
}

void HttpServer::Core::OnClosed(Connection& connection) {
  const auto keep = connection.shared_from_this();
  connections_.erase(keep);
  open_ = connections_.size();
  for (const auto& stream : streams_) {
    if (stream->connections.erase(keep) == 0) continue;
    --stream_count_;
    stream->count.store(stream->connections.size(), std::memory_order_relaxed);
  }
}

void HttpServer::Core::OnRequest(Connection& connection) {
  if (service_) return AskService(connection);
  const auto& header = connection.header();
  if (!KnowsHost(Text(header[field::host]))) {
    return Refuse(connection,
                  ErrorResponse(403, ErrorCode::kDenied,
                                "this server is called localhost or 127.0.0.1; add other names to "
                                "its hosts"));
  }
  auto request = ParseTarget(Text(header.target()));
  if (!request) return Refuse(connection, ErrorResponse(request.error()));
  const auto found = routes_.find(request->path);
  if (found == routes_.end()) {
    return Refuse(connection, ErrorResponse(404, ErrorCode::kNotFound,
                                            "there is nothing at " + request->path.substr(0, 256)));
  }
  const Entry* entry = &found->second;
  if (entry->access == Access::kToken && !HasToken(connection)) {
    HttpResponse response = ErrorResponse(
        401, ErrorCode::kDenied, "bring the token of this server: Authorization: Bearer TOKEN");
    response.fields.emplace_back("WWW-Authenticate", "Bearer realm=\"baton\"");
    return Refuse(connection, response);
  }
  if (entry->bytes) return SendAsset(connection, *entry);
  if (entry->stream != nullptr) return OpenStream(connection, *entry->stream);
  request->method = Text(header.method_string());
  asked_.push_back({connection.weak_from_this(), connection.serial(), entry, std::move(*request)});
  AskNext();
}

void HttpServer::Core::AskService(Connection& connection) {
  HttpRequest request;
  request.method = Text(connection.header().method_string());
  const std::string_view target = Text(connection.header().target());
  request.path = target.substr(0, target.find('?'));
  request.body = connection.TakeBody();
  asio::post(*workers_, [this, asking = connection.weak_from_this(), serial = connection.serial(),
                         request = std::move(request)] {
    HttpResponse response;
    try {
      response = service_(request);
    } catch (const std::exception& thrown) {
      response = ErrorResponse(500, thrown.what());
    }
    Answer(asking, serial, std::move(response));
  });
}

// A client of HTTP/1.0 need not say a Host, and is no browser.
bool HttpServer::Core::KnowsHost(std::string_view host) const {
  if (!address_.loopback || host.empty()) return true;
  const std::string_view name = HostName(host);
  if (EqualNoCase(name, "localhost") || name == "[::1]") return true;
  if (const auto ip = ParseListen(std::string(name) + ":0"); ip && ip->loopback) return true;
  for (const std::string& known : options_.hosts) {
    if (EqualNoCase(name, known)) return true;
  }
  return false;
}

bool HttpServer::Core::HasToken(const Connection& connection) const {
  if (token_.empty()) return true;
  const auto& header = connection.header();
  if (header.count(field::authorization) != 1) return false;
  const std::string_view said = Text(header[field::authorization]);
  constexpr std::string_view kScheme = "Bearer ";
  if (!EqualNoCase(said.substr(0, kScheme.size()), kScheme)) return false;
  const std::string_view token = said.substr(kScheme.size());
  // Its length is no secret.
  return token.size() == token_.size() &&
         CRYPTO_memcmp(token.data(), token_.data(), token.size()) == 0;
}

void HttpServer::Core::SendAsset(Connection& connection, const Entry& entry) {
  HttpResponse response;
  response.content_type = entry.content_type;
  response.fields = {{"ETag", entry.tag}, {"Cache-Control", "no-cache"}};
  if (Matches(Text(connection.header()[field::if_none_match]), entry.tag)) response.status = 304;
  connection.Send(response, entry.bytes);
}

void HttpServer::Core::OpenStream(Connection& connection, Stream& stream) {
  if (connection.head()) return connection.OpenStream();
  if (stream_count_ >= options_.streams_max) {
    return Refuse(connection, ErrorResponse(503, ErrorCode::kExhausted,
                                            "too many read these events already; try again later"));
  }
  ++stream_count_;
  stream.connections.insert(connection.shared_from_this());
  stream.count.store(stream.connections.size(), std::memory_order_relaxed);
  connection.OpenStream();
}

// One at a time goes to the loop of the tokens, and none for a while after.
void HttpServer::Core::AskNext() {
  while (!asking_ && !asked_.empty()) {
    Asked asked = std::move(asked_.front());
    asked_.pop_front();
    if (asked.connection.expired()) continue;
    asking_ = true;
    asio::post(*tokens_, [core = shared_from_this(), asked = std::move(asked)] {
      if (!core->serving_) return;
      const Instant begun = MonotonicNow();
      auto answered = std::make_shared<std::atomic<bool>>(false);
      asked.entry->handler(asked.request, [core, answered, connection = asked.connection,
                                           serial = asked.serial](HttpResponse response) {
        if (answered->exchange(true) || !core->serving_) return;
        core->Answer(connection, serial, std::move(response));
      });
      const Duration pause = (MonotonicNow() - begun) * kPauses;
      asio::post(core->io_, [core = core.get(), pause] {
        core->ask_pause_.expires_after(pause);
        core->ask_pause_.async_wait([core](error_code) {
          core->asking_ = false;
          core->AskNext();
        });
      });
    });
  }
}

// On any thread.
void HttpServer::Core::Answer(const std::weak_ptr<Connection>& connection, uint64_t serial,
                              HttpResponse response) {
  if (response.produce) {
    asio::post(*workers_, [this, connection, serial, response = std::move(response)]() mutable {
      auto body = std::make_shared<const std::string>(response.produce());
      response.produce = nullptr;
      asio::post(io_, [this, connection, serial, response = std::move(response), body] {
        Deliver(connection, serial, response, body);
      });
    });
    return;
  }
  asio::post(io_, [this, connection, serial, response = std::move(response)]() mutable {
    auto body = std::make_shared<const std::string>(std::move(response.body));
    Deliver(connection, serial, response, std::move(body));
  });
}

void HttpServer::Core::Deliver(const std::weak_ptr<Connection>& to, uint64_t serial,
                               const HttpResponse& response,
                               std::shared_ptr<const std::string> body) {
  const auto connection = to.lock();
  if (!connection || !connection->awaits_answer() || connection->serial() != serial) return;
  ++answered_;
  connection->Send(response, std::move(body));
}

HttpServer::HttpServer(asio::io_context& io, HttpOptions options)
    : core_(std::make_shared<Core>(&io, std::move(options), nullptr, nullptr)) {}

HttpServer::HttpServer(HttpOptions options, const TlsIdentity* tls, Service service)
    : core_(std::make_shared<Core>(nullptr, std::move(options), tls, std::move(service))) {}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Route(const std::string& path, Handler handler, Access access) {
  Core::Entry entry;
  entry.access = access;
  entry.handler = std::move(handler);
  core_->Add(path, std::move(entry));
}

void HttpServer::AddAsset(const std::string& path, std::string content_type, std::string bytes) {
  Core::Entry entry;
  entry.access = Access::kOpen;
  entry.content_type = std::move(content_type);
  entry.tag = EntityTag(bytes);
  entry.bytes = std::make_shared<const std::string>(std::move(bytes));
  core_->Add(path, std::move(entry));
}

EventStream& HttpServer::AddStream(const std::string& path) { return core_->AddStream(path); }

Result<void> HttpServer::Start() { return core_->Start(); }

void HttpServer::Stop() { core_->Stop(); }

uint16_t HttpServer::port() const { return core_->port(); }

std::optional<int64_t> HttpServer::certificate_expires() const {
  return core_->certificate_expires();
}

HttpServer::Counts HttpServer::counts() const { return core_->counts(); }

}  // namespace baton::net
