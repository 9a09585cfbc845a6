#include "world/engine.h"

#include <algorithm>
#include <utility>

#include "world/adversary.h"
#include "world/clients.h"
#include "world/daemon.h"
#include "world/faults.h"
#include "world/gpus.h"
#include "world/laws.h"
#include "world/links.h"
#include "world/node.h"
#include "world/processes.h"
#include "world/state.h"

namespace baton::world {
namespace {

// The loop over what happens, and the figures of it.
class World {
 public:
  World(const Plan& plan, const RunOptions& options) : state_(plan, options) {}

  Verdict Run() {
    for (size_t i = 0; i < state_.pods.size(); ++i) {
      const PodPlan& pod = state_.plan.pods[i];
      if (pod.arrives == Duration(0)) {
        Arrive(i);
      } else {
        state_.At(Instant(pod.arrives), What::kArrive, i);
      }
      if (pod.leaves < state_.plan.length) state_.At(Instant(pod.leaves), What::kLeave, i);
    }
    faults_.Queue(0);
    laws_.Begin();
    const Duration step = state_.options.series_step;
    if (step > Duration(0)) state_.At(Instant(step), What::kSeries);

    const Instant end(state_.plan.length);
    while (state_.verdict.ok) {
      const uint32_t gpu = gpus_.Next();
      const Instant kernel = gpus_.EndOn(gpu);
      const Instant next = state_.events.empty() ? kNever : state_.events.top().at;
      if (std::min(next, kernel) > end) break;
      ++state_.verdict.events;
      if (kernel <= next) {
        state_.now = kernel;
        processes_.KernelEnded(gpu);
      } else {
        const Event event = state_.events.top();
        state_.events.pop();
        state_.now = event.at;
        Handle(event);
      }
    }
    if (state_.verdict.ok) state_.now = end;
    laws_.CheckHostile();
    state_.now = end;
    Summarize();
    return std::move(state_.verdict);
  }

 private:
  void Handle(const Event& event) {
    switch (event.what()) {
      case What::kArrive:
        return Arrive(event.subject);
      case What::kLeave:
        return Leave(event.subject);
      case What::kBegin:
        return processes_.Begin(ProcessAt(event));
      case What::kConnect:
        return processes_.Connect(ProcessAt(event));
      case What::kAttached:
        return processes_.Attached(ProcessAt(event), event.serial);
      case What::kBurst:
        return clients_.BeginBurst(ProcessAt(event));
      case What::kOpened:
        return clients_.Opened(ProcessAt(event));
      case What::kFinished:
        return clients_.Finished(ProcessAt(event));
      case What::kWake:
        return clients_.Wake(ProcessAt(event), event.at);
      case What::kToDaemon:
        return AtDaemon(event.subject);
      case What::kToClient:
        return AtClient(event.subject);
      case What::kTick:
        return daemon_.Tick(event.subject, event.at);
      case What::kGone:
        node_.Gone(ProcessAt(event));
        return daemon_.Gone(ProcessAt(event));
      case What::kKill:
        return processes_.Kill(ProcessAt(event));
      case What::kContinue:
        return Continue(ProcessAt(event));
      case What::kDaemonBack:
        daemon_.ComeBack();
        return processes_.SayEverything();
      case What::kLinkBack:
        return faults_.MendLink(event.serial != 0);
      case What::kFault:
        return faults_.Inject(event.subject);
      case What::kLiveness:
        return laws_.CheckLiveness();
      case What::kShares:
        return laws_.CheckShares(event.subject);
      case What::kSeries:
        return ExtendSeries();
      case What::kAct:
        return Act(ProcessAt(event), event.serial);
      case What::kToRelay:
        return AtRelay(event.subject);
      case What::kFromRelay:
        return Deliver(event.subject);
    }
  }
  Process& ProcessAt(const Event& event) { return *state_.processes[event.subject]; }

  void Arrive(size_t pod) {
    state_.pods[pod].present = true;
    daemon_.AddPod(pod);
    processes_.StartAll(pod);
  }
  void Leave(size_t pod) {
    state_.pods[pod].present = false;
    processes_.EndAll(pod);
    daemon_.RemovePod(pod);
  }

  void AtRelay(uint32_t frame) {
    wire::State said;
    Process* p = links_.At(frame, said);
    if (p == nullptr) return links_.Drop(frame);
    const auto measured = node_.Said(*p, said);
    measured ? links_.Forward(frame, *measured) : links_.Drop(frame);
  }
  void AtDaemon(uint32_t frame) {
    wire::State said;
    scheduler::Measured measured;
    Process* p = links_.Take(frame, said, measured);
    if (p == nullptr) return;
    if (!state_.plan.relay) measured = node_.Said(*p, said).value_or(measured);
    daemon_.Hear(*p, said, measured);
  }
  void AtClient(uint32_t frame) {
    if (!state_.plan.relay) return Deliver(frame);
    wire::Token token;
    const Process* p = links_.At(frame, token);
    p != nullptr&& node_.Pass(*p, token) ? links_.Deliver(frame) : links_.Drop(frame);
  }
  void Deliver(uint32_t frame) {
    hook::Event event{.kind = hook::EventKind::kToken};
    Process* p = links_.Take(frame, event.token);
    if (p == nullptr) return;
    state_.PlanOf(*p).hostile ? adversary_.Heard(*p, event.token) : clients_.Deliver(*p, event);
  }
  void Act(Process& p, uint32_t connection) {
    if (p.connection == connection) adversary_.Act(p);
  }
  void Continue(Process& p) {
    if (!state_.PlanOf(p).hostile) return clients_.Continue(p);
    p.stopped = false;
    adversary_.Act(p);
  }

  // A kernel counts when it ends.
  void ExtendSeries() {
    state_.After(state_.options.series_step, What::kSeries);
    for (PodState& pod : state_.pods) {
      for (Account& account : pod.accounts) {
        if (account.here) account.series.push_back(account.used);
      }
    }
  }

  void Summarize() {
    Duration busy{0};
    for (uint32_t g = 0; g < state_.plan.gpus; ++g) {
      busy += gpus_.Busy(g);
      daemon_.ReportHold(g);
    }
    Verdict& verdict = state_.verdict;
    verdict.busy = static_cast<double>(Nanos(busy)) /
                   static_cast<double>(Nanos(state_.plan.length)) / state_.plan.gpus;
    for (size_t i = 0; i < state_.pods.size(); ++i) {
      for (const uint32_t g : state_.plan.pods[i].gpus) {
        Account& account = state_.pods[i].accounts[g];
        for (size_t n = account.series.size(); n-- > 1;) account.series[n] -= account.series[n - 1];
        verdict.pods.push_back({state_.plan.pods[i].id, g, account.used, account.held,
                                account.grants, std::move(account.waits),
                                std::move(account.series)});
      }
    }
  }

  WorldState state_;
  Gpus gpus_{state_};
  Links links_{state_};
  Node node_{state_};
  Laws laws_{state_, node_};
  Daemon daemon_{state_, gpus_, links_, node_, laws_};
  Clients clients_{state_, gpus_, links_};
  Adversary adversary_{state_, links_, node_, daemon_};
  Processes processes_{state_, gpus_, laws_, node_, daemon_, clients_, adversary_};
  Faults faults_{state_, links_, daemon_, processes_};
};

}  // namespace

Verdict Run(const Plan& plan, const RunOptions& options) { return World(plan, options).Run(); }

}  // namespace baton::world
