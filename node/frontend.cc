#include "node/frontend.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <tuple>
#include <utility>

#include "base/entropy.h"
#include "node/gpu_lock.h"
#include "node/notify.h"

namespace baton::node {
namespace {

// So long handshakes may fail for no reason that is told.
constexpr Duration kHandshakePatience = std::chrono::seconds(5);
// After batond has refused this node's key.
constexpr Duration kConnectAgain = std::chrono::seconds(1);
constexpr size_t kEnvelope = 64;  // what a frame grows by inside another
constexpr size_t kAskedMax = 256;
constexpr size_t kEndedMax = 256;
constexpr int kQueueMax = 10'000;
constexpr Duration kHelloEvery = std::chrono::milliseconds(50);

std::string Failure(const char* code, const std::string& text) {
  return fmt::format(R"({{"ok":false,"code":"{}","error":"{}"}})", code, text);
}

// Null for what is no GPU of this node: nothing runs there.
scheduler::RelayGuard* GuardOf(std::map<std::string, scheduler::RelayGuard>& guards,
                               const std::string& uuid) {
  const auto guard = guards.find(uuid);
  return guard == guards.end() ? nullptr : &guard->second;
}

// Requests of which nobody will hear any more.
void FailAll(std::map<uint64_t, ControlSocket::Respond>& asked) {
  for (auto& [id, respond] : std::exchange(asked, {})) {
    respond(Failure("unavailable", "the link to batond was lost"));
  }
}

// Says each trouble of the link once, until there is another.
void WarnOnce(std::string& last, const std::string& trouble) {
  if (std::exchange(last, trouble) != trouble) spdlog::warn("link: {}", trouble);
}

}  // namespace

Frontend::Frontend(config::Options options)
    : options_(std::move(options)),
      node_(config::NodeName(options_)),
      instance_(RandomId()),
      nvml_(devmgr::Nvml::Load()),
      beat_(io_) {}

Frontend::~Frontend() = default;

void Frontend::FindGpus() {
  gpus_ = options_.gpus;
  const auto others =
      std::erase_if(gpus_, [](const devmgr::GpuInfo& gpu) { return !gpu.by_token(); });
  if (others != 0) {
    spdlog::warn(
        "gpu: {} [[gpu]] of other vendors left out: only a batond on the node itself can give them "
        "to pods",
        others);
  }
  if (gpus_.empty()) gpus_ = nvml_->Gpus();
  if (gpus_.empty()) {
    spdlog::warn(
        "gpu: no GPU was found ({}); list them as [[gpu]] in the configuration, or check "
        "the driver",
        nvml_->available() ? "NVML lists none" : nvml_->why());
  }
}

Result<void> Frontend::TakeLocks() {
  if (gpus_.empty()) FindGpus();
  for (const devmgr::GpuInfo& gpu : gpus_) {
    auto lock = LockGpu(options_.server.lock_dir, gpu.uuid);
    if (!lock) {
      gpu_locks_.clear();
      return tl::unexpected(lock.error());
    }
    gpu_locks_.push_back(std::move(*lock));
  }
  locked_ = true;
  return {};
}

Result<void> Frontend::Start() {
  if (node_.size() > 64) return Fail(ErrorCode::kInvalid, "node.name is longer than 64 characters");
  if (!locked_) {
    if (auto taken = TakeLocks(); !taken) return taken;
  }
  for (const devmgr::GpuInfo& gpu : gpus_) {
    guards_.try_emplace(gpu.uuid, options_.scheduler.drain_timeout);
  }
  const std::string& dir =
      options_.node.socket_dir.empty() ? options_.server.socket_dir : options_.node.socket_dir;
  if (auto made = MakeFolders(dir, 0755); !made) return made;
  tenants_.emplace(io_, static_cast<TenantSink&>(*this), *nvml_, LimitsOf(options_));
  control_.emplace(
      io_, [this](const std::string& line, const ControlSocket::Peer&,
                  ControlSocket::Respond respond) { AskControl(line, std::move(respond)); });
  const std::string& control_dir =
      options_.server.control_dir.empty() ? dir : options_.server.control_dir;
  if (auto made = MakeFolders(control_dir, 0700); !made) return made;
  if (auto ok = control_->Listen(control_dir + "/control.sock"); !ok) return ok;
  if (auto ok = tenants_->Listen(dir + "/baton.sock", control_dir + "/baton.sock.lock"); !ok) {
    return ok;
  }
  if (auto ok = Connect(); !ok) return ok;
  signals_.Await([this](int) { Stop(); });
  spdlog::info("baton-frontend {} of node {} serves {} for {}", BATON_VERSION, node_, dir,
               options_.zmq.connect);
  Beat();
  Notify("READY=1");
  return {};
}

Result<void> Frontend::Connect() {
  const net::LinkOptions& link = options_.zmq;
  const std::string server_key =
      net::ServerKey(link.server_public_key, link.server_public_key_file);
  const bool missing = server_key.empty() && !link.server_public_key_file.empty();
  if (missing && !dealer_) {
    WarnOnce(trouble_, "waiting for batond's public key in " + link.server_public_key_file);
  }
  // ZeroMQ tries no more after a refusal, and this node may be listed by now.
  const bool again = refused_at_ != kNever && MonotonicNow() - refused_at_ >= kConnectAgain;
  if (missing || (dealer_ && server_key == server_key_ && !again)) return {};
  if (dealer_) {
    if (server_key != server_key_) {
      spdlog::info("link: batond has another public key; connecting anew");
    }
    if (up_) LinkLost();
    zmq_socket_monitor(dealer_->get(), nullptr, 0);
    monitor_.reset();
  }
  dealer_.emplace(io_, context_, ZMQ_DEALER,
                  [this](const std::vector<std::string_view>& parts, std::string_view) {
                    if (parts.size() == 1) FromBatond(parts[0]);
                  });
  if (!server_key.empty()) {
    auto keys = net::ReadKeyPair(link.secret_key_file);
    if (!keys) return tl::unexpected(keys.error());
    dealer_->Set(ZMQ_CURVE_SERVERKEY, server_key);
    dealer_->Set(ZMQ_CURVE_PUBLICKEY, keys->public_key);
    dealer_->Set(ZMQ_CURVE_SECRETKEY, keys->secret_key);
  }
  dealer_->SetLongest(wire::kRelayFrameMax);
  // What cannot be sent now is dropped: everything is said again when the link is back.
  dealer_->Set(ZMQ_IMMEDIATE, 1);
  dealer_->Set(ZMQ_SNDHWM, kQueueMax);
  dealer_->Set(ZMQ_RCVHWM, kQueueMax);
  dealer_->Set(ZMQ_RECONNECT_IVL, 20);
  dealer_->Set(ZMQ_RECONNECT_IVL_MAX, 500);
  dealer_->Set(ZMQ_IPV6, 1);
  dealer_->Set(ZMQ_TCP_KEEPALIVE, 1);
  // A connection that went silent is given up and made anew.
  const auto beat_ms = static_cast<int>(Nanos(options_.zmq.heartbeat) / 1'000'000);
  const auto lost_ms = static_cast<int>(Nanos(options_.zmq.lost_after) / 1'000'000);
  dealer_->Set(ZMQ_HEARTBEAT_IVL, beat_ms);
  dealer_->Set(ZMQ_HEARTBEAT_TIMEOUT, 2 * lost_ms);
  const std::string monitor = fmt::format("inproc://baton.monitor-{}", ++connects_);
  zmq_socket_monitor(dealer_->get(), monitor.c_str(),
                     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                         ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL);
  monitor_.emplace(
      io_, context_, ZMQ_PAIR,
      [this](const std::vector<std::string_view>& parts, std::string_view) { OnMonitor(parts); });
  if (auto ok = monitor_->Connect(monitor); !ok) return ok;
  monitor_->Start();
  if (auto ok = dealer_->Connect(options_.zmq.connect); !ok) return ok;
  dealer_->Start();
  server_key_ = server_key;
  refused_at_ = kNever;  // not before: what fails above is tried again
  return {};
}

Result<void> Frontend::Run() {
  io_.run();
  if (!refused_.empty()) return Fail(ErrorCode::kDenied, refused_);
  return {};
}

void Frontend::Stop() {
  Notify("STOPPING=1");
  spdlog::info("stopping");
  beat_.cancel();
  if (tenants_) tenants_->Stop();
  if (control_) control_->Stop();
  if (dealer_) {
    zmq_socket_monitor(dealer_->get(), nullptr, 0);
    dealer_->Close();
  }
  if (monitor_) monitor_->Close();
  signals_.Stop();
  io_.stop();
}

template <class Message>
void Frontend::Say(const Message& message) {
  char buffer[std::max(wire::kTenantFrameMax, sizeof(Message)) + kEnvelope];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  const auto send = [this](std::string_view frames) {
    if (dealer_) dealer_->Send({frames});
  };
  if (!batches_ || size > wire::kBatchMax - wire::kBatchLength) {
    batch_.Flush(send);
    return send({buffer, size});
  }
  if (batch_.empty()) {
    boost::asio::post(io_, [this, send] { batch_.Flush(send); });
  }
  batch_.Add({buffer, size}, send);
}

void Frontend::OnHello(uint64_t number, const Peer& peer, const wire::Hello& hello,
                       std::string_view frame) {
  Client& client = clients_[number];
  client.hello = frame;
  client.ticket = hello.ticket.view();
  client.pid = static_cast<uint64_t>(peer.pid);
  client.start_time = peer.start_time;
  client.uid = peer.uid;
  client.kubernetes_pod = peer.kubernetes_pod;
  client.words = hello.words;
  client.connected = true;
  client.welcomed = false;
  for (Lane& lane : client.lanes) {
    lane.attach.clear();
    lane.state.clear();
  }
  for (auto& [uuid, guard] : guards_) guard.Disconnect(number);
  if (up_) {
    SayUp(number, client);
  } else {
    TellAway(number);
  }
}

void Frontend::SayUp(uint64_t number, const Client& client) {
  wire::ClientUp up;
  up.client = number;
  up.pid = client.pid;
  up.start_time = client.start_time;
  up.uid = client.uid;
  up.kubernetes_pod.Set(client.kubernetes_pod);
  up.words = client.words;
  up.hello = {client.hello.data(), client.hello.size()};
  Say(up);
  for (const Lane& lane : client.lanes) {
    if (lane.attach.empty()) continue;
    PassOn(number, lane.attach);
    // It may have been said while the link was cut.
    if (!lane.state.empty()) {
      PassOn(number, lane.state, lane.measured, MonotonicNow() - lane.said_at);
    }
    if (!lane.ended.empty()) PassOn(number, lane.ended, {.held = lane.held}, Duration(0), true);
  }
}

void Frontend::PassOn(uint64_t number, std::string_view frame, const scheduler::Measured& measured,
                      Duration age, bool ended) {
  if (!up_) return;
  wire::ClientFrame message;
  message.client = number;
  message.held_ns = static_cast<uint64_t>(Nanos(measured.held));
  message.pod_held_ns = static_cast<uint64_t>(Nanos(measured.pod_held));
  message.age_ns = static_cast<uint64_t>(Nanos(age));
  message.ended = ended;
  message.frame = {frame.data(), frame.size()};
  Say(message);
}

void Frontend::OnAttach(uint64_t number, const wire::Attach& attach, std::string_view frame) {
  PassOn(number, frame);
  Client& client = clients_[number];
  if (attach.gpu >= client.lanes.size()) client.lanes.resize(attach.gpu + 1);
  Lane& lane = client.lanes[attach.gpu];
  if (lane.uuid != attach.uuid.view()) lane = Lane{};
  lane.attach = frame;
  lane.uuid = attach.uuid.view();
  if (auto* guard = GuardOf(guards_, lane.uuid)) guard->Attach(number, client.ticket);
}

void Frontend::OnState(uint64_t number, const wire::State& state,
                       const scheduler::Measured& measured, std::string_view frame) {
  auto it = clients_.find(number);
  if (it == clients_.end() || state.gpu >= it->second.lanes.size()) return;
  Lane& lane = it->second.lanes[state.gpu];
  auto* guard = GuardOf(guards_, lane.uuid);
  const Instant now = MonotonicNow();
  if (guard != nullptr && !guard->Said(now, number, state)) return;
  PassOn(number, frame, measured);
  lane.state = frame;
  lane.measured = measured;
  lane.said_at = now;
}

void Frontend::OnMemory(uint64_t number, const wire::Memory&, std::string_view frame) {
  PassOn(number, frame);
}

void Frontend::OnEnded(uint64_t number, uint8_t gpu, uint64_t epoch, Duration held) {
  const auto it = clients_.find(number);
  if (it == clients_.end() || gpu >= it->second.lanes.size()) return;
  Lane& lane = it->second.lanes[gpu];
  wire::State state;
  state.gpu = gpu;
  state.epoch = epoch;
  char buffer[wire::kTenantFrameMax];
  lane.ended.assign(buffer, wire::Encode(state, buffer, sizeof buffer));
  lane.held = held;
  PassOn(number, lane.ended, {.held = held}, Duration(0), true);
}

void Frontend::OnDown(uint64_t number, wire::DownReason reason) {
  if (auto watched = watched_.find(number);
      watched != watched_.end() && reason == wire::DownReason::kExited) {
    wire::NodeChecked checked;
    checked.pid = watched->second.first;
    checked.start_time = watched->second.second;
    checked.alive = false;
    if (up_) Say(checked);
    watched_.erase(watched);
  }
  auto it = clients_.find(number);
  if (it == clients_.end()) return;
  if (up_) {
    wire::ClientDown down;
    down.client = number;
    down.reason = reason;
    Say(down);
  }
  it->second.connected = false;
  if (reason != wire::DownReason::kExited && it->second.served) return;
  for (auto& [uuid, guard] : guards_) guard.Gone(MonotonicNow(), number);
  const std::vector<Lane>& lanes = it->second.lanes;
  const bool held =
      std::any_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return !lane.ended.empty(); });
  if (!up_ && held) {
    ended_.emplace_back(number, std::move(it->second));
    if (ended_.size() > kEndedMax) ended_.pop_front();
  }
  clients_.erase(it);
}

