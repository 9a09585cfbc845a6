// What pods used, as the books are told it: a batch of all that there is so far, again and again,
// and one more where a pod gets another owner.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_SNAPSHOTS_H_
#define BATON_BACKEND_SNAPSHOTS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/accounts.h"
#include "backend/client_table.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/pods_file.h"
#include "backend/usage_book.h"
#include "config/options.h"
#include "ledger/ledger.h"

namespace baton::backend {

class Snapshots {
 public:
  Snapshots(boost::asio::io_context& io, const config::Options& options, PodsFile& file,
            UsageBook& usage, const Gpus& gpus, const ClientTable& clients, Accounts& accounts);
  ~Snapshots();

  // Everything that was used so far, in steps between which the loop serves others. `done` is
  // called with a batch without source and seq. One at a time.
  void Make(std::function<void(ledger::Batch)> done);
  // The same in one go.
  ledger::Batch MakeNow();
  // The pod is about to have another team, user or namespace: what it and the pods of its GPUs used
  // so far is told by itself, so that it stays with the former one. Of one GPU once in
  // kHandOverEvery: who moves a pod again and again does not fill the books.
  void OwnerChanges(const Pod& pod);
  static constexpr Duration kHandOverEvery = std::chrono::seconds(1);
  // `take`: called at once with a batch without source and seq.
  void OnOwnerChange(std::function<void(ledger::Batch)> take) { hand_over_ = std::move(take); }
  // A snapshot is in the books: what departed before it can be forgotten.
  void Booked(ledger::WallTime to);
  // Without books nobody needs to know of a deleted pod.
  void KeepDeparted(bool keep) { keep_departed_ = keep; }
  bool keeps_departed() const { return keep_departed_; }

 private:
  struct Work {
    ledger::Batch batch;
    std::vector<PodId> final;  // departed: this is their last use
    PodId after;
  };
  void Begin(Work& work);
  bool GoOn(Work& work, size_t most);
  void AddSamples(ledger::Batch& batch, PodId id, const ledger::Owner& owner,
                  const std::vector<std::string>& gpus);
  void AddGpus(ledger::Batch& batch);

  boost::asio::io_context& io_;
  const config::Options& options_;
  PodsFile& file_;
  Pods& pods_;
  UsageBook& usage_;
  const Gpus& gpus_;
  const ClientTable& clients_;
  Accounts& accounts_;
  bool keep_departed_ = false;
  std::map<PodId, ledger::WallTime> told_;  // departed pods: the snapshot with their last use
  std::function<void(ledger::Batch)> hand_over_;
  std::map<std::string, Instant> handed_over_;  // when, by GPU
  std::weak_ptr<Work> running_;                 // the snapshot that is being made
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_SNAPSHOTS_H_
