// The heart of batond: clients, pods and GPUs, and one token scheduler per GPU between them,
// whatever socket an event came from.
//
//   clients' messages ──▶ Arbiter ──▶ TokenScheduler (pure) ──▶ effects: tokens out at once, the
//                                                               rest (accounts, log) afterwards
//
// A client is one process (node, pid, start time) in one incarnation. It keeps its id when its
// connection, its node's relay or this daemon comes and goes.
//
// Not thread safe: one event loop. Links must not call back from within their methods.
#ifndef BATON_BACKEND_ARBITER_H_
#define BATON_BACKEND_ARBITER_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "backend/config.h"
#include "backend/devices.h"
#include "backend/event_log.h"
#include "backend/gang_scheduler.h"
#include "backend/holder_file.h"
#include "backend/http/metrics.h"
#include "backend/ledger/ledger.h"
#include "backend/pods.h"
#include "backend/token_scheduler.h"
#include "backend/usage_book.h"
#include "backend/vgpus.h"
#include "wire/messages.h"

namespace baton::backend {

// The way to clients: the unix socket, a node's relay, or ZeroMQ. Clients have numbers there.
class ClientLink {
 public:
  virtual ~ClientLink() = default;
  virtual void Send(uint64_t number, std::string_view frame) = 0;
  // Sends Error and closes the connection.
  virtual void Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) = 0;
  virtual void KillProcess(uint64_t number) = 0;
};

// What teams mean for pods and GPUs.
class TeamPolicy {
 public:
  virtual ~TeamPolicy() = default;
  // The pod's share with its team's number, and at the priority that its team may have now.
  virtual policy::ShareSpec Effective(const Pod& pod) = 0;
  // The weights, by number, where pods of these teams are on one GPU.
  virtual std::vector<uint32_t> Weights(const std::vector<std::string>& teams) = 0;
  // Whether the pod may be created, or changed to be like this.
  virtual Result<void> Admit(const Pod& pod) = 0;
};

// Shares over the last seconds, from samples of cumulative held and waited time.
class Series {
 public:
  struct Shares {
    double held = 0;  // of the time, 0 to 1
    double waited = 0;
  };
  void Add(Instant now, uint64_t held_ns, uint64_t waited_ns);
  // Over the last `window`, or since the first sample where that is shorter.
  Shares Over(Duration window, Instant now, uint64_t held_ns, uint64_t waited_ns) const;
  static constexpr Duration kEvery = std::chrono::milliseconds(500);

 private:
  struct Sample {
    Instant at{};
    uint64_t held_ns = 0;
    uint64_t waited_ns = 0;
  };
  std::array<Sample, 128> samples_;
  size_t count_ = 0;
};

class Arbiter {
 public:
  struct Gpu;
  struct Client;
  struct PodOnGpu;
  // A client on one GPU.
  struct Lane {
    Client* client = nullptr;
    Gpu* gpu = nullptr;
    uint8_t index = 0;      // the client's own for this GPU
    bool attached = false;  // on the present connection
    uint64_t seq = 0;
    wire::Phase phase = wire::Phase::kIdle;
    uint64_t memory = 0;  // bytes charged
    uint64_t memory_request = 0;
    bool memory_said = false;
    UsageEntry* last = nullptr;   // what the client last reported
    UsageEntry* total = nullptr;  // its pod's account on this GPU
    PodOnGpu* on = nullptr;
  };
  struct Client {
    ClientId id;
    PodId pod;
    std::string node;  // "" is this machine
    uint64_t pid = 0;
    uint64_t start_time = 0;
    uint64_t uid = 0;
    uint64_t incarnation = 0;
    std::string command;
    ClientLink* link = nullptr;  // null: restored, and nobody has found the process yet
    uint64_t number = 0;
    bool connected = false;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::array<Lane*, wire::kGpusMax> by_index{};
  };
  // A pod on a GPU, beside its account and what the scheduler knows.
  struct PodOnGpu {
    Series series;
    policy::ShareSpec told;  // what its scheduler goes by
    uint64_t clients = 0;
    uint64_t memory = 0;       // bytes that they are charged
    uint64_t memory_peak = 0;  // since the last snapshot
    Instant memory_at{};       // until here it is in the account
    http::Histogram waits;     // for a token, and how long one was held, since the daemon started
    http::Histogram holds;
  };
  // A token, from the wait for it to its return; kNever: not yet.
  struct Hold {
    PodId pod;
    Instant waits_since{};
    Instant granted_at{};
    Instant drains_since = kNever;
    Instant returned_at = kNever;
  };
  // The last holds, for people to look at.
  class Timeline {
   public:
    void Add(const Hold& hold);
    // Those that ended at `since` or later, in that order.
    std::vector<Hold> Since(Instant since) const;

