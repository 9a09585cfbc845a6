#include "node/tenant_endpoint.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "node/closer.h"
#include "node/listen_unix.h"
#include "node/tenant_client.h"
#include "wire/codec.h"

namespace baton::node {
namespace {

using boost::asio::posix::stream_descriptor;
using ErrorCodeAsio = boost::system::error_code;

constexpr Duration kReapPollMax = std::chrono::milliseconds(20);
// exec closes the connection before the process is seen to be another program.
constexpr std::array<Duration, 4> kExecLooks = {
    std::chrono::milliseconds(1), std::chrono::milliseconds(10), std::chrono::milliseconds(100),
    std::chrono::milliseconds(1000)};

// Calls `became` if the process is seen to be another program. It has `timer` and `peer`.
void AwaitExec(boost::asio::steady_timer& timer, const Peer& peer, size_t looks,
               std::function<void()> became) {
  if (looks == kExecLooks.size()) return;
  timer.expires_after(kExecLooks[looks]);
  timer.async_wait([&timer, &peer, looks, became = std::move(became)](ErrorCodeAsio error) mutable {
    if (error) return;
    const uint64_t image = ImageOf(peer.pid);
    if (image != 0 && image != peer.image) return became();
    AwaitExec(timer, peer, looks + 1, std::move(became));
  });
}

// Frames that are still read from a connection that is over: more than a socket buffers of those
// that count, and a bound for who goes on writing meanwhile.
constexpr int kLastFramesMax = 1024;
// What reading a frame costs, where it is more than a State does: of a pod's rate.
constexpr int64_t kHelloCost = 20;
constexpr int64_t kAttachCost = 5;
// Those who connect too often wait in the kernel meanwhile, and others with them.
constexpr Duration kFloodPause = std::chrono::milliseconds(10);
}  // namespace

TenantEndpoint::TenantEndpoint(boost::asio::io_context& io, TenantSink& sink, devmgr::Nvml& nvml,
                               const TenantLimits& limits)
    : io_(io),
      sink_(sink),
      nvml_(nvml),
      limits_(limits),
      listener_(io),
      accept_pause_(io),
      absence_(io),
      admission_(limits),
      rates_(limits.frames_per_second, int64_t{2} * limits.frames_per_second),
      throttle_(io) {}

TenantEndpoint::~TenantEndpoint() {
  *alive_ = false;
  worker_.join();
  Stop();
}

Result<void> TenantEndpoint::Listen(const std::string& path, const std::string& lock_path) {
  auto fd = ListenUnix(path, SOCK_SEQPACKET, 0666, lock_path, path_lock_);
  if (!fd) return tl::unexpected(fd.error());
  const size_t slash = path.rfind('/');
  const std::string folder = path.substr(0, slash + 1) + kPodsFolder;
  if (auto made = MakeFolders(folder, 0755); !made) return made;
  path_for_pods_ = folder + path.substr(slash);
  unlink(path_for_pods_.c_str());
  if (link(path.c_str(), path_for_pods_.c_str()) != 0) {
    return Fail(ErrorCode::kInternal, "cannot create " + path_for_pods_ + ": " + strerror(errno) +
                                          "; check the rights on socket_dir");
  }
  path_ = path;
  listener_.assign(fd->Release());
  absence_.Start();
  Accept();
  return {};
}

void TenantEndpoint::Stop() {
  ErrorCodeAsio ignored;
  listener_.close(ignored);
  accept_pause_.cancel();
  absence_.Stop();
  throttle_.Stop();
  for (auto& [number, client] : clients_) {
    client->connected = false;
    ++client->connection;
    CloseElsewhere(client->socket);
    client->exit_watch.close(ignored);
    client->timer.cancel();
    client->exec_timer.cancel();
  }
  clients_.clear();
  by_process_.clear();
  admission_.Clear();
  if (!path_.empty()) {
    unlink(path_for_pods_.c_str());
    unlink(path_.c_str());
  }
  path_.clear();
  path_lock_.Close();
}

std::shared_ptr<TenantEndpoint::Client> TenantEndpoint::Find(uint64_t number) const {
  auto it = clients_.find(number);
  return it == clients_.end() ? nullptr : it->second;
}

void TenantEndpoint::Accept() {
  listener_.async_wait(stream_descriptor::wait_read, [this, alive = alive_](ErrorCodeAsio error) {
    if (error || !*alive) return;
    // A bounded number at a time: connecting clients do not hold up those that have work.
    bool calm = true;
    for (int i = 0; i < 16; ++i) {
      UniqueFd fd(
          accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        calm &= Admit(std::move(fd));
        continue;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // Out of descriptors: those who wait are served when others have left.
        return AcceptLater(std::chrono::milliseconds(100));
      }
      break;
    }
    calm ? Accept() : AcceptLater(kFloodPause);
  });
}

void TenantEndpoint::AcceptLater(Duration pause) {
  accept_pause_.expires_after(pause);
  accept_pause_.async_wait([this, alive = alive_](ErrorCodeAsio error) {
    if (!error && *alive) Accept();
  });
}

bool TenantEndpoint::Admit(UniqueFd socket) {
  auto client = std::make_shared<Client>(io_);
  const int fd = socket.get();
  auto peer = PeerOf(fd);
  StampMessages(fd);
  client->socket.assign(socket.Release());
  client->connected = true;
  if (!peer) {
    RefuseClient(client, wire::ErrorKind::kDenied, peer.error().message);
    return true;
  }
  client->peer = std::move(*peer);
  const std::string owner = Admission::OwnerOf(client->peer);
  if (const auto silent = admission_.TooSilent(owner)) {
    RefuseClient(Find(*silent), wire::ErrorKind::kLimit, "too many connections send no Hello");
  }
  if (const auto refusal = admission_.Refuse(client->peer, clients_.size(), MonotonicNow())) {
    if (!refusal->warning.empty()) sink_.OnBound(refusal->warning);
    RefuseClient(client, wire::ErrorKind::kLimit, refusal->text);
    return !refusal->flood;
  }
  client->owner = owner;
  admission_.Enter(owner);
  client->number = ++last_number_;
  client->rate = rates_.Of(owner, MonotonicNow());
  clients_.emplace(client->number, client);
  admission_.Silent(owner, client->number);
  client->timer.expires_after(limits_.hello_timeout);
  client->timer.async_wait([this, alive = alive_, client](ErrorCodeAsio error) {
    if (error || !*alive || client->said_hello || !client->connected) return;
    RefuseClient(client, wire::ErrorKind::kProtocol, "send Hello within 5 seconds of connecting");
  });
  AwaitRead(client);
  return true;
}

void TenantEndpoint::AwaitRead(const std::shared_ptr<Client>& client) {
  if (!client->connected || client->closing) return;
  if (!client->rate->May(MonotonicNow())) {
    // Its frames wait in its own socket until its pod has earned some.
    throttle_.Add(client->rate, [this, client, connection = client->connection] {
      if (client->connection != connection || !client->connected || client->closing) return false;
      if (ReadOne(client)) return true;
      if (client->connection == connection) AwaitRead(client);
      return false;
    });
    return;
  }
  // One frame per turn: a busy client does not keep the others waiting. Waiting again looks at the
  // socket anew, so what is left in it is not forgotten.
  client->socket.async_wait(
      stream_descriptor::wait_read,
      [this, alive = alive_, client, connection = client->connection](ErrorCodeAsio error) {
        if (error || !*alive || client->connection != connection || !client->connected) return;
        ReadOne(client);
        if (*alive) AwaitRead(client);
      });
}

bool TenantEndpoint::ReadOne(const std::shared_ptr<Client>& client) {
  if (ClosesTooSlowly(client->owner)) {
    RefuseClient(client, wire::ErrorKind::kLimit, "files that you passed take long to be closed");
    return false;
  }
  char buffer[wire::kTenantFrameMax];
  iovec part{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[kStampRoom + kFilesRoom];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size =
      recvmsg(client->socket.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    Disconnect(client);
    return false;
  }
  if (size == 0) {
    Disconnect(client);
    return false;
  }
  PassedFiles files(message, client->owner);
  client->rate->Spend(1);
  client->heard_at = absence_.Heard(message);
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    RefuseClient(client, wire::ErrorKind::kLimit,
                 "a frame is longer than " + std::to_string(wire::kTenantFrameMax) + " bytes");
    return false;
  }
  Handle(client, {buffer, static_cast<size_t>(size)}, files.first());
  return client->connected;
}

void TenantEndpoint::Handle(const std::shared_ptr<Client>& client, std::string_view bytes,
                            UniqueFd& file) {
  wire::Frame frame;
  switch (frame.Parse(bytes.data(), bytes.size())) {
    case wire::DecodeStatus::kOk:
      break;
    case wire::DecodeStatus::kMalformed:
      RefuseClient(client, wire::ErrorKind::kMalformed, "this frame is not a message of Baton");
      return;
    case wire::DecodeStatus::kVersion:
      RefuseClient(client, wire::ErrorKind::kVersion,
                   "this daemon speaks protocol versions up to " +
                       std::to_string(wire::kVersion + 1) +
                       "; install the same release of Baton in the pod and on the node");
      return;
  }
  auto malformed = [&] {
    RefuseClient(client, wire::ErrorKind::kMalformed, "a field of this frame is out of range");
  };
  auto lane_of = [&](uint8_t gpu) -> Lane* {
    if (Lane* lane = client->At(gpu)) return lane;
    RefuseClient(client, wire::ErrorKind::kProtocol,
                 "attach to this GPU before you send messages about it");
    return nullptr;
  };
  if (frame.type() == wire::Hello::kType) {
    wire::Hello hello;
    if (!frame.Read(hello)) return malformed();
    if (hello.incarnation == 0) return malformed();
    Words words = hello.words ? WordPage::Map(file) : nullptr;
    hello.words = words != nullptr;
    return SayHello(client, hello, bytes, std::move(words));
  }
  if (!client->said_hello) {
    RefuseClient(client, wire::ErrorKind::kProtocol, "the first frame must be Hello");
    return;
  }
  switch (frame.type()) {
    case wire::State::kType: {
      wire::State state;
      if (!frame.Read(state) || state.phase > wire::Phase::kDraining) return malformed();
      Lane* lane = lane_of(state.gpu);
      if (lane == nullptr) return;
      return Say(*client, *lane, client->heard_at, state, bytes);
    }
    case wire::Attach::kType: {
      wire::Attach attach;
      if (!frame.Read(attach) || attach.gpu >= wire::kGpusMax || attach.uuid.view().empty()) {
        return malformed();
      }
      client->rate->Spend(kAttachCost - 1);
      const std::string_view uuid = attach.uuid.view();
      Lane* lane = client->Of(uuid);
      const Lane* there = client->At(attach.gpu);
      if (there != nullptr && there != lane) {
        RefuseClient(client, wire::ErrorKind::kProtocol,
                     "this index already stands for another GPU");
        return;
      }
      if (lane != nullptr && lane->attached && lane->index != attach.gpu) {
        RefuseClient(client, wire::ErrorKind::kProtocol, "this GPU already has another index");
        return;
      }
      if (lane == nullptr) {
        if (client->lanes.size() == kLanesMax) {
          RefuseClient(client, wire::ErrorKind::kLimit,
                       "a process has no more than " + std::to_string(kLanesMax) + " GPUs");
          return;
        }
        lane = &client->lanes.emplace_back();
        lane->uuid = uuid;
      }
      lane->attached = true;
      lane->index = attach.gpu;
      auto& used = client->used;
      if (used.size() < kLanesMax &&
          std::find(used.begin(), used.end(), lane->uuid) == used.end()) {
        used.push_back(lane->uuid);
      }
      sink_.OnAttach(client->number, attach, bytes);
      return;
    }
    case wire::Memory::kType: {
      wire::Memory memory;
      if (!frame.Read(memory)) return malformed();
      if (lane_of(memory.gpu) == nullptr) return;
      sink_.OnMemory(client->number, memory, bytes);
      return;
    }
    default:
      // Types of the other directions are nonsense; above them a newer peer may have more to say.
      if (frame.type() < 16) return;
      RefuseClient(client, wire::ErrorKind::kProtocol, "a hook does not send this message");
  }
}

Holds::Party TenantEndpoint::PartyOf(Client& client, Lane* lane) {
  return {client.number, lane, client.words.get()};
}

void TenantEndpoint::Say(Client& client, Lane& lane, Instant said, const wire::State& state,
                         std::string_view frame) {
  const auto find = [this](uint64_t number, const std::string& uuid) -> Holds::Party {
    const auto other = Find(number);
    return other != nullptr ? PartyOf(*other, other->Of(uuid)) : Holds::Party{};
  };
  std::vector<Holds::Next> begin;
  const scheduler::Measured measured =
      holds_.Said(PartyOf(client, &lane), said, state, find, begin);
  // Whoever hears it may end the client; a copy only where somebody begins.
  const std::string uuid = begin.empty() ? std::string() : lane.uuid;
  sink_.OnState(client.number, state, measured, frame);
  for (const Holds::Next& next : begin) {
    sink_.OnBegan(next.client, next.token);
    const auto other = Find(next.client);
    const wire::Word* word = find(next.client, uuid).word();
    if (other == nullptr || !other->connected || other->closing ||
        (word != nullptr &&
         word->began_epoch.load(std::memory_order_relaxed) == next.token.epoch)) {
      continue;
    }
    // The word that it waits for has not come, or it has not woken up yet.
    wire::Token token = next.token;
    token.after_client = 0;
    char buffer[wire::kTenantFrameMax];
    const std::string_view told(buffer, wire::Encode(token, buffer, sizeof buffer));
    if (!other->SendNow(told)) Queue(other, told, nullptr);
  }
}

void TenantEndpoint::SayHello(const std::shared_ptr<Client>& client, const wire::Hello& hello,
                              std::string_view frame, Words words) {
  if (client->said_hello) {
    RefuseClient(client, wire::ErrorKind::kProtocol, "Hello was already sent");
    return;
  }
  const auto use_pods_rate = [&](Client& whose) {
    whose.rate = rates_.Of(hello.ticket.view(), MonotonicNow());
    whose.rate->Spend(kHelloCost);
  };
  const std::pair process{client->peer.pid, client->peer.start_time};
  std::shared_ptr<Client> known;
  std::vector<std::shared_ptr<Client>> replaced;
  for (auto [it, end] = by_process_.equal_range(process); it != end; ++it) {
    auto other = Find(it->second);
    if (other == nullptr || other->reaping) continue;
    if (other->incarnation == hello.incarnation || other->incarnation == 0) {
      known = other;
    } else if (!other->connected && other->peer.image != 0 && client->peer.image != 0 &&
               other->peer.image != client->peer.image) {
      // The process called exec: what it was before, GPU work included, has ended.
      replaced.push_back(other);
    }
  }
  for (auto& other : replaced) Exited(other);
  // It came back: the new connection goes to the client that we know. What it said on the old one
  // was read before, or is repeated by its next State.
  if (known != nullptr && known->connected) {
    for (int i = 0; i < kLastFramesMax && known->connected && known->rate->May(MonotonicNow()) &&
                    ReadOne(known);
         ++i) {
    }
    if (known->connected) Disconnect(known);
    if (Find(known->number) != known) known = nullptr;  // it had not been served
  }
  admission_.NotSilent(client->owner, client->number);
  if (known == nullptr) {
    AwaitExit(client);
    client->said_hello = true;
    client->incarnation = hello.incarnation;
    client->words = std::move(words);
    use_pods_rate(*client);
    by_process_.emplace(process, client->number);
    sink_.OnHello(client->number, client->peer, hello, frame);
    return;
  }
  known->incarnation = hello.incarnation;
  known->words = std::move(words);
  known->said_hello = true;
  use_pods_rate(*known);
  // It may have been adopted, or have changed its user since.
  known->peer.uid = client->peer.uid;
  known->peer.kubernetes_pod = std::move(client->peer.kubernetes_pod);
  known->peer.group = std::move(client->peer.group);
  admission_.Leave(known->owner);
  admission_.Enter(known->owner = Admission::OwnerOf(known->peer));
  // Attached anew, perhaps by other indexes. What it held it has held all along.
  for (Lane& lane : known->lanes) lane.attached = false;
  known->closing = false;
  known->socket = stream_descriptor(io_, client->socket.release());
  known->connected = true;
  ++known->connection;
  client->connected = false;
  ++client->connection;
  Forget(client);
  sink_.OnHello(known->number, known->peer, hello, frame);
  AwaitRead(known);
}

void TenantEndpoint::Send(uint64_t number, std::string_view frame) {
  auto it = clients_.find(number);
  if (it == clients_.end() || !it->second->connected || it->second->closing) return;
  Client& client = *it->second;
  // Before it is on its way: the client may run before this goes on.
  const Instant sent_at = MonotonicNow();
  const bool sent = client.SendNow(frame);
  // Looked at after it is on its way.
  wire::Frame parsed;
  wire::Token token;
  if (parsed.Parse(frame.data(), frame.size()) == wire::DecodeStatus::kOk && parsed.Read(token)) {
    if (Lane* lane = client.At(token.gpu)) holds_.Sent(PartyOf(client, lane), sent_at, token);
  }
  if (!sent) Queue(it->second, frame, nullptr);
}

void TenantEndpoint::Queue(const std::shared_ptr<Client>& client, std::string_view frame,
                           const Words& words) {
  if (client->unsent.size() >= limits_.unsent_frames_max) {
    sink_.OnTenantNote(client->number, "does not read its socket and is disconnected");
    DisconnectSoon(client);
    return;
  }
  client->unsent.push_back({std::string(frame), words});
  if (!client->writing) Flush(client);
}

std::optional<wire::Token> TenantEndpoint::Ready(uint64_t number, const wire::Token& token) {
  const auto client = Find(number);
  Lane* lane = client != nullptr && client->connected ? client->At(token.gpu) : nullptr;
  if (lane == nullptr) return std::nullopt;
  Holds::Party before;
  if (const auto other = Find(token.after_client)) before = PartyOf(*other, other->Of(lane->uuid));
  return holds_.Ready(PartyOf(*client, lane), before, token);
}

void TenantEndpoint::SendAhead(uint64_t number, const wire::Token& token) {
  const auto client = Find(number);
  const auto before = Find(token.after_client);
  Lane* lane = client != nullptr ? client->At(token.gpu) : nullptr;
  if (lane == nullptr || before == nullptr || client->closing) return;
  char buffer[wire::kTenantFrameMax];
  const std::string_view frame(buffer, wire::Encode(token, buffer, sizeof buffer));
  holds_.SentAhead(PartyOf(*client, lane), MonotonicNow(), token);
  if (!client->SendNow(frame, before->words)) Queue(client, frame, before->words);
}

void TenantEndpoint::Keep(uint64_t number, const wire::Token& token) {
  const auto client = Find(number);
  if (client == nullptr) return;
  if (Lane* lane = client->At(token.gpu)) lane->meter.Kept(token);
}

void TenantEndpoint::Flush(const std::shared_ptr<Client>& client) {
  client->writing = true;
  client->socket.async_wait(
      stream_descriptor::wait_write,
      [this, alive = alive_, client, connection = client->connection](ErrorCodeAsio error) {
        if (!*alive || client->connection != connection) return;
        client->writing = false;
        if (error || !client->connected) return;
        while (!client->unsent.empty()) {
          const Client::Unsent& first = client->unsent.front();
          if (!TrySend(client->socket.native_handle(), first.frame,
                       first.words != nullptr ? first.words->fd() : -1)) {
            return Flush(client);
          }
          client->unsent.pop_front();
        }
      });
}

void TenantEndpoint::Serve(uint64_t number) {
  if (auto client = Find(number)) client->served = true;
}

void TenantEndpoint::Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) {
  auto client = Find(number);
  if (client == nullptr || !client->connected || client->closing) return;
  client->SendError(kind, text);
  DisconnectSoon(client);
}

