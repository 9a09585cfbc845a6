#include "backend/node_endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <zmq.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <sstream>
#include <unordered_set>

#include "base/entropy.h"
#include "net/keys.h"
#include "node/process.h"
#include "wire/batch.h"
#include "wire/codec.h"

namespace baton::backend {
namespace {

// Messages queued for one node before it counts as not reading; and clients without a relay.
constexpr int kQueueMax = 10'000;
constexpr size_t kDirectsMax = 256;
constexpr Duration kDirectSilence = std::chrono::seconds(10);
constexpr size_t kNodesMax = 4096;
constexpr size_t kRefusedMax = 4096;
constexpr size_t kGpusOfNodeMax = devmgr::VgpuRequest::kCardsMax;

constexpr const char* kMonitor = "inproc://baton.connections";
constexpr int kHandshakeMs = 3'000;
constexpr size_t kConnectionsMin = 16;
constexpr size_t kConnectionsMax = 2 * kNodesMax;

size_t ConnectionsMax() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kConnectionsMin;
  return std::clamp<size_t>(files.rlim_cur / 4, kConnectionsMin, kConnectionsMax);
}

constexpr size_t kEnvelope = 64;  // what a frame grows by inside another

}  // namespace

// A node: the link to its relay, whichever instance that is.
class NodeEndpoint::Node : public ClientLink {
 public:
  Node(NodeEndpoint& endpoint, std::string name) : endpoint(endpoint), name(std::move(name)) {}

  void Send(uint64_t number, std::string_view frame) override {
    wire::ToClient message;
    message.client = number;
    message.frame = {frame.data(), frame.size()};
    endpoint.Tell(*this, message);
  }
  void SendAhead(uint64_t number, const wire::Token& token) override {
    char buffer[wire::kTenantFrameMax];
    Send(number, {buffer, wire::Encode(token, buffer, sizeof buffer)});
  }
  void Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) override {
    wire::Error error;
    error.kind = kind;
    error.text.Set(text);
    char buffer[512];
    const size_t size = wire::Encode(error, buffer, sizeof buffer);
    Send(number, {buffer, size});
  }
  void KillProcess(uint64_t number) override {
    wire::KillClient message;
    message.client = number;
    endpoint.Tell(*this, message);
  }

  NodeEndpoint& endpoint;
  const std::string name;
  std::string identity;
  std::string key;  // its relay's; empty without keys
  uint64_t instance = 0;
  uint64_t replaced = 0;  // the instance before
  bool connected = false;
  bool batches = false;  // its relay understands them
  wire::FrameBatch<wire::FramesDown> batch;
  Instant heard{};
  Instant asked_again{};  // when NodeSync was last sent
  std::unordered_map<uint64_t, ClientId> clients;
  std::unordered_set<uint64_t> refused;  // of late, never more than kRefusedMax
};

// A client that speaks for itself. Nothing proves that its process has ended, so it may only use
// the virtual GPU, on which nothing runs.
class NodeEndpoint::Direct : public ClientLink {
 public:
  Direct(NodeEndpoint& endpoint, std::string identity)
      : endpoint(endpoint), identity(std::move(identity)) {}

  void Send(uint64_t, std::string_view frame) override { endpoint.socket_.Send({identity, frame}); }
  void SendAhead(uint64_t, const wire::Token&) override {}  // it has no word
  void Refuse(uint64_t, wire::ErrorKind kind, std::string_view text) override {
    endpoint.SendError(identity, kind, text);
    closing = true;
  }
  void KillProcess(uint64_t) override {}

  NodeEndpoint& endpoint;
  const std::string identity;
  ClientId client;
  Instant heard{};
  bool closing = false;
};

