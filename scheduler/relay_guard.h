// What a node's relay lets through to the clients of one GPU, and from them. It decides nothing,
// but it does not believe everything either: a grant of an old epoch is dropped, and so is one that
// would give two pods the GPU at once. The daemon sends it again while the client's reports do not
// name it.
//
// A grant that was sent ahead is let through while its predecessor is out: its client waits for
// that one's word by itself. The client counts as a holder once it begins.
//
// A pod is whatever stands for one: its ticket. Pure; not thread safe.
#ifndef BATON_SCHEDULER_RELAY_GUARD_H_
#define BATON_SCHEDULER_RELAY_GUARD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/time.h"
#include "scheduler/claim_budget.h"
#include "wire/messages.h"

namespace baton::scheduler {

class RelayGuard {
 public:
  // `drain_timeout`: the most that a claim is waited for (ClaimBudget).
  explicit RelayGuard(Duration drain_timeout) : drain_timeout_(drain_timeout) {}

  // The client attaches the GPU, for the first time or again: it may say that it holds.
  void Attach(uint64_t client, const std::string& pod);
  // It has lost its connection, and with it perhaps what it was passed last. It is not known to
  // have a share of the GPU until Served() says so again.
  void Disconnect(uint64_t client);
  // The daemon has said that the client's pod has a share of the GPU.
  void Served(Instant now, uint64_t client);
  // The client's State has come in. Whether it is passed on: not where the client has been passed a
  // later grant or extension on this connection, which it will answer. What it said before that may
  // be true no more, and a daemon that was started anew would take it for the client's last word.
  bool Said(Instant now, uint64_t client, const wire::State& state);
  // What becomes of a Token for the client.
  enum class Verdict {
    kPass,  // it is passed on
    kKeep,  // it is kept from the client
    kDrop,  // it means nothing any more: the client has had it, or a newer word about that token
  };
  Verdict Judge(Instant now, uint64_t client, const wire::Token& token);
  // A Token that was sent ahead, and has passed, begins: the one before it has drained.
  void Began(Instant now, uint64_t client, const wire::Token& token);
  // Its process is gone.
  void Gone(Instant now, uint64_t client);

  // At most one pod holds; who holds is known; no claim is waited for for longer than its pod may
  // make it last. For tests: a sentence about the first that is not so, or nothing.
  std::optional<std::string> Invariants(Instant now) const;

 private:
  // Epoch and revision of a Token.
  using Word = std::pair<uint64_t, uint64_t>;
  struct Client {
    std::string pod;
    Word passed;  // the newest one, over all of its connections
    Word told;    // the newest one that it has had: by this connection, or as it says
    Word opened;  // the newest one by this connection that opens its gate
    bool served = false;
    bool fresh = false;         // attached, and no State looked at since: it may claim
    std::optional<bool> holds;  // as its last State since it attached says
  };
  // Was passed a token and has not said that it drained; or says so of itself.
  struct Holder {
    bool claims = false;
    Instant until = kNever;  // a claim is believed until then
  };

  // A holder of before this relay started. Only who comes (back) can say so, and only whom the
  // daemon knows.
  void Believe(Instant now, uint64_t number, Client& client);
  void Release(Instant now, uint64_t client);
  void Expire(Instant now);
  // The client holds from here on.
  void Hold(Instant now, uint64_t number, Client& client, const Word& word);
  // Another pod than the client's has been passed a token ahead, and has not said that it drained.
  bool IsForOthers(const Client& client) const;
  ClaimBudget& BudgetOf(Instant now, const std::string& pod);

  const Duration drain_timeout_;
  uint64_t epoch_ = 0;  // of the newest grant passed on
  std::string pod_;     // of the holders
  std::map<uint64_t, Holder> holders_;
  // Who was passed a token ahead that has not begun here; of one pod.
  struct Ahead {
    Word word;
    bool over = false;  // it has said already that it drained
  };
  std::map<uint64_t, Ahead> ahead_;
  uint32_t claims_ = 0;      // holders that claim to be
  Instant claimed_since_{};  // while there are
  std::map<uint64_t, Client> clients_;
  std::map<std::string, ClaimBudget> budgets_;  // of pods that have made claims
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_RELAY_GUARD_H_