void TenantEndpoint::RefuseClient(const std::shared_ptr<Client>& client, wire::ErrorKind kind,
                                  std::string_view text) {
  client->SendError(kind, text);
  if (client->number != 0) {
    sink_.OnTenantNote(client->number, "is disconnected: " + std::string(text));
    Disconnect(client);
  }
}

void TenantEndpoint::DisconnectSoon(const std::shared_ptr<Client>& client) {
  if (client->closing) return;
  client->closing = true;
  boost::asio::post(io_, [this, alive = alive_, client, connection = client->connection] {
    if (*alive && client->connection == connection && client->connected) Disconnect(client);
  });
}

void TenantEndpoint::Disconnect(const std::shared_ptr<Client>& client) {
  if (!client->connected) return;
  for (size_t i = 0; client->served && i < client->lanes.size(); ++i) {
    Lane& lane = client->lanes[i];
    const auto state = Holds::LastWords(PartyOf(*client, &lane));
    if (!state || !lane.attached) continue;
    char buffer[wire::kTenantFrameMax];
    Say(*client, lane, MonotonicNow(), *state,
        {buffer, wire::Encode(*state, buffer, sizeof buffer)});
  }
  client->connected = false;
  client->closing = false;
  client->writing = false;
  ++client->connection;
  client->unsent.clear();
  CloseElsewhere(client->socket);
  if (!client->said_hello) {
    Forget(client);
    return;
  }
  if (client->reaping) return;
  if (!client->served) Forget(client);
  if (client->served && client->peer.image != 0) {
    AwaitExec(client->exec_timer, client->peer, 0, [this, alive = alive_, client] {
      if (*alive && !client->connected && !client->reaping) Reap(client);
    });
  }
  sink_.OnDown(client->number, wire::DownReason::kDisconnected);
}