void Frontend::OnTenantNote(uint64_t number, const std::string& text) {
  spdlog::debug("client {} {}", number, text);
}

void Frontend::OnBound(const std::string& text) { spdlog::warn("client: {}", text); }

void Frontend::TellAway(uint64_t number) {
  wire::Error error;
  error.kind = wire::ErrorKind::kUnavailable;
  error.text.Set(
      fmt::format("batond at {} does not answer; launches wait for it", options_.zmq.connect));
  char buffer[512];
  const size_t size = wire::Encode(error, buffer, sizeof buffer);
  tenants_->Send(number, {buffer, size});
}

void Frontend::FromBatond(std::string_view bytes, bool together) {
  wire::Frame frame;
  if (frame.Parse(bytes.data(), bytes.size()) != wire::DecodeStatus::kOk) {
    spdlog::warn("link: a message from batond was not understood; install the same release there");
    return;
  }
  heard_ = MonotonicNow();
  switch (frame.type()) {
    case wire::FramesDown::kType: {
      wire::FramesDown message;
      if (together || !frame.Read(message)) return;
      wire::EachFrame(message.frames, [this](std::string_view one) { FromBatond(one, true); });
      return;
    }
    case wire::ToClient::kType: {
      wire::ToClient message;
      if (frame.Read(message)) OnToClient(message);
      return;
    }
    case wire::NodeWelcome::kType: {
      wire::NodeWelcome message;
      if (frame.Read(message)) OnNodeWelcome(message);
      return;
    }
    case wire::NodeSync::kType:
      return SayNodeHello();
    case wire::Ping::kType: {
      wire::Ping message;
      if (frame.Read(message) && (!up_ || message.instance != batond_)) SayNodeHello();
      return;
    }
    case wire::NodeCheck::kType: {
      wire::NodeCheck message;
      if (frame.Read(message)) OnNodeCheck(message);
      return;
    }
    case wire::KillClient::kType: {
      wire::KillClient message;
      if (frame.Read(message)) tenants_->KillProcess(message.client);
      return;
    }
    case wire::Control::kType: {
      wire::Control message;
      if (!frame.Read(message)) return;
      auto it = asked_.find(message.request);
      if (it == asked_.end()) return;
      auto respond = std::move(it->second);
      asked_.erase(it);
      respond(std::string(message.json.data, message.json.size));
      return;
    }
    case wire::Error::kType: {
      wire::Error message;
      if (!frame.Read(message)) return;
      const auto text = fmt::format("batond refuses this node: {}", message.text.view());
      if (message.kind == wire::ErrorKind::kDenied || message.kind == wire::ErrorKind::kVersion) {
        refused_ = text;
        Stop();
      } else {
        spdlog::error(text);
      }
      return;
    }
    default:
      return;  // a newer batond may have more to say
  }
}

