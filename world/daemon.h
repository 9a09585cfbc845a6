// The daemon of a world: a token scheduler for each GPU and the gangs' coordinator, with an event
// loop's timers, around which the world keeps what a daemon stores. It ends and comes back.
#ifndef BATON_WORLD_DAEMON_H_
#define BATON_WORLD_DAEMON_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "scheduler/gang_scheduler.h"
#include "scheduler/token_scheduler.h"
#include "wire/messages.h"
#include "world/gpus.h"
#include "world/laws.h"
#include "world/links.h"
#include "world/node.h"
#include "world/state.h"

namespace baton::world {

class Daemon {
 public:
  // The subject of kTick that means the gangs'.
  static constexpr uint32_t kGangs = ~0u;

  Daemon(WorldState& world, const Gpus& gpus, Links& links, Node& node, Laws& laws);

  bool down() const { return down_; }
  // There is a daemon, and it knows of the GPU.
  bool Hears(uint32_t g) const { return !down_ && world_.sites[g].heard; }
  const scheduler::GangScheduler& gangs() const { return *gangs_; }
  // How often the gangs' coordinator was woken by its timer.
  uint64_t gang_wakeups() const { return gang_wakeups_; }

  // Tells the schedulers something; nobody hears it while the daemon is down.
  void AddPod(size_t pod);
  void SetShare(size_t pod);
  void RemovePod(size_t pod);
  void Attach(const Process& p);
  // `heard_at`: see scheduler::ClientDisconnected.
  void Detach(const Process& p, Instant heard_at = kNever);
  // `measured`: what the node measured of the hold that this ends; `age`: it came in there so long
  // ago, and is said again.
  void Hear(Process& p, const wire::State& state, const scheduler::Measured& measured,
            Duration age = Duration(0));
  void CutLink(bool cut);
  // The process is dead, and nothing of it is on the GPU. While the daemon is down it is not told
  // so; it looks when it is back.
  void Gone(Process& p, const Node::Held& held);

  // A timer that was set for `at`.
  void Tick(uint32_t whose, Instant at);

  // The daemon ends for `away`. Its clients have lost their connections.
  void Stop(Duration away);
  // Another one starts with what was stored. It hears of the GPUs in `of` only, of one after the
  // other; of all at once where that is empty.
  void ComeBack(const std::vector<uint32_t>& of = {});

  // Tells RunOptions::on_hold of the token that is out, if any.
  void ReportHold(uint32_t g) const;

 private:
  void SetPod(size_t pod, uint32_t g, Instant limit_full_at = {});
  void FormGang(size_t pod);
  void FormGangs();
  void Step(uint32_t g, const scheduler::Event& event);
  void StepOne(uint32_t g, const scheduler::Event& event);
  void Store(uint32_t g, const scheduler::StoreHolder& holder);
  void Send(const scheduler::SendToken& send);
  void TendGangs();
  void QueueTick(Instant wakeup, Instant& queued, uint32_t whose);
  void Restore(uint32_t g);
  void SayGone(Process& p, const Node::Held& held = {});

  WorldState& world_;
  const Gpus& gpus_;
  Links& links_;
  Node& node_;
  Laws& laws_;
  std::optional<scheduler::GangScheduler> gangs_;
  Instant gangs_queued_ = kNever;
  uint64_t gang_wakeups_ = 0;
  uint32_t overdue_ticks_ = 0;  // in a row that were due already
  scheduler::Effects effects_;  // of the present step
  bool down_ = false;
  Duration outages_{0};  // all of them
};

}  // namespace baton::world

#endif  // BATON_WORLD_DAEMON_H_