void TenantEndpoint::AwaitExit(const std::shared_ptr<Client>& client) {
  client->exit_watch.assign(client->peer.pidfd.Release());
  client->exit_watch.async_wait(stream_descriptor::wait_read,
                                [this, alive = alive_, client](ErrorCodeAsio error) {
                                  if (error || !*alive) return;
                                  Reap(client);
                                });
}

void TenantEndpoint::Reap(const std::shared_ptr<Client>& client) {
  if (!client->reaping) {
    // What it said before it died still counts.
    for (int i = 0; i < kLastFramesMax && client->connected && ReadOne(client); ++i) {
    }
    client->reaping = true;
    if (client->connected) Disconnect(client);
    client->reap_until = MonotonicNow() + limits_.drain_timeout;
    ErrorCodeAsio ignored;
    client->exit_watch.close(ignored);
  }
  if (client->used.empty() || !nvml_.available()) return Exited(client);
  boost::asio::post(worker_, [this, alive = alive_, client, gpus = client->used] {
    const bool listed = std::any_of(gpus.begin(), gpus.end(), [&](const std::string& uuid) {
      return nvml_.Lists(uuid, client->peer.pid);
    });
    boost::asio::post(io_, [this, alive, client, listed] {
      if (!*alive || Find(client->number) != client) return;
      const bool late = MonotonicNow() >= client->reap_until;
      if (listed && late) {
        sink_.OnTenantNote(
            client->number,
            "is dead, but NVML still lists it; its GPU is granted again after drain_timeout");
      }
      if (!listed || late) return Exited(client);
      client->timer.expires_after(client->reap_poll);
      client->reap_poll = std::min(client->reap_poll * 3 / 2, kReapPollMax);
      client->timer.async_wait([this, alive, client](ErrorCodeAsio error) {
        if (!error && *alive) Reap(client);
      });
    });
  });
}