NodeEndpoint::NodeEndpoint(boost::asio::io_context& io, const config::Options& options,
                           Arbiter& arbiter, Control& control, Books* books, node::EventLog& log)
    : io_(io),
      options_(options),
      arbiter_(arbiter),
      control_(control),
      log_(log),
      instance_(RandomId()),
      socket_(io, context_, ZMQ_ROUTER,
              [this](const std::vector<std::string_view>& parts, std::string_view key) {
                Receive(parts, key);
              }),
      beat_(io) {
  if (books != nullptr) {
    books_.emplace(
        io, *books, log,
        [this](const std::string& identity, std::string_view frame) {
          return socket_.Send({identity, frame});
        },
        [this](std::string_view key, std::string_view node) { return WhyNot(key, node); });
  }
}

NodeEndpoint::~NodeEndpoint() { Stop(); }

Result<void> NodeEndpoint::Listen() {
  if (!options_.zmq.secret_key_file.empty()) {
    auto keys = net::ReadKeyPair(options_.zmq.secret_key_file);
    if (!keys) return tl::unexpected(keys.error());
    zap_.emplace(io_, context_, options_.zmq.nodes,
                 [this](const std::string& key, const std::string& address) {
                   Warn(fmt::format("{} uses keys that are not in [zmq.nodes]", address),
                        fmt::format("refused {}: its key {} is not in [zmq.nodes]", address, key));
                 });
    socket_.Set(ZMQ_CURVE_SERVER, 1);
    socket_.Set(ZMQ_CURVE_SECRETKEY, keys->secret_key);
    socket_.Set(ZMQ_ZAP_DOMAIN, "baton");
  } else {
    log_.Add(node::EventLog::Level::kWarning, "node",
             fmt::format("{} has no keys: any user of this machine can act as a node there, "
                         "and do what its operator can; see 'baton keygen --help'",
                         options_.zmq.listen));
  }
  socket_.SetLongest(wire::kBooksFrameMax);
  socket_.Set(ZMQ_ROUTER_MANDATORY, 1);  // an unreachable peer is an error, not silence
  socket_.Set(ZMQ_ROUTER_HANDOVER, 1);
  socket_.Set(ZMQ_SNDHWM, kQueueMax);
  socket_.Set(ZMQ_RCVHWM, kQueueMax);
  socket_.Set(ZMQ_IPV6, 1);
  socket_.Set(ZMQ_TCP_KEEPALIVE, 1);
  socket_.Set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  zmq_socket_monitor(socket_.get(), kMonitor, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  monitor_.emplace(
      io_, context_, ZMQ_PAIR,
      [this](const std::vector<std::string_view>& parts, std::string_view) { OnMonitor(parts); });
  monitor_->Set(ZMQ_RCVHWM, 0);
  if (auto ok = monitor_->Connect(kMonitor); !ok) return ok;
  monitor_->Start();
  if (auto bound = socket_.Bind(options_.zmq.listen); !bound) return bound;
  socket_.Start();
  Beat();
  return {};
}

void NodeEndpoint::Stop() {
  beat_.cancel();
  if (monitor_ && socket_.get() != nullptr) zmq_socket_monitor(socket_.get(), nullptr, 0);
  if (monitor_) monitor_->Close();
  socket_.Close();
}

void NodeEndpoint::OnMonitor(const std::vector<std::string_view>& parts) {
  uint16_t event = 0;
  int32_t descriptor = -1;
  if (parts.empty() || parts[0].size() < sizeof event + sizeof descriptor) return;
  memcpy(&event, parts[0].data(), sizeof event);
  memcpy(&descriptor, parts[0].data() + sizeof event, sizeof descriptor);
  if (event != ZMQ_EVENT_ACCEPTED) {
    connections_.erase(descriptor);
    return;
  }
  connections_.insert(descriptor);
  const size_t most = ConnectionsMax();
  if (connections_.size() <= most) return;
  // Some may have ended unheard of, and this one meanwhile, and its descriptor stand for another.
  std::erase_if(connections_, [this](int known) { return !IsConnection(known); });
  if (connections_.size() <= most || connections_.count(descriptor) == 0) return;
  shutdown(descriptor, SHUT_RDWR);
  const std::string text = fmt::format(
      "{} serves no more than {} connections, a quarter of the "
      "file descriptors",
      options_.zmq.listen, most);
  Warn(text, text + "; more are refused");
}

bool NodeEndpoint::IsConnection(int descriptor) const {
  char bound_to[256] = {};
  size_t size = sizeof bound_to;
  if (zmq_getsockopt(socket_.get(), ZMQ_LAST_ENDPOINT, bound_to, &size) != 0) return false;
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    port = reinterpret_cast<const sockaddr_in&>(address).sin_port;
  } else if (address.ss_family == AF_INET6) {
    port = reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  }
  return port != 0 && std::string_view(bound_to).ends_with(fmt::format(":{}", ntohs(port)));
}

