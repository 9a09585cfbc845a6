#include "backend/recovery.h"

#include <fmt/format.h>

#include <vector>

namespace baton::backend {

void RestoreHolders(Gpu& gpu, const Pods& pods, const UsageBook& usage, ClientTable& clients,
                    Tokens& tokens, node::EventLog& log) {
  // A newer token was about to be sent: those of the file had given theirs back.
  if (usage.NewestHold(gpu.key) > gpu.file.epoch()) return;
  for (const HolderFile::Member& member : std::vector(gpu.file.members())) {
    const PodId pod{member.pod};
    const bool known = pods.Find(pod) != nullptr;
    if (!known && clients.BeginLeaving(pod)) {
      // Deleted since. It counts as a pod until its process is gone.
      tokens.Step(gpu, scheduler::PodSet{pod, *policy::Validated(policy::ShareSpec{})});
    }
    const ClientTable::Process process{gpu.node, member.pid, member.start_time};
    Client* client = clients.FindProcess(process, member.incarnation);
    if (client == nullptr) client = &clients.Add(pod, process, member.incarnation);
    if (gpu.lanes.count(client->id.value) != 0) continue;
    const Lane& lane = clients.AddLane(*client, gpu);
    gpu.holder = pod;
    gpu.granted_at = MonotonicNow();
    gpu.hold = {pod, gpu.granted_at, gpu.granted_at};
    scheduler::HolderRestored restored{client->id,     pod, gpu.file.epoch(), gpu.granted_at,
                                       gpu.granted_at, {}};
    if (member.joined_ns != 0) {
      restored.granted_at = Instant(DurationFromNanos(gpu.file.granted_ns()));
      restored.joined_at = Instant(DurationFromNanos(member.joined_ns));
      restored.charged = DurationFromNanos(lane.total->ChargedFor(restored.epoch));
      gpu.hold.granted_at = gpu.hold.waits_since = restored.granted_at;
    }
    tokens.Step(gpu, restored);
    log.Add(node::EventLog::Level::kInfo, "gpu",
            fmt::format("{} was held by {} when the daemon ended; waiting for it to reconnect or "
                        "to end",
                        gpu.info.uuid, Where(*client)));
  }
  for (const HolderFile::Member& member : gpu.file.members()) {
    if (pods.Find(PodId{member.pod}) == nullptr)
      tokens.Step(gpu, scheduler::PodRemoved{PodId{member.pod}});
  }
}

}  // namespace baton::backend