void Frontend::OnToClient(const wire::ToClient& message) {
  auto it = clients_.find(message.client);
  if (it == clients_.end() || !it->second.connected) return;
  Client& client = it->second;
  const std::string_view bytes(message.frame.data, message.frame.size);
  wire::Frame frame;
  if (bytes.size() > wire::kTenantFrameMax ||
      frame.Parse(bytes.data(), bytes.size()) != wire::DecodeStatus::kOk) {
    return;
  }
  if (frame.type() == wire::Token::kType) {
    wire::Token token;
    if (frame.Read(token)) Pass(message.client, client, token, bytes);
    return;
  } else if (frame.type() == wire::Welcome::kType) {
    if (client.welcomed) return;  // said again to batond, not by the hook
    client.welcomed = true;
    client.served = true;
    tenants_->Serve(message.client);
  } else if (frame.type() == wire::Attached::kType) {
    wire::Attached attached;
    if (!frame.Read(attached) || attached.gpu >= client.lanes.size()) return;
    auto* guard = GuardOf(guards_, client.lanes[attached.gpu].uuid);
    if (guard != nullptr && client.welcomed) guard->Served(MonotonicNow(), message.client);
  } else if (frame.type() == wire::Error::kType) {
    wire::Error error;
    if (frame.Read(error) && error.kind != wire::ErrorKind::kUnavailable) {
      tenants_->Refuse(message.client, error.kind, error.text.view());
      return;
    }
  }
  tenants_->Send(message.client, bytes);
}