void NodeEndpoint::Warn(const std::string& about, const std::string& text) {
  if (refusals_.Add(about, MonotonicNow())) {
    log_.Add(node::EventLog::Level::kWarning, "node", text);
  }
}

void NodeEndpoint::NodesChanged() {
  if (!zap_) return;
  zap_->SetNodes(options_.zmq.nodes);
  for (auto& [name, node] : nodes_) {
    if (!node->connected || WhyNot(node->key, name).empty()) continue;
    log_.Add(node::EventLog::Level::kWarning, "node",
             fmt::format("the key of node {} is not listed any more; its link is cut", name));
    node->connected = false;
    node_by_identity_.erase(node->identity);
    node->identity.clear();
    arbiter_.SetFrozen(name, true);
  }
}

std::string NodeEndpoint::WhyNot(std::string_view key, std::string_view node) const {
  if (key.empty() || !zap_ || zap_->IsOf(key, node)) return "";
  return fmt::format("this key belongs to node {}; set node.name to it", zap_->NodeOf(key));
}

void NodeEndpoint::TellTeams() {
  if (books_) books_->TellTeams();
}

std::vector<NodeStatus> NodeEndpoint::Status() const {
  std::vector<NodeStatus> all;
  const Instant now = MonotonicNow();
  for (const auto& [name, node] : nodes_) {
    all.push_back(
        {name, node->connected, node->clients.size(), Nanos(now - node->heard) / 1000000});
  }
  return all;
}

template <class Message>
bool NodeEndpoint::SendTo(const std::string& identity, const Message& message) {
  char buffer[wire::kTenantFrameMax + kEnvelope];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  return size != 0 && socket_.Send({identity, {buffer, size}});
}

template <class Message>
void NodeEndpoint::Tell(Node& node, const Message& message) {
  char buffer[wire::kTenantFrameMax + kEnvelope];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  if (size == 0) return;
  const auto send = [&](std::string_view frames) { socket_.Send({node.identity, frames}); };
  if (!node.batches) return send({buffer, size});
  if (node.batch.empty()) FlushSoon(node);
  node.batch.Add({buffer, size}, send);
}

void NodeEndpoint::FlushSoon(Node& node) {
  to_flush_.push_back(&node);
  if (to_flush_.size() > 1) return;
  boost::asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) Flush();
  });
}

void NodeEndpoint::Flush() {
  for (Node* node : std::exchange(to_flush_, {})) {
    node->batch.Flush([&](std::string_view frames) { socket_.Send({node->identity, frames}); });
  }
}

void NodeEndpoint::SendError(const std::string& identity, wire::ErrorKind kind,
                             std::string_view text) {
  wire::Error error;
  error.kind = kind;
  error.text.Set(text);
  SendTo(identity, error);
}

