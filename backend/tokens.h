// Tokens between the schedulers and the clients: steps each GPU's scheduler with what happens, at
// its time and with its timer, and carries out what it answers. Tokens go out at once; what only
// people and books need follows when the loop comes round.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_TOKENS_H_
#define BATON_BACKEND_TOKENS_H_

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/accounts.h"
#include "backend/client_table.h"
#include "backend/gpus.h"
#include "node/event_log.h"
#include "scheduler/gang_scheduler.h"

namespace baton::backend {

class Tokens {
 public:
  Tokens(boost::asio::io_context& io, const config::Options& options, const Pods& pods,
         const Gpus& gpus, const ClientTable& clients, Accounts& accounts, node::EventLog& log);
  ~Tokens();

  // The GPU is new.
  void Add(Gpu& gpu) { by_scheduler_[&gpu.scheduler] = &gpu; }
  // Something happened on the GPU.
  void Step(Gpu& gpu, const scheduler::Event& event);
  // The gang of the pod is as the pods say now; nothing for another pod. It can stand in line once
  // all of its GPUs are there, and all pods that are waited for; before that it may hold one of
  // them, since before this daemon started.
  void FormGang(const Pod& pod) { FormGang(pod, pods_.GangOf(pod)); }
  // The pod is deleted, or moves.
  void LeaveGang(const Pod& pod);
  // Gangs may go on.
  void TendGangs();
  // Does what was left for later.
  void Flush();

 private:
  // Those of one pod have its number, which is lower.
  static constexpr uint64_t kFirstNamed = uint64_t{1} << 32;

  void FormGang(const Pod& pod, const std::vector<const Pod*>& members);
  GangId IdOf(const Pod& pod);
  void StepOne(Gpu& gpu, const scheduler::Event& event);
  void CarryOut(Gpu& gpu, const scheduler::SendToken& send);
  void CarryOut(Gpu& gpu, const scheduler::StoreHolder& store);
  void CarryOut(Gpu& gpu, const scheduler::StoreNext& store);
  void CarryOut(Gpu& gpu, const scheduler::Charged& charged);
  void CarryOut(Gpu& gpu, const scheduler::Settled& settled);
  void CarryOut(Gpu& gpu, const scheduler::ClearHolders& clear);
  void CarryOut(Gpu& gpu, const scheduler::KillClient& kill);
  void CarryOut(Gpu& gpu, const scheduler::Notice& notice);
  void Arm(Gpu& gpu);
  void Later();
  void Note(Gpu& gpu, const scheduler::Notice& notice);

  boost::asio::io_context& io_;
  const config::Options& options_;
  const Pods& pods_;
  const Gpus& gpus_;
  const ClientTable& clients_;
  Accounts& accounts_;
  node::EventLog& log_;
  scheduler::GangScheduler gangs_;
  std::map<std::string, GangId> named_;  // gangs that have a name
  uint64_t last_named_ = kFirstNamed;
  std::unordered_map<const scheduler::TokenScheduler*, Gpu*> by_scheduler_;
  boost::asio::steady_timer gang_timer_;
  Instant gang_armed_ = kNever;
  Instant now_{};  // of the step whose effects are carried out
  scheduler::Effects effects_;
  std::vector<Gpu*> to_clear_;
  std::vector<std::pair<Gpu*, Hold>> to_record_;  // holds that have ended
  std::vector<std::pair<Gpu*, scheduler::Notice>> to_note_;
  bool later_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_TOKENS_H_