void Frontend::OnBegan(uint64_t number, const wire::Token& token) {
  const auto it = clients_.find(number);
  if (it == clients_.end() || token.gpu >= it->second.lanes.size()) return;
  Lane& lane = it->second.lanes[token.gpu];
  if (auto* guard = GuardOf(guards_, lane.uuid)) guard->Began(MonotonicNow(), number, token);
  lane.state.clear();  // as in Pass()
}

void Frontend::Pass(uint64_t number, Client& client, wire::Token token, std::string_view bytes) {
  if (token.gpu >= client.lanes.size()) return;
  char buffer[wire::kTenantFrameMax];
  if (token.after_client != 0) {
    const auto ready = tenants_->Ready(number, token);
    if (!ready) return;
    token = *ready;
    bytes = {buffer, wire::Encode(token, buffer, sizeof buffer)};
  }
  Lane& lane = client.lanes[token.gpu];
  auto* guard = GuardOf(guards_, lane.uuid);
  using Verdict = scheduler::RelayGuard::Verdict;
  const Verdict verdict =
      guard == nullptr ? Verdict::kPass : guard->Judge(MonotonicNow(), number, token);
  if (verdict == Verdict::kKeep) {
    spdlog::debug("token: a grant of {} is old, or another pod there has not drained; dropped",
                  lane.uuid);
    tenants_->Keep(number, token);
  }
  if (verdict != Verdict::kPass) return;
  if (token.after_client != 0) return tenants_->SendAhead(number, token);
  // What the client said before is not said again after this: it may have drained only then.
  if (token.quota_ns != 0) lane.state.clear();
  tenants_->Send(number, bytes);
}