void NodeEndpoint::Receive(const std::vector<std::string_view>& parts, std::string_view key) {
  if (parts.size() < 2) return;
  if (!key.empty() && zap_ && zap_->NodeOf(key).empty()) {
    // It was listed when this connected. What it sends is dropped until it is listed again.
    const std::string text =
        fmt::format("a node uses the key {}, which is not listed any more", key);
    return Warn(text, text);
  }
  const std::string identity(parts[0]);
  const std::string_view bytes = parts[1];
  wire::Frame frame;
  const wire::DecodeStatus parsed = frame.Parse(bytes.data(), bytes.size());
  const bool of_books =
      parsed == wire::DecodeStatus::kOk && frame.type() == wire::BooksBatch::kType;
  if ((bytes.size() > wire::kRelayFrameMax && !of_books) || parts.size() > 2) {
    return SendError(identity, wire::ErrorKind::kLimit, "this message is too long");
  }
  switch (parsed) {
    case wire::DecodeStatus::kOk:
      break;
    case wire::DecodeStatus::kMalformed:
      return SendError(identity, wire::ErrorKind::kMalformed, "this is not a message of Baton");
    case wire::DecodeStatus::kVersion:
      return SendError(identity, wire::ErrorKind::kVersion,
                       fmt::format("batond speaks protocol versions up to {}; install the same "
                                   "release of Baton on the node",
                                   wire::kVersion + 1));
  }
  if (books_ && books_->Take(identity, key, frame)) return;
  if (auto it = node_by_identity_.find(identity);
      it != node_by_identity_.end() && frame.type() != wire::NodeHello::kType) {
    return FromNode(*it->second, frame);
  }
  if (auto it = directs_.find(identity); it != directs_.end()) {
    return FromDirect(*it->second, frame);
  }
  if (frame.type() == wire::NodeHello::kType) {
    wire::NodeHello hello;
    if (!frame.Read(hello) || hello.instance == 0 || hello.node.view().empty()) {
      return SendError(identity, wire::ErrorKind::kMalformed, "a field of NodeHello is wrong");
    }
    return OnNodeHello(identity, hello, key);
  }
  if (frame.type() == wire::Hello::kType) {
    wire::Hello hello;
    if (!frame.Read(hello) || hello.incarnation == 0) {
      return SendError(identity, wire::ErrorKind::kMalformed, "a field of Hello is wrong");
    }
    return OnHello(identity, hello, key);
  }
  if (frame.type() >= 32 && frame.type() < 64) {
    // A relay that this batond does not know, or not any more.
    SendTo(identity, wire::NodeSync{});
    return;
  }
  SendError(identity, wire::ErrorKind::kProtocol, "the first frame must be Hello or NodeHello");
}

