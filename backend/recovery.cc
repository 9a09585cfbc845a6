#include "backend/recovery.h"

#include <fmt/format.h>

#include <vector>

namespace baton::backend {
namespace {

// `ahead`: of the token that was sent ahead.
void RestoreMembers(Gpu& gpu, const HolderFile& file, bool ahead, const Pods& pods,
                    ClientTable& clients, Tokens& tokens, node::EventLog& log) {
  for (const HolderFile::Member& member : std::vector(file.members())) {
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
    const Instant now = MonotonicNow();
    scheduler::HolderRestored restored{client->id, pod, file.epoch(), now, now, {}, ahead};
    if (member.joined_ns != 0) {
      restored.granted_at = Instant(DurationFromNanos(file.granted_ns()));
      restored.joined_at = Instant(DurationFromNanos(member.joined_ns));
      restored.charged = DurationFromNanos(lane.total->ChargedFor(restored.epoch));
    }
    if (!ahead) {
      gpu.holder = pod;
      gpu.granted_at = now;
      gpu.hold = {pod, restored.granted_at, restored.granted_at};
    }
    tokens.Step(gpu, restored);
    log.Add(node::EventLog::Level::kInfo, "gpu",
            fmt::format("{} was {} {} when the daemon ended; waiting for it to reconnect or "
                        "to end",
                        gpu.info.uuid, ahead ? "next to be held by" : "held by", Where(*client)));
  }
  for (const HolderFile::Member& member : file.members()) {
    if (pods.Find(PodId{member.pod}) == nullptr)
      tokens.Step(gpu, scheduler::PodRemoved{PodId{member.pod}});
  }
}

}  // namespace

void RestoreHolders(Gpu& gpu, const Pods& pods, const UsageBook& usage, ClientTable& clients,
                    Tokens& tokens, node::EventLog& log) {
  const uint64_t newest = usage.NewestHold(gpu.key);
  const uint64_t held = gpu.file.epoch();
  // Where a newer token was about to be sent, those of the file had given theirs back.
  if (newest <= held) RestoreMembers(gpu, gpu.file, false, pods, clients, tokens, log);
  if (gpu.next_file.epoch() > std::max(newest, held)) {
    RestoreMembers(gpu, gpu.next_file, true, pods, clients, tokens, log);
  }
}

}  // namespace baton::backend