void Frontend::OnNodeCheck(const wire::NodeCheck& check) {
  std::vector<std::string> uuids;
  for (const devmgr::GpuInfo& gpu : gpus_) uuids.push_back(gpu.uuid);
  wire::NodeChecked answer;
  answer.pid = check.pid;
  answer.start_time = check.start_time;
  auto number = tenants_->Adopt(static_cast<pid_t>(check.pid), check.start_time, 0, uuids);
  answer.alive = number.has_value();
  if (number) watched_[*number] = {check.pid, check.start_time};
  Say(answer);
}

void Frontend::SayNodeHello() {
  const Instant now = MonotonicNow();
  if (now - said_hello_ < kHelloEvery) return;
  said_hello_ = now;
  wire::NodeHello hello;
  hello.node.Set(node_);
  hello.instance = instance_;
  std::string gpus;
  for (const devmgr::GpuInfo& gpu : gpus_) {
    const std::string line = fmt::format("{} {} {}\n", gpu.uuid, gpu.memory_bytes, gpu.name);
    if (gpus.size() + line.size() > decltype(hello.gpus)::kCapacity) {
      spdlog::error("this node has too many GPUs; {} and the GPUs after it are not managed",
                    gpu.uuid);
      break;
    }
    gpus += line;
  }
  hello.gpus.Set(gpus);
  hello.batches = true;
  batches_ = false;  // until it is known who is there now
  Say(hello);
}