void NodeEndpoint::OnNodeHello(const std::string& identity, const wire::NodeHello& hello,
                               std::string_view key) {
  const std::string name(hello.node.view());
  if (const std::string why = WhyNot(key, name); !why.empty()) {
    const std::string owner = zap_ ? zap_->NodeOf(key) : "";
    Warn(fmt::format("node {} uses its key to act as another node", owner),
         fmt::format("refused: node {} used its key to act as node {}", owner, name));
    return SendError(identity, wire::ErrorKind::kDenied, why);
  }
  if (nodes_.size() >= kNodesMax && nodes_.count(name) == 0) {
    return SendError(identity, wire::ErrorKind::kLimit, "there are too many nodes");
  }
  auto& slot = nodes_[name];
  if (slot == nullptr) slot = std::make_unique<Node>(*this, name);
  Node& node = *slot;
  if (hello.instance == node.replaced) {
    // It lives, as does the one that took its place.
    return SendError(identity, wire::ErrorKind::kDenied,
                     fmt::format("another baton-frontend now acts as node {}; stop one, or give "
                                 "each its own node.name",
                                 name));
  }
  const bool again = node.instance == hello.instance;
  if (!again && node.instance != 0) {
    node.replaced = node.instance;
    log_.Add(node::EventLog::Level::kInfo, "node", "the relay of node " + name + " restarted");
  } else if (!node.connected) {
    log_.Add(node::EventLog::Level::kInfo, "node",
             node.instance == 0 ? "node " + name + " connected"
                                : "the link to node " + name + " is back");
  }
  // After each NodeWelcome the relay says again who is there. Who is not among them may have ended
  // while the link was cut, and is asked about. A relay that is the same as before has watched its
  // clients all along.
  arbiter_.sessions().DropLink(node, again ? kNever : node.heard);
  node.refused.clear();
  node.clients.clear();
  node_by_identity_.erase(node.identity);
  node.identity = identity;
  node.key = key;
  node.instance = hello.instance;
  node.connected = true;
  node.batches = hello.batches;
  node.batch.Clear();
  node.heard = MonotonicNow();
  node.asked_again = node.heard;  // a relay that is welcomed says everything again by itself
  node_by_identity_[identity] = &node;

  wire::NodeWelcome welcome;
  welcome.instance = instance_;
  welcome.heartbeat_ns = static_cast<uint64_t>(Nanos(options_.zmq.heartbeat));
  welcome.batches = true;
  SendTo(identity, welcome);

  std::vector<devmgr::Card> cards;
  std::istringstream lines{std::string(hello.gpus.view())};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    devmgr::GpuInfo gpu;
    words >> gpu.uuid >> gpu.memory_bytes;
    std::getline(words >> std::ws, gpu.name);
    const bool printable = std::all_of(gpu.uuid.begin(), gpu.uuid.end(),
                                       [](char c) { return c > 0x20 && c < 0x7f && c != '/'; });
    if (gpu.uuid.empty() || gpu.uuid.size() > 64 || !printable) continue;
    if (arbiter_.gpus().count(gpu.uuid) == 0 && arbiter_.GpusOf(name).size() >= kGpusOfNodeMax) {
      SendError(identity, wire::ErrorKind::kLimit,
                fmt::format("a node has at most {} GPUs; {} and the GPUs after it are not managed",
                            kGpusOfNodeMax, gpu.uuid));
      break;
    }
    if (auto added = arbiter_.AddGpu(gpu, name); !added) {
      Warn(fmt::format("node {} reports GPUs that cannot be managed for it", name),
           fmt::format("node {} reports a GPU that cannot be managed for it: {}", name,
                       added.error().message));
      continue;
    }
    if (const devmgr::Card* card = arbiter_.vgpus().cards().Find(gpu.uuid)) {
      cards.push_back(*card);
      cards.back().health = devmgr::Health::kHealthy;
      cards.back().why.clear();
      cards.back().cordoned = false;
    }
  }
  arbiter_.SetCards(name, std::move(cards));  // those that it does not name are missing
  arbiter_.SetFrozen(name, false);
  AskAboutMissing(node);
}

void NodeEndpoint::AskAboutMissing(Node& node) {
  for (const Sessions::Missing& missing : arbiter_.sessions().MissingOn(node.name)) {
    wire::NodeCheck check;
    check.pid = missing.pid;
    check.start_time = missing.start_time;
    Tell(node, check);
  }
}

void NodeEndpoint::FromNode(Node& node, const wire::FramesUp& batch) {
  const std::string identity = node.identity;
  const bool whole = wire::EachFrame(batch.frames, [&](std::string_view bytes) {
    wire::Frame frame;
    const bool is_one = frame.Parse(bytes.data(), bytes.size()) == wire::DecodeStatus::kOk &&
                        frame.type() != wire::FramesUp::kType;
    if (is_one) return FromNode(node, frame);
    SendError(identity, wire::ErrorKind::kMalformed, "a frame among others is none of Baton's");
  });
  if (!whole) {
    SendError(identity, wire::ErrorKind::kMalformed,
              "frames that came together have wrong lengths");
  }
  Flush();  // the node has work while this side takes in what others say
}