void TenantEndpoint::Exited(const std::shared_ptr<Client>& client) {
  client->reaping = true;
  if (client->connected) Disconnect(client);
  for (Lane& lane : client->lanes) {
    const Holds::Ended ended = Holds::Gone(PartyOf(*client, &lane));
    if (!client->served || ended.held == Duration(0)) continue;
    sink_.OnEnded(client->number, lane.index, ended.epoch, ended.held);
  }
  Forget(client);
  sink_.OnDown(client->number, wire::DownReason::kExited);
}

void TenantEndpoint::Forget(const std::shared_ptr<Client>& client) {
  ErrorCodeAsio ignored;
  client->exit_watch.close(ignored);
  client->timer.cancel();
  client->exec_timer.cancel();
  if (clients_.erase(client->number) == 0) return;
  admission_.NotSilent(client->owner, client->number);
  const std::pair process{client->peer.pid, client->peer.start_time};
  for (auto [it, end] = by_process_.equal_range(process); it != end; ++it) {
    if (it->second == client->number) {
      by_process_.erase(it);
      break;
    }
  }
  admission_.Leave(client->owner);
}

void TenantEndpoint::KillProcess(uint64_t number) {
  const auto client = Find(number);
  if (client != nullptr && client->exit_watch.is_open()) Kill(client->exit_watch.native_handle());
}

