// What clients say, by whatever link: a hello, which GPUs they use, their state, the memory that
// they want, and that they are gone.
//
// Not thread safe: of the event loop. Links must not call back from within their methods.
#ifndef BATON_BACKEND_SESSIONS_H_
#define BATON_BACKEND_SESSIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/accounts.h"
#include "backend/client_table.h"
#include "backend/gpus.h"
#include "backend/pod_lifecycle.h"
#include "backend/room.h"
#include "backend/tokens.h"
#include "config/options.h"
#include "node/event_log.h"
#include "node/refusals.h"
#include "wire/messages.h"

namespace baton::backend {

class Sessions {
 public:
  // A client of before this daemon started, or of before its relay did: is its process still there?
  struct Missing {
    ClientId client;
    uint64_t pid;
    uint64_t start_time;
    uint64_t incarnation;
    std::vector<std::string> gpus;
  };

  Sessions(const config::Options& options, Pods& pods, const Gpus& gpus, ClientTable& clients,
           Accounts& accounts, Tokens& tokens, Room& room, PodLifecycle& lifecycle,
           node::EventLog& log);

  // A Hello. Answered by Welcome through the link, or refused and nothing returned.
  // `kubernetes_pod`: uid of the one that the process's cgroup names; empty: none.
  ClientId Up(ClientLink& link, uint64_t number, const std::string& node, uint64_t pid,
              uint64_t start_time, uint64_t uid, std::string_view kubernetes_pod,
              const wire::Hello& hello);
  void Attach(ClientId client, const wire::Attach& attach);
  // `measured`: by the client's node, which received the State `age` ago for the first time.
  void State(ClientId client, const wire::State& state, const scheduler::Measured& measured,
             Duration age = Duration(0));
  void Memory(ClientId client, const wire::Memory& memory);
  // The client has ended: how long it held the token of `epoch`, its last on the GPU, as its node
  // measured. Down() follows.
  void Ended(ClientId client, uint8_t gpu, uint64_t epoch, Duration held);
  void Down(ClientId client, wire::DownReason reason) { Down(client, reason, kNever); }
  // The link, last heard at `heard`, is about to end. Its clients are disconnected. kNever: whoever
  // watches them at its other end is still there.
  void DropLink(ClientLink& link, Instant heard);
  // Clients of the node that are not connected.
  std::vector<Missing> MissingOn(const std::string& node) const;
  // The cgroup of the client's container; empty: it is in none.
  void SetGroup(ClientId client, const std::string& group);
  // `client`, restored, was found: its process is now watched by `link` as `number`.
  void Bind(ClientId client, ClientLink& link, uint64_t number);
  // Which bounds are reached, and how many were refused of late; empty: none.
  std::string Trouble() const { return refusals_.Trouble(MonotonicNow()); }

 private:
  // `heard`: as in ClientDisconnected.
  void Down(ClientId client, wire::DownReason reason, Instant heard);
  void Gone(Client& client);
  void RefuseForBound(ClientLink& link, uint64_t number, const std::string& bound,
                      const char* remedy);
  Lane* FindLane(Client& client, uint8_t index);
  // The client's program has asked for so many bytes in vain.
  void OutOfMemory(const Lane& lane, const Pod& pod, uint64_t asked);

  const config::Options& options_;
  Pods& pods_;
  const Gpus& gpus_;
  ClientTable& clients_;
  Accounts& accounts_;
  Tokens& tokens_;
  Room& room_;
  PodLifecycle& lifecycle_;
  node::EventLog& log_;
  node::Refusals refusals_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_SESSIONS_H_