   private:
    static constexpr size_t kKept = 2048;
    std::vector<Hold> holds_;  // a ring
    size_t made_ = 0;
  };
  struct Gpu {
    Gpu(boost::asio::io_context& io, const SchedulerOptions& options, uint64_t last_epoch,
        uint64_t first_epoch)
        : scheduler(options, last_epoch, first_epoch), timer(io) {}
    devmgr::GpuInfo info;
    std::string node;
    bool present = false;     // its node has reported it
    bool throw_away = false;  // virtual, for measuring; no device behind it
    bool frozen = false;      // the link to its node is cut: nothing moves
    bool hung = false;        // its holder does not drain
    uint64_t key = 0;         // UsageBook::GpuKey(uuid)
    uint64_t overruns = 0;
    uint64_t grants = 0;
    PodId holder;
    Instant granted_at{};         // or charged until, where that is later
    Hold hold;                    // the present one, where there is a holder
    Instant idle_since = kNever;  // nobody holds or waits
    Duration idle{0};             // before that
    Duration idle_told{0};        // of it, in a snapshot
    Duration held{0};             // since the daemon started, by all pods
    uint64_t busy_ns = 0;         // the same, as hooks measured it
    Series series;                // of these two
    Timeline timeline;
    TokenScheduler scheduler;
    HolderFile file;
    bool clear_file = false;
    bool weigh = false;         // the teams here have changed; it is in to_weigh_
    bool holder_stored = true;  // at the last attempt
    boost::asio::steady_timer timer;
    Instant armed = kNever;
    Instant ticked{};                           // when the timer last had something to do
    std::unordered_map<uint64_t, Lane*> lanes;  // by client id
    std::map<PodId, PodOnGpu> pods;
  };
  // A client of before this daemon started, or of before its relay did: is its process still there?
  struct Missing {
    ClientId client;
    uint64_t pid;
    uint64_t start_time;
    uint64_t incarnation;
    std::vector<std::string> gpus;
  };

  Arbiter(boost::asio::io_context& io, const Options& options, Pods& pods, Vgpus& vgpus,
          UsageBook& usage, EventLog& log);
  ~Arbiter();

  // ---- GPUs. `state_dir`/gpu-UUID.holder is read when a GPU is first heard of.
  // kExists: another node has this GPU. kExhausted: the node has too many.
  Result<void> AddGpu(const devmgr::GpuInfo& info, const std::string& node,
                      bool throw_away = false);
  // The virtual GPU of a node, made when absent.
  Gpu& ThrowAwayGpu(const std::string& node);
  // The link to the node is cut, or back: while it is cut, nothing of its GPUs moves.
  void SetFrozen(const std::string& node, bool frozen);

  // What is on the node now, beyond what AddGpu() tells. Events say what has changed, and whom it
  // concerns.
  void SetCards(const std::string& node, std::vector<devmgr::Card> cards);
  // No more pods go to the GPU (a uuid or an index within `node`), or again; the others stay. Kept
  // over restarts. The uuid.
  Result<std::string> Cordon(const std::string& gpu, const std::string& node, bool cordoned);

  // ---- Clients, by their links.
  // A Hello. Answered by Welcome through the link, or refused and nothing returned.
  // `kubernetes_pod`: uid of the one that the process's cgroup names; empty: none.
  ClientId Up(ClientLink& link, uint64_t number, const std::string& node, uint64_t pid,
              uint64_t start_time, uint64_t uid, std::string_view kubernetes_pod,
              const wire::Hello& hello);
  void Attach(ClientId client, const wire::Attach& attach);
  // `held`: as the client's node measured it, when the token of state.epoch has drained; else 0.
  void State(ClientId client, const wire::State& state, Duration held);
  void Memory(ClientId client, const wire::Memory& memory);
  void Down(ClientId client, wire::DownReason reason) { Down(client, reason, kNever); }
  // The link, last heard at `heard`, is about to end. Its clients are disconnected. kNever: whoever
  // watches them at its other end is still there.
  void DropLink(ClientLink& link, Instant heard);
  // Clients of the node that are not connected.
  std::vector<Missing> MissingOn(const std::string& node) const;
  // `client`, restored, was found: its process is now watched by `link` as `number`.
  void Bind(ClientId client, ClientLink& link, uint64_t number);

