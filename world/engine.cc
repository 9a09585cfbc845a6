#include "world/engine.h"

#include <algorithm>
#include <utility>

#include "world/world.h"

namespace baton::world {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(5);

}  // namespace

World::World(const Plan& plan, const RunOptions& options) : state_(plan, options) {
  for (size_t i = 0; i < state_.pods.size(); ++i) {
    const PodPlan& pod = plan.pods[i];
    if (pod.arrives == Duration(0)) {
      Arrive(i);
    } else {
      state_.At(Instant(pod.arrives), What::kArrive, i);
    }
    if (pod.leaves < plan.length) state_.At(Instant(pod.leaves), What::kLeave, i);
  }
  faults_.Queue(0);
  laws_.Begin();
  const Duration step = options.series_step;
  if (step > Duration(0)) state_.At(Instant(step), What::kSeries);
}

void World::RunUntil(Instant end) {
  while (state_.verdict.ok) {
    const uint32_t stream = gpus_.Next();
    const Instant kernel = gpus_.EndOn(stream);
    const Instant next = state_.events.empty() ? kNever : state_.events.top().at;
    if (std::min(next, kernel) > end) break;
    ++state_.verdict.events;
    if (kernel <= next) {
      state_.now = kernel;
      processes_.KernelEnded(stream);
    } else {
      const Event event = state_.events.top();
      state_.events.pop();
      state_.now = event.at;
      Handle(event);
    }
  }
  if (state_.verdict.ok) state_.now = end;
}

Verdict World::Finish() {
  laws_.CheckHostile();
  state_.now = Instant(state_.plan.length);
  Summarize();
  return std::move(state_.verdict);
}

void World::Handle(const Event& event) {
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
      return clients_.BeginBurst(ProcessAt(event), event.serial);
    case What::kOpened:
      return clients_.Opened(ProcessAt(event), event.serial);
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
      // Nobody watches: the next relay looks.
      if (node_.down()) return state_.After(kLookAgain, What::kGone, event.subject);
      return daemon_.Gone(ProcessAt(event), node_.Gone(ProcessAt(event)));
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
    case What::kTurn:
      return clients_.TakeTurn(ProcessAt(event));
    case What::kWord:
      return clients_.Read(ProcessAt(event));
    case What::kRelayBack:
      return faults_.RelayBack();
  }
}

void World::Arrive(size_t pod) {
  state_.pods[pod].arrived = true;
  state_.pods[pod].present = true;
  daemon_.AddPod(pod);
  processes_.StartAll(pod);
}

void World::Leave(size_t pod) {
  state_.pods[pod].present = false;
  processes_.EndAll(pod);
  daemon_.RemovePod(pod);
}

void World::AtRelay(uint32_t frame) {
  wire::State said;
  Process* p = links_.At(frame, said);
  if (p == nullptr) return links_.Drop(frame);
  const auto measured = node_.Said(*p, said);
  PassPlain();
  measured ? links_.Forward(frame, *measured) : links_.Drop(frame);
}

// Whose holder says that it has drained, and its word does not, cannot know.
void World::PassPlain() {
  for (const auto& [process, token] : node_.TakePlain()) {
    links_.FromNode(*state_.processes[process], token);
  }
}

void World::AtDaemon(uint32_t frame) {
  wire::State said;
  scheduler::Measured measured;
  Process* p = links_.Take(frame, said, measured);
  if (p == nullptr) return;
  if (!state_.plan.relay) {
    measured = node_.Said(*p, said).value_or(measured);
    PassPlain();
  }
  daemon_.Hear(*p, said, measured);
}

void World::AtClient(uint32_t frame) {
  if (!state_.plan.relay) return Deliver(frame);
  wire::Token token;
  const Process* p = links_.At(frame, token);
  if (p == nullptr || !node_.Pass(*p, token)) return links_.Drop(frame);
  links_.Deliver(frame, token);
}

void World::Deliver(uint32_t frame) {
  hook::Event event{.kind = hook::EventKind::kToken};
  Process* p = links_.Take(frame, event.token);
  if (p == nullptr) return;
  state_.PlanOf(*p).hostile ? adversary_.Heard(*p, event.token) : clients_.Deliver(*p, event);
}

void World::Act(Process& p, uint32_t connection) {
  if (p.connection == connection) adversary_.Act(p);
}

void World::Continue(Process& p) {
  if (!state_.PlanOf(p).hostile) return clients_.Continue(p);
  p.stopped = false;
  adversary_.Act(p);
}

// A kernel counts when it ends.
void World::ExtendSeries() {
  state_.After(state_.options.series_step, What::kSeries);
  for (PodState& pod : state_.pods) {
    for (Account& account : pod.accounts) {
      if (account.here) account.series.push_back(account.used);
    }
  }
}

void World::Summarize() {
  Duration busy{0};
  for (uint32_t g = 0; g < state_.plan.gpus; ++g) {
    busy += gpus_.Busy(g);
    daemon_.ReportHold(g);
  }
  Verdict& verdict = state_.verdict;
  verdict.busy = static_cast<double>(Nanos(busy)) / static_cast<double>(Nanos(state_.plan.length)) /
                 state_.plan.gpus;
  for (size_t i = 0; i < state_.pods.size(); ++i) {
    for (const uint32_t g : state_.plan.pods[i].gpus) {
      scheduler::LatencyMet met;
      for (const scheduler::PodStatus& s : state_.sites[g].scheduler->Status(state_.now)) {
        if (s.pod == state_.IdOf(i)) met = s.met;
      }
      Account& account = state_.pods[i].accounts[g];
      for (size_t n = account.series.size(); n-- > 1;) account.series[n] -= account.series[n - 1];
      verdict.pods.push_back({state_.plan.pods[i].id, g, account.used, account.held, account.grants,
                              std::move(account.waits), met, std::move(account.series)});
    }
  }
}

Verdict Run(const Plan& plan, const RunOptions& options) {
  World world(plan, options);
  world.RunUntil(Instant(plan.length));
  return world.Finish();
}

}  // namespace baton::world
