// The answers to the commands "status" and "vgpus", as JSON.
#ifndef BATON_BACKEND_STATUS_H_
#define BATON_BACKEND_STATUS_H_

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/control.h"
#include "node/control_socket.h"

namespace baton::backend {

// All that is known about pods and GPUs of `node` ("*": all). The fields:
//
//   daemon   {version, mode, pid, started, degraded: [sentence]}
//   gpus     [{uuid, name, node, memory, present, epoch, holder?, queue: [pod], handoff_ns,
//             handoff_total_ns, grants, overruns, hung, link: "up"|"cut", health:
//             "healthy"|"failed"|"missing", why, cordoned, kernel_caps, kernel_caps_why,
//             memory_overhead (Gpu::overhead), memory_reserve, unmanaged: [{pid, user, uid,
//             command, container, pod, memory}]}]
//                                                        holder: absent when nobody holds
//   pods     [{name, id, request, limit, memory, memory_percent, mode, priority, team, user,
//             namespace, uid, phase, held_ns, busy_ns,
//             waited_ns, unmanaged_ns, launches, copies_bytes, grants, revocations, memory_used,
//             lag_ns, achieved_1s, achieved_10s, achieved_60s, latency_ns?, latency_waits?,
//             latency_late?, latency_ahead? (scheduler::LatencyMet), latency_note?,
//             gpus: [{uuid, node, phase, fluid, throttled, lag_ns, achieved_1s, achieved_10s,
//                     achieved_60s, waited_1s, memory_used, held_ns, busy_ns, waited_ns,
//                     unmanaged_ns, launches, copies_bytes, grants, revocations, memory_swapped?,
//                     memory_released?, kernel_cap?, kernel_cap_why?}],
//             clients: [{pid, command, uid, connected, phase}]}]
//   clients  [{id, pid, node, pod, command, connected, phase}]
//   nodes    [{name, link: "up"|"cut", clients, silent_ms}]
//   events   [{time_ms, kind, text}]    oldest first, time since 1970
//
// Shares (request, limit, fluid, achieved, waited) are percent of one GPU; a pod's achieved_* add
// up over its GPUs. Times are cumulative nanoseconds and survive restarts, but for lag_ns. phase is
// idle, waiting, holding or draining; a pod's is that of its busiest client. One of idle priority
// that waits while others have work is paused.
// It is made in steps, between which the loop serves others: of a thousand pods it takes long. Pods
// and clients may come and go meanwhile; each is told as it is when its turn comes. Not thread
// safe. `arbiter` and `log` must outlive it.
class StatusSteps {
 public:
  StatusSteps(Arbiter& arbiter, const node::EventLog& log, const DaemonStatus& daemon,
              std::string node);
  ~StatusSteps();
  // Goes on with one GPU, or at most so many pods, or clients. True: it was the last step.
  bool GoOn(size_t most);
  // Once GoOn() has said that it was: the JSON without its last "}".
  node::LongAnswer Take();

  struct State;

 private:
  std::unique_ptr<State> state_;
};
// One pod of "pods" above, but without what is measured, and with its ticket.
nlohmann::json PodJson(const Pod& pod);
// The same, with what `baton run` needs: `environment` {name: value}, and whether the hook is to be
// preloaded: `hook`.
nlohmann::json PodAnswer(const Arbiter& arbiter, const Pod& pod);
// Each virtual GPU of the pods of `node` ("*": all), by pod and index: {"vgpus": [{pod, index,
// node, gpu, model, mode, device, request, limit, memory, held_ns, busy_ns, memory_used,
// memory_peak, running, booked, why}]}. Shares in percent, memory in bytes (0: no cap), `why`: it
// is not booked, or its GPU cannot be used. In steps, as StatusSteps.
class VgpusSteps {
 public:
  VgpusSteps(const Arbiter& arbiter, std::string node);
  // Goes on with at most so many pods.
  bool GoOn(size_t most);
  node::LongAnswer Take() { return std::move(answer_); }

 private:
  const Arbiter& arbiter_;
  const std::string node_;
  std::string after_;  // the name of the last pod
  bool any_ = false;
  node::LongAnswer answer_;
};
// {fits, where?: {node, gpus: [{uuid, index, model, mode}]}, error?, nodes: [{node, why, cards:
// [{uuid, index, model, why}]}]}
nlohmann::json ExplanationJson(const Vgpus& vgpus, const Vgpus::Explanation& explanation);
// {moves: [{pod, running, from, to}], where, exact}
nlohmann::json PlanJson(Arbiter& arbiter, const devmgr::DefragPlan& plan);

}  // namespace baton::backend

#endif  // BATON_BACKEND_STATUS_H_