  // ---- Pods. All keep the file up to date. Where a mode's driver has work to do, `done` is called
  // when that is done, else at once; never for a daemon that ends. A pod of which that is under way
  // cannot be changed meanwhile (kUnavailable).
  using Made = std::function<void(Result<Pod*>)>;
  using Done = std::function<void(Result<void>)>;
  // `pod.wishes.gpus`: uuids or indexes within `node` ("*": all nodes), of which `count` are taken;
  // empty: any. 0: as many as are named, or one.
  void CreatePod(Pod pod, uint32_t count, const std::string& node, const Made& done);
  void DeletePod(Pod& pod, const Done& done);
  struct PodChange {
    uint32_t request = 0;  // 0: unchanged
    uint32_t limit = 0;
    const uint64_t* memory_cap = nullptr;
    policy::Share memory_part = 0;  // with memory_cap: where that says 0
    const policy::Priority* priority = nullptr;
    const std::string* team = nullptr;
  };
  Result<void> SetPod(Pod& pod, const PodChange& change);
  // To other GPUs, as many as it has. kUnavailable: it runs.
  void MovePod(Pod& pod, const std::vector<std::string>& gpus, const std::string& node,
               const Done& done);
  // What CreatePod() would be asked: names are uuids then.
  Result<uint32_t> Resolve(Pod& pod, uint32_t count, const std::string& node) const;
  bool Runs(const Pod& pod) const { return clients_of_pod_.count(pod.id) != 0; }
  // Who makes MIG instances and starts MPS. Null: nobody.
  void SetDeviceMaker(DeviceMaker* maker) { maker_ = maker; }
  DeviceMaker* maker() const { return maker_; }
  // What was made before, or is there again.
  void SetDevices(const std::string& pod, size_t index, const std::string& device);
  // Brings the pods of the configuration file in; see config.h for who wins.
  void ApplyConfiguredPods(const std::vector<PodConfig>& configured);
  // The node on which a pod's GPUs are.
  bool PodIsOn(const Pod& pod, const std::string& node) const;

  // ---- Teams. Null: they mean nothing.
  void SetTeamPolicy(TeamPolicy* teams) { teams_ = teams; }
  // What teams weigh or may do has changed.
  void TeamsChanged();
  // The pod's share as the scheduler is told.
  policy::ShareSpec SpecOf(const Pod& pod) const;

  // ---- For status.
  const std::map<std::string, std::unique_ptr<Gpu>>& gpus() const { return gpus_; }
  // The GPUs of a node ("*": all), in the order they were reported.
  std::vector<Gpu*> GpusOf(const std::string& node) const;
  const std::map<uint64_t, std::unique_ptr<Client>>& clients() const { return clients_; }
  Pods& pods() { return pods_; }
  const Pods& pods() const { return pods_; }
  Vgpus& vgpus() { return vgpus_; }
  const Vgpus& vgpus() const { return vgpus_; }
  uint64_t HeldNow(const Gpu& gpu, PodId pod, Instant now) const;
  // By all pods, since the daemon started.
  uint64_t HeldNow(const Gpu& gpu, Instant now) const;
  UsageEntry* Account(const Gpu& gpu, PodId pod) const;
  // What does not work as it should; empty when all is well.
  std::vector<std::string> Degraded() const;

  // ---- For the books.
  // Everything that was used so far, in steps between which the loop serves others. `done` is
  // called with a batch without source and seq. One at a time.
  void Snapshot(std::function<void(ledger::Batch)> done);
  // The same in one go.
  ledger::Batch SnapshotNow();
  // A snapshot is in the books: what departed before it can be forgotten.
  void Booked(ledger::WallTime to);
  // Without books nobody needs to know of a deleted pod.
  void KeepDeparted(bool keep) { keep_departed_ = keep; }

  // Writes everything that is not on disk yet.
  void Store();