void Frontend::OnNodeWelcome(const wire::NodeWelcome& welcome) {
  if (!up_) {
    spdlog::info("link: batond at {} is {}", options_.zmq.connect, ever_up_ ? "back" : "connected");
  } else if (welcome.instance != batond_) {
    spdlog::info("link: batond at {} restarted", options_.zmq.connect);
    FailAll(asked_);
  }
  up_ = true;
  ever_up_ = true;
  trouble_.clear();
  said_lost_ = false;
  batond_ = welcome.instance;
  batches_ = welcome.batches;
  SayEverything();
}

// Both sides' pictures are brought together: frames may have been lost, batond may be a new one.
void Frontend::SayEverything() {
  char buffer[64];
  const size_t size = wire::Encode(wire::Sync{}, buffer, sizeof buffer);
  for (const auto& [number, client] : ended_) {
    SayUp(number, client);
    wire::ClientDown down;
    down.client = number;
    down.reason = wire::DownReason::kExited;
    Say(down);
  }
  ended_.clear();
  for (auto& [number, client] : clients_) {
    if (!client.connected) continue;
    SayUp(number, client);
    tenants_->Send(number, {buffer, size});
  }
}

void Frontend::LinkLost() {
  up_ = false;
  if (!said_lost_) {
    said_lost_ = true;
    spdlog::warn("link: batond at {} is silent; holders keep their tokens, and other pods wait",
                 options_.zmq.connect);
  }
  for (auto& [number, client] : clients_) {
    if (client.connected) TellAway(number);
  }
  FailAll(asked_);
}

void Frontend::Beat() {
  beat_.expires_after(up_ ? options_.zmq.heartbeat
                          : std::min<Duration>(options_.zmq.heartbeat, 2 * kHelloEvery));
  beat_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (up_ && MonotonicNow() - heard_ > options_.zmq.lost_after) LinkLost();
    if (auto ok = Connect(); !ok) WarnOnce(trouble_, ok.error().message);
    if (up_) {
      wire::Ping ping;
      ping.instance = instance_;
      Say(ping);
    } else {
      SayNodeHello();
    }
    Beat();
  });
}

void Frontend::OnMonitor(const std::vector<std::string_view>& parts) {
  if (parts.empty() || parts[0].size() < 2 || !refused_.empty()) return;
  uint16_t event;
  memcpy(&event, parts[0].data(), sizeof event);
  const Instant now = MonotonicNow();
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) refused_at_ = now;
  if (ever_up_) return;
  if (failed_since_ == kNever) failed_since_ = now;
  // A batond that has too many connections hangs up as well.
  const bool unsure = event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
  if (unsure && now - failed_since_ < kHandshakePatience) return;
  std::string why;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
    auto keys = net::ReadKeyPair(options_.zmq.secret_key_file);
    why = fmt::format(
        "batond at {} refuses this node's key; add to its configuration under "
        "[zmq.nodes]: {} = \"{}\"",
        options_.zmq.connect, node_, keys ? keys->public_key : "PUBLIC KEY");
  } else {
    why = fmt::format(
        "batond at {} does not complete the handshake; check zmq.server_public_key, and "
        "that both sides have keys or neither has",
        options_.zmq.connect);
  }
  // Where keys come by themselves the one of this node, or batond's new one, is on its way.
  if (!options_.zmq.server_public_key_file.empty())
    return WarnOnce(trouble_, why + "; trying again");
  refused_ = why;
  Stop();
}

void Frontend::AskControl(const std::string& line, ControlSocket::Respond respond) {
  if (!up_) {
    return respond(
        Failure("unavailable", "batond at " + options_.zmq.connect + " does not answer this node"));
  }
  if (line.size() > wire::kRelayFrameMax - kEnvelope) {
    return respond(Failure("invalid", "the request is too long for a relay"));
  }
  if (asked_.size() >= kAskedMax) {
    return respond(Failure("exhausted", "too many requests are in flight"));
  }
  wire::Control message;
  message.request = ++last_asked_;
  message.json = {line.data(), line.size()};
  std::string buffer(line.size() + kEnvelope, '\0');
  const size_t size = wire::Encode(message, buffer.data(), buffer.size());
  if (size == 0 || !dealer_->Send({{buffer.data(), size}})) {
    return respond(Failure("unavailable", "the request could not be sent to batond"));
  }
  asked_[message.request] = std::move(respond);
}

}  // namespace baton::node