void NodeEndpoint::FromNode(Node& node, const wire::Frame& frame) {
  node.heard = MonotonicNow();
  if (!node.connected) {
    // It was silent, and speaks on as if nothing had happened: frames may be missing.
    node.connected = true;
    log_.Add(node::EventLog::Level::kInfo, "node", "the link to node " + node.name + " is back");
    arbiter_.SetFrozen(node.name, false);
    SendTo(node.identity, wire::NodeSync{});
    node.asked_again = node.heard;
  }
  auto malformed = [&] {
    SendError(node.identity, wire::ErrorKind::kMalformed,
              fmt::format("a field of message {} is out of range", frame.type()));
  };
  auto client_of = [&](uint64_t number) -> ClientId {
    auto it = node.clients.find(number);
    if (it != node.clients.end()) return it->second;
    if (node.refused.count(number) != 0) return {};  // what it says on its way out
    // Lost while the link was cut.
    if (node.heard - node.asked_again > options_.zmq.lost_after) {
      node.asked_again = node.heard;
      SendTo(node.identity, wire::NodeSync{});
    }
    return {};
  };
  switch (frame.type()) {
    case wire::ClientFrame::kType: {
      wire::ClientFrame message;
      if (!frame.Read(message)) return malformed();
      const ClientId client = client_of(message.client);
      if (!client) return;
      wire::Frame inner;
      if (inner.Parse(message.frame.data, message.frame.size) != wire::DecodeStatus::kOk) {
        return malformed();
      }
      if (inner.type() == wire::State::kType) {
        wire::State state;
        if (!inner.Read(state) || state.phase > wire::Phase::kDraining) return malformed();
        const scheduler::Measured measured{DurationFromNanos(message.held_ns),
                                           DurationFromNanos(message.pod_held_ns)};
        if (message.ended) {
          return arbiter_.sessions().Ended(client, state.gpu, state.epoch, measured.held);
        }
        arbiter_.sessions().State(client, state, measured, DurationFromNanos(message.age_ns));
      } else if (inner.type() == wire::Attach::kType) {
        wire::Attach attach;
        if (!inner.Read(attach)) return malformed();
        arbiter_.sessions().Attach(client, attach);
      } else if (inner.type() == wire::Memory::kType) {
        wire::Memory memory;
        if (!inner.Read(memory)) return malformed();
        arbiter_.sessions().Memory(client, memory);
      }
      return;
    }
    case wire::ClientUp::kType: {
      wire::ClientUp message;
      wire::Frame inner;
      wire::Hello hello;
      if (!frame.Read(message) || message.client == 0 ||
          inner.Parse(message.hello.data, message.hello.size) != wire::DecodeStatus::kOk ||
          !inner.Read(hello) || hello.incarnation == 0) {
        return malformed();
      }
      hello.words = message.words;
      const ClientId id =
          arbiter_.sessions().Up(node, message.client, node.name, message.pid, message.start_time,
                                 message.uid, message.kubernetes_pod.view(), hello);
      if (id) {
        node.refused.erase(message.client);
        node.clients[message.client] = id;
      } else {
        if (node.refused.size() >= kRefusedMax) node.refused.clear();
        node.refused.insert(message.client);
      }
      return;
    }
    case wire::ClientDown::kType: {
      wire::ClientDown message;
      if (!frame.Read(message) || message.reason > wire::DownReason::kDisconnected) {
        return malformed();
      }
      auto it = node.clients.find(message.client);
      if (it == node.clients.end()) return;
      const ClientId id = it->second;
      if (message.reason == wire::DownReason::kExited) node.clients.erase(it);
      arbiter_.sessions().Down(id, message.reason);
      return;
    }
    case wire::NodeChecked::kType: {
      wire::NodeChecked message;
      if (!frame.Read(message)) return malformed();
      if (message.alive) return;
      for (const Sessions::Missing& missing : arbiter_.sessions().MissingOn(node.name)) {
        if (missing.pid == message.pid && missing.start_time == message.start_time) {
          arbiter_.sessions().Down(missing.client, wire::DownReason::kExited);
        }
      }
      return;
    }
    case wire::Control::kType: {
      wire::Control message;
      if (!frame.Read(message)) return malformed();
      control_.Handle(std::string(message.json.data, message.json.size),
                      {.node = node.name, .user = {}},
                      [this, alive = std::weak_ptr(alive_), identity = node.identity,
                       request = message.request](const node::LongAnswer& answer) {
                        if (!alive.expired()) Answer(identity, request, answer);
                      });
      return;
    }
    case wire::FramesUp::kType: {
      wire::FramesUp message;
      if (!frame.Read(message)) return malformed();
      return FromNode(node, message);
    }
    case wire::Ping::kType:
      return;
    default:
      // A newer relay may have more to say.
      return;
  }
}