 private:
  void Step(Gpu& gpu, const Event& event);
  void StepOne(Gpu& gpu, const Event& event);
  void TendGangs();
  void FormGang(const Pod& pod);
  void CarryOut(Gpu& gpu, Instant now, const Effect& effect);
  void Arm(Gpu& gpu);
  void Book(Lane& lane, const wire::State& state);
  void Note(Gpu& gpu, const Notice& notice);
  void Later();
  void DoLater();
  void Sample();
  void SampleGpu(const std::string& uuid);
  // `heard`: as in ClientDisconnected.
  void Down(ClientId client, wire::DownReason reason, Instant heard);
  void Gone(Client& client);
  void CloseWhenDrained(PodId pod);
  bool HoldsAnything(const Client& client) const;
  void ForgetPod(PodId pod);
  void TellShare(Gpu& gpu, const Pod& pod);
  void Weigh(Gpu& gpu);
  void WeighLater(const Pod& pod);
  void Record(Gpu& gpu, const Hold& hold);
  void SetMemory(Lane& lane, uint64_t bytes);
  void TallyMemory(const Gpu& gpu, PodId pod, PodOnGpu& on, Instant now);
  void NoteIdle(Gpu& gpu, Instant now);
  struct SnapshotWork {
    ledger::Batch batch;
    std::vector<PodId> final;  // departed: this is their last use
    PodId after;
  };
  void BeginSnapshot(SnapshotWork& work);
  bool GoOnWithSnapshot(SnapshotWork& work, size_t most);
  void AddSamples(ledger::Batch& batch, PodId id, const ledger::Owner& owner,
                  const std::vector<std::string>& gpus);
  void Restore(Gpu& gpu);
  void SavePods();
  void DropUnused(Instant now);
  // `pod`: null when it was deleted.
  void SendAttached(Lane& lane, const Pod* pod);
  Client* Find(ClientId id);
  using Process = std::tuple<std::string, uint64_t, uint64_t>;  // node, pid, start time
  Client* FindProcess(const Process& process, uint64_t incarnation);
  Lane* FindLane(Client& client, uint8_t index);
  bool enforcing() const { return options_.server.mode == Mode::kEnforce; }
  // Uuids of `wanted`, which is not empty.
  Result<std::vector<std::string>> ResolveGpus(const std::vector<std::string>& wanted,
                                               const std::string& node) const;
  Result<Pod*> Enter(Pod pod);
  void Drop(Pod& pod);
  void PutOnGpus(Pod& pod);
  void TakeOffGpus(const Pod& pod);
  std::vector<DeviceJob> JobsFor(const Pod& pod) const;
  Result<void> CheckIdle(const Pod& pod) const;
  void BookAgain(const std::string* gpu);

  boost::asio::io_context& io_;
  const Options& options_;
  Pods& pods_;
  Vgpus& vgpus_;
  UsageBook& usage_;
  EventLog& log_;
  const std::string boot_id_;
  std::map<std::string, std::unique_ptr<Gpu>> gpus_;
  std::vector<Gpu*> gpu_order_;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  std::unordered_map<uint64_t, Client*> client_index_;
  std::multimap<Process, ClientId> by_process_;
  std::map<PodId, uint32_t> clients_of_pod_;
  std::map<std::string, size_t> clients_of_node_;
  std::set<PodId> leaving_;                       // deleted, but with clients
  std::deque<std::pair<Instant, PodId>> unused_;  // throw-away pods, by age
  uint64_t last_client_ = 0;
  GangScheduler gangs_;
  std::unordered_map<const TokenScheduler*, Gpu*> by_scheduler_;
  boost::asio::steady_timer gang_timer_;
  Instant gang_armed_ = kNever;
  Effects effects_;
  std::vector<Gpu*> to_clear_;
  std::vector<std::pair<Gpu*, Hold>> to_record_;  // holds that have ended
  std::vector<Gpu*> to_weigh_;
  std::vector<std::pair<Gpu*, Notice>> to_note_;
  bool later_ = false;
  boost::asio::steady_timer sampler_;
  std::string degraded_pods_;
  TeamPolicy* teams_ = nullptr;
  DeviceMaker* maker_ = nullptr;
  std::set<std::string> under_way_;  // names of pods whose devices are made or taken away
  bool keep_departed_ = false;
  std::map<PodId, ledger::WallTime> told_;  // departed pods: the snapshot with their last use
  std::vector<PodConfig> configured_;
  bool configured_known_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ARBITER_H_