Result<uint64_t> TenantEndpoint::Adopt(pid_t pid, uint64_t start_time, uint64_t incarnation,
                                       const std::vector<std::string>& gpus) {
  for (auto [it, end] = by_process_.equal_range({pid, start_time}); it != end; ++it) {
    auto known = Find(it->second);
    if (known != nullptr && (incarnation == 0 || known->incarnation == incarnation)) {
      return known->number;
    }
  }
  UniqueFd pidfd = OpenPidfd(pid, start_time);
  const bool alive = static_cast<bool>(pidfd);
  const bool listed = !alive && std::any_of(gpus.begin(), gpus.end(), [&](const std::string& uuid) {
    return nvml_.Lists(uuid, pid);
  });
  // A pid that was given out again is somebody else, whom NVML may list too.
  if (!alive && (!listed || StartTime(pid))) {
    return Fail(ErrorCode::kNotFound, "process " + std::to_string(pid) + " is gone");
  }
  auto client = std::make_shared<Client>(io_);
  client->number = ++last_number_;
  client->peer.pid = pid;
  client->peer.start_time = start_time;
  client->peer.image = ImageOf(pid);
  client->peer.pidfd = std::move(pidfd);
  client->incarnation = incarnation;
  client->said_hello = true;
  client->served = true;
  client->rate = rates_.Of("", MonotonicNow());  // until it says Hello
  client->used = gpus;
  client->lanes.resize(std::min(gpus.size(), kLanesMax));
  for (size_t i = 0; i < client->lanes.size(); ++i) client->lanes[i].uuid = gpus[i];
  clients_.emplace(client->number, client);
  by_process_.emplace(std::pair{pid, start_time}, client->number);
  if (alive) {
    AwaitExit(client);
  } else {
    // Dead, but its GPU work goes on: reported once NVML no longer lists it.
    boost::asio::post(io_, [this, watch = alive_, client] {
      if (*watch) Reap(client);
    });
  }
  return client->number;
}

}  // namespace baton::node