void NodeEndpoint::Answer(const std::string& identity, uint64_t request,
                          const node::LongAnswer& given) {
  const std::string answer =
      given.size() <= wire::kRelayFrameMax - kEnvelope
          ? given.Whole()
          : R"({"ok":false,"code":"exhausted","error":"the answer is too long for a relay; )"
            R"(ask batond's own control socket"})";
  wire::Control reply;
  reply.request = request;
  reply.json = {answer.data(), answer.size()};
  std::string buffer(answer.size() + kEnvelope, '\0');
  const size_t size = wire::Encode(reply, buffer.data(), buffer.size());
  socket_.Send({identity, {buffer.data(), size}});
}

void NodeEndpoint::OnHello(const std::string& identity, const wire::Hello& hello,
                           std::string_view key) {
  const Pod* pod = arbiter_.pods().FindByTicket(hello.ticket.view());
  if (pod != nullptr && !pod->throw_away) {
    return SendError(identity, wire::ErrorKind::kDenied,
                     "over ZeroMQ a program attaches through its node's baton-frontend; only "
                     "tickets of bench_ticket are served directly");
  }
  if (directs_.size() >= kDirectsMax) {
    return SendError(identity, wire::ErrorKind::kLimit, "too many clients without a relay");
  }
  auto direct = std::make_unique<Direct>(*this, identity);
  direct->heard = MonotonicNow();
  direct->client = arbiter_.sessions().Up(*direct, 0, zap_ ? zap_->NodeOf(key) : "", 0,
                                          ++directs_made_, 0, "", hello);
  if (direct->client) directs_[identity] = std::move(direct);
}

void NodeEndpoint::FromDirect(Direct& direct, const wire::Frame& frame) {
  direct.heard = MonotonicNow();
  bool understood = true;
  if (direct.closing) {
    understood = false;
  } else if (frame.type() == wire::State::kType) {
    wire::State state;
    understood = frame.Read(state) && state.phase <= wire::Phase::kDraining;
    if (understood) arbiter_.sessions().State(direct.client, state, {});
  } else if (frame.type() == wire::Attach::kType) {
    wire::Attach attach;
    understood = frame.Read(attach);
    if (understood) arbiter_.sessions().Attach(direct.client, attach);
  } else if (frame.type() == wire::Memory::kType) {
    wire::Memory memory;
    understood = frame.Read(memory);
    if (understood) arbiter_.sessions().Memory(direct.client, memory);
  } else {
    understood = false;
  }
  if (understood && !direct.closing) return;
  if (!direct.closing) direct.Refuse(0, wire::ErrorKind::kProtocol, "unexpected message");
  const ClientId client = direct.client;
  directs_.erase(std::string(direct.identity));
  arbiter_.sessions().Down(client, wire::DownReason::kExited);
}

void NodeEndpoint::Beat() {
  beat_.expires_after(options_.zmq.heartbeat);
  beat_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const Instant now = MonotonicNow();
    wire::Ping ping;
    ping.instance = instance_;
    const bool sweep = ++beats_ % 5 == 0;
    for (auto& [name, node] : nodes_) {
      if (node->connected && now - node->heard > options_.zmq.lost_after) {
        node->connected = false;
        log_.Add(node::EventLog::Level::kWarning, "node",
                 fmt::format("the link to node {} is cut; no token of its GPUs moves", name));
        arbiter_.SetFrozen(name, true);
      }
      if (!node->identity.empty()) SendTo(node->identity, ping);
      if (sweep && node->connected) AskAboutMissing(*node);
    }
    std::vector<std::string> silent;
    for (const auto& [identity, direct] : directs_) {
      if (direct->closing || now - direct->heard > kDirectSilence) silent.push_back(identity);
    }
    for (const std::string& identity : silent) {
      auto direct = std::move(directs_.at(identity));
      directs_.erase(identity);
      arbiter_.sessions().Down(direct->client, wire::DownReason::kExited);
    }
    Beat();
  });
}

}  // namespace baton::backend
