// The token that is sent ahead, while the one before it is still out: once the holder drains, the
// next one is picked and sent its token, which begins when the holder's *word* says that it has
// drained. The word is memory that the holder's hook writes and the next one's reads, so the GPU
// does not wait for a way to this scheduler and back.
//
// From then on the next holder stands: nothing is renewed, nothing that opens a gate is sent to the
// holder, and whoever else comes waits for both. Its pod stands in line, as nobody here knows when
// its token begins. This side takes it to begin when the holder has returned, and no earlier: what
// the next one's clients say of their token is deferred until then. So the token moves as where it
// was never sent ahead, and a client that lies about either word gains nothing.
//
// Recall: where the holder's drain turns out to be stuck, the next one is told to close. When all
// of its clients have answered, the holder is asked whether it still drains: it may have drained,
// and the news of that be lost. If it does, the next one has not begun, and may not begin any more;
// then the holder's gate may open again.
//
// Pure; not thread safe.
#ifndef BATON_SCHEDULER_NEXT_TOKEN_H_
#define BATON_SCHEDULER_NEXT_TOKEN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/events.h"
#include "scheduler/roster.h"
#include "scheduler/token.h"

namespace baton::scheduler {

class NextToken {
 public:
  // Somebody is next.
  bool sent() const { return pod_ != Roster::kNobody; }
  // Whose it is; kNobody: it is open.
  uint32_t pod() const { return pod_; }
  // Of the last one that was sent ahead, whether it is over or not.
  uint64_t last_epoch() const { return epoch_; }
  Duration quota() const { return quota_; }
  Instant sent_at() const { return sent_at_; }
  // By a scheduler before this one.
  bool restored() const { return restored_; }
  // The clients that were sent it, by number, without those that are gone.
  const Roster::Numbers& clients() const { return clients_; }
  bool Has(uint32_t client) const;
  // Until when those that are gone may have held: they said that they had drained, or were found to
  // be gone. Until then nobody else could use the GPU.
  Instant gone_at() const { return gone_at_; }

  void Begin(uint32_t pod, uint64_t epoch, Duration quota, Instant now);
  void Restore(uint32_t pod, uint64_t epoch, Duration quota, Instant sent_at);
  void Add(uint32_t client) { clients_.push_back(client); }
  // A client reports. True: of its next token, so that counts later (TakeKept()).
  bool Defer(uint32_t client, const ClientReport& report, Instant now);
  // How long its pod has held it at least: all of its clients have given it back already, as their
  // node measured, or those that are gone had. 0: nobody knows.
  Duration held() const;
  // The same of those that are gone.
  Duration gone_held() const { return gone_held_; }
  // When the first of its clients began, as they say; kNever: none does. Whoever says so is charged
  // from then on, and the holder before it is not.
  Instant began_at() const;
  // It had begun by then, as their node has measured; kNever: that is not known.
  Instant measured_at() const { return measured_at_; }
  // The client is gone for good; `rev`: what it was sent last.
  void Forget(uint32_t client, uint64_t rev, Instant now);

  // Tells all of its clients to close; once.
  void Recall(Roster& roster, const Turn& turn);
  bool recalled() const { return recalled_; }
  // It was recalled, and every one of its clients has answered that it holds nothing.
  bool closed() const;
  // After that the holder is to say whether it still drains. True: it is to be asked; once.
  bool Ask() { return !std::exchange(asked_, true); }
  // It does.
  void SetOver() { over_ = true; }
  // It is sent, and its clients may begin at any time, or may have.
  bool may_begin() const { return sent() && !over_; }

  // The token before it is back: nobody is next from here on.
  NextToken Take();
  // What was deferred: the last report of each client, with its age.
  std::vector<ClientReport> TakeKept(Instant now);

 private:
  uint32_t pod_ = Roster::kNobody;
  uint64_t epoch_ = 0;
  Duration quota_{0};
  Instant sent_at_{};
  Instant gone_at_{};
  Duration gone_held_{0};
  Instant measured_at_ = kNever;
  bool restored_ = false;
  bool recalled_ = false;
  bool asked_ = false;
  bool over_ = false;
  Roster::Numbers clients_;
  struct Kept {
    uint32_t client = 0;
    ClientReport report;
    Instant at{};  // when its node had it
  };
  std::vector<Kept> kept_;
};

// The holder drains, and nobody is next: the next token may be sent ahead. Not where others of the
// holder's pod might have to launch before it can drain, nor where it has no word.
bool AwaitsNext(const Token& token, const NextToken& next, const Roster& roster);
// Makes the pod, which waits, the next one: its clients that ask and read words are sent the token
// of `epoch`, after `token`. Nothing where it has none.
void SendAhead(const Token& token, uint32_t pod, uint64_t epoch, Duration quota, Roster& roster,
               const Turn& turn, NextToken& next);
// A client was sent the token of `epoch` ahead, before this scheduler was there. False: that cannot
// be.
bool RestoreNext(const Token& token, uint32_t client, uint64_t epoch, Duration quota,
                 Instant sent_at, Roster& roster, NextToken& next);

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_NEXT_TOKEN_H_
