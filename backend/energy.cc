#include "backend/energy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/hash.h"

namespace baton::backend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A counter moves every 100 ms. It is asked again and again from shortly before that on, so that it
// is known when it moved; and so for a burst of as many moves.
constexpr Duration kReadBefore = milliseconds(90);
constexpr Duration kAgain = milliseconds(1);
constexpr Duration kPatienceForMove = milliseconds(400);
constexpr int kBurst = 10;
// Between two bursts, and for how long there is no pause where other pods have come: then there is
// much to learn.
constexpr Duration kPause = seconds(4);
constexpr Duration kEager = seconds(60);
// Two readings that are no further apart are of moves of the counter, each known to some ms.
constexpr Duration kExact = milliseconds(250);
// When a move was is known so well where no more time has passed between two looks.
constexpr Duration kSharp = milliseconds(12);
constexpr Duration kEndsWithin = milliseconds(500);  // of the end
// So long after pods have come or gone what is read waits for what is learnt in that time. It is
// not lost with the daemon: the next one divides it.
constexpr Duration kYoung = seconds(20);
// What was learnt is written so often, and what was read is divided so often: the fit costs up to
// 0.1 ms of the event loop.
constexpr Duration kNote = seconds(1);
constexpr double kDivide_s = 1;
constexpr size_t kModelMax = 1 << 20;
// What a GPU took in a longer time without a reading is nobody's.
constexpr Duration kGapMost = std::chrono::hours(1);

// How long each pod held, in seconds, of no more than the last few.
std::map<uint64_t, double> HeldIn(const Gpu& gpu, Instant from, Instant to) {
  std::map<uint64_t, double> held;
  const auto add = [&](PodId pod, Instant begin, Instant end) {
    const Duration time = std::min(end, to) - std::max(begin, from);
    if (time > Duration(0)) held[pod.value] += static_cast<double>(Nanos(time)) / 1e9;
  };
  for (const Hold& hold : gpu.timeline.Since(from)) {
    add(hold.pod, hold.granted_at, hold.returned_at);
  }
  if (gpu.holder) add(gpu.hold.pod, gpu.hold.granted_at, to);
  return held;
}

}  // namespace

// What thread and loop share.
struct Energy::Shared {
  enum class How : uint8_t { kSeldom, kBursts, kEagerly };

  Shared(boost::asio::io_context& loop, std::shared_ptr<devmgr::Nvml> library, std::string in,
         Energy* of)
      : io(&loop), energy(of), nvml(std::move(library)), folder(std::move(in)) {}

  std::mutex mutex;  // for these:
  std::condition_variable changed;
  boost::asio::io_context* io;  // null: the daemon ends
  std::map<std::string, How> gpus;
  std::set<std::string> read;                // by a thread of its own each
  std::set<std::string> hurry;               // there is much to learn: no pause
  std::map<std::string, std::string> notes;  // by GPU: what is to be written to its file

  Energy* const energy;  // of the loop's thread, while there is one
  const std::shared_ptr<devmgr::Nvml> nvml;
  const std::string folder;

  std::string FileOf(const std::string& uuid) const {
    return fmt::format("{}/{:016x}", folder, HashOf(uuid));
  }
  void Note(const std::string& uuid, std::string bytes) {
    const std::lock_guard lock(mutex);
    notes[uuid] = std::move(bytes);
  }
  // Where it cannot be written a daemon after this one begins anew to learn.
  void WriteNote(const std::string& uuid) {
    std::string bytes;
    {
      const std::lock_guard lock(mutex);
      bytes = std::exchange(notes[uuid], "");
    }
    if (!bytes.empty()) static_cast<void>(ReplaceFile(FileOf(uuid), bytes, 0600, false));
  }
  bool Ends() {
    const std::lock_guard lock(mutex);
    return io == nullptr;
  }
  bool Pause(Duration time) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, time, [this] { return io == nullptr; });
  }
  // For so long, or until there is much to learn.
  void PauseBetween(const std::string& uuid) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kPause, [&] { return io == nullptr || hurry.contains(uuid); });
    hurry.erase(uuid);
  }
  // Nothing: it is not to be read any more, and its thread ends.
  std::optional<How> HowOf(const std::string& uuid) {
    const std::lock_guard lock(mutex);
    const auto how = gpus.find(uuid);
    if (io != nullptr && how != gpus.end()) return how->second;
    read.erase(uuid);
    changed.notify_all();
    return std::nullopt;
  }
  template <class Read>
  void Say(std::shared_ptr<Shared> self, const std::string& uuid, Read reading) {
    const std::lock_guard lock(mutex);
    if (io == nullptr) return;
    boost::asio::post(*io, [self = std::move(self), uuid, reading = std::move(reading)] {
      // Destroyed on this thread.
      if (!self->Ends()) self->energy->OnReading(uuid, reading);
    });
  }
  // The next move of the counter, asked for from `kReadBefore` after `last` on. Empty: it does not
  // move, or cannot be read.
  std::optional<Reading> Next(const std::string& uuid, double counter, Instant last) {
    Instant now = MonotonicNow();
    if (now < last + kReadBefore && !Pause(last + kReadBefore - now)) return std::nullopt;
    Instant unmoved = now = MonotonicNow();
    const Instant until = now + kPatienceForMove;
    while (!Ends() && now < until) {
      const auto joules = nvml->EnergyOf(uuid);
      if (!joules) break;
      if (*joules != counter) {
        const Duration between = MonotonicNow() - unmoved;
        return Reading{*joules, unmoved + between / 2, between};
      }
      unmoved = now;
      if (!Pause(kAgain)) break;
      now = MonotonicNow();
    }
    return std::nullopt;
  }
  // False: the counter cannot be read, or does not move.
  bool Read(const std::shared_ptr<Shared>& self, const std::string& uuid, How how) {
    const std::optional<double> counter = nvml->EnergyOf(uuid);
    if (!counter) return false;
    if (how == How::kSeldom) {
      Say(self, uuid, Reading{*counter, MonotonicNow()});
      return true;
    }
    std::optional<Reading> last = Reading{*counter, Instant{}};
    for (int move = 0; move <= kBurst && !Ends(); ++move) {
      last = Next(uuid, last->joules, last->at);
      if (!last) return false;
      Say(self, uuid, *last);
    }
    return true;
  }
};

Energy::Energy(boost::asio::io_context& io, std::shared_ptr<devmgr::Nvml> nvml, Accounts& accounts,
               const std::string& state_dir, OnUse on_use)
    : accounts_(accounts),
      on_use_(std::move(on_use)),
      shared_(std::make_shared<Shared>(io, std::move(nvml), state_dir + "/energy", this)) {
  static_cast<void>(mkdir(shared_->folder.c_str(), 0700));
}

Energy::~Energy() {
  std::unique_lock lock(shared_->mutex);
  shared_->io = nullptr;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kEndsWithin, [this] { return shared_->read.empty(); });
}

void Energy::Watch(const std::vector<Gpu*>& gpus) {
  std::map<std::string, Known> known;
  const std::lock_guard lock(shared_->mutex);
  std::map<std::string, Shared::How> how;
  for (Gpu* gpu : gpus) {
    if (!gpu->by_token() || gpu->throw_away) continue;
    const std::string& uuid = gpu->info.uuid;
    auto before = known_.extract(uuid);
    known[uuid] = before ? std::move(before.mapped()) : Known{};
    known[uuid].gpu = gpu;
    const auto asked = shared_->gpus.find(uuid);
    how[uuid] = asked != shared_->gpus.end() ? asked->second : Shared::How::kSeldom;
  }
  known_ = std::move(known);
  shared_->gpus = std::move(how);
  for (const auto& [uuid, how_often] : shared_->gpus) {
    if (!shared_->read.insert(uuid).second) continue;
    std::thread([shared = shared_, uuid = uuid] {
      UseReader reader;
      while (const auto how_now = shared->HowOf(uuid)) {
        // Without an answer nobody would become less eager.
        const bool answered = shared->Read(shared, uuid, *how_now);
        shared->WriteNote(uuid);
        if (auto use = reader.Read(*shared->nvml, uuid)) shared->Say(shared, uuid, std::move(*use));
        if (!answered || *how_now != Shared::How::kEagerly) shared->PauseBetween(uuid);
      }
    }).detach();
  }
}

EnergyModel::Window Energy::WindowTo(const Reading& reading, const Known& known, bool exact,
                                     const std::map<PodId, uint64_t>& held_ns,
                                     const std::vector<PodId>& gone) const {
  const Gpu& gpu = *known.gpu;
  EnergyModel::Window window{static_cast<double>(Nanos(reading.at - known.at)) / 1e9,
                             reading.joules - known.joules,
                             {},
                             0};
  if (exact) {
    window.held = HeldIn(gpu, known.at, reading.at);
    // Each end is anywhere within its two looks.
    const auto squared = [](Duration within) { return std::pow(Nanos(within) / 1e9, 2) / 12; };
    window.blur_s = std::sqrt(squared(known.within) + squared(reading.within));
    return window;
  }
  // To the moment at which this runs, which is near enough.
  const auto add = [&](PodId pod, uint64_t ns) {
    const auto before = known.held_ns.find(pod);
    const uint64_t from = before != known.held_ns.end() ? before->second : 0;
    if (ns > from) window.held[pod.value] = static_cast<double>(ns - from) / 1e9;
  };
  for (const auto& [pod, ns] : held_ns) add(pod, ns);
  for (const PodId pod : gone) add(pod, accounts_.HeldNow(gpu, pod, MonotonicNow()));
  return window;
}

void Energy::DividePending(Known& known, const Reading& reading) {
  Gpu& gpu = *known.gpu;
  const EnergyModel::Window pending = std::exchange(known.pending, {});
  const EnergyModel::Parts parts = known.model.Divide(pending);
  EnergyAccount account = accounts_.EnergyOf(gpu, PodId{});
  if (pending.seconds > 0) {
    gpu.energy.known = true;
    gpu.energy.joules += pending.joules;
    gpu.energy.idle += parts.idle;
    account.joules += pending.joules;
  }
  for (const auto& [id, part] : parts.joules) {
    const PodId pod{id};
    if (const auto on = gpu.pods.find(pod); on != gpu.pods.end()) on->second.joules += part;
    EnergyAccount of = accounts_.EnergyOf(gpu, pod);
    of.joules += part;
    of.held_ns = accounts_.HeldNow(gpu, pod, MonotonicNow());
    accounts_.SetEnergy(gpu, pod, of);
  }
  account.counter = reading.joules;
  account.at = reading.at;
  accounts_.SetEnergy(gpu, PodId{}, account);
}

// Where a former daemon left off. A pod may have departed since this one began.
void Energy::Restore(Known& known, const Reading& reading) {
  const Gpu& gpu = *known.gpu;
  std::vector<PodId> pods = accounts_.DepartedSince(gpu, gpu.energy.at);
  for (const auto& [pod, on] : gpu.pods) pods.push_back(pod);
  if (const auto bytes = ReadFile(shared_->FileOf(gpu.info.uuid), kModelMax)) {
    if (auto model = EnergyModel::FromBytes(*bytes)) known.model = std::move(*model);
  }
  for (const uint64_t pod : known.model.Pods()) {
    if (std::find(pods.begin(), pods.end(), PodId{pod}) == pods.end()) known.model.Forget(pod);
  }
  const EnergyAccount account = accounts_.EnergyOf(gpu, PodId{});
  for (const PodId pod : pods) {
    EnergyAccount of = accounts_.EnergyOf(gpu, pod);
    if (account.at == kNever) {
      of.held_ns = accounts_.HeldNow(gpu, pod, MonotonicNow());
      accounts_.SetEnergy(gpu, pod, of);
    }
    known.held_ns[pod] = of.held_ns;
  }
  known.changed = reading.at;
  if (account.at == kNever || account.at + kGapMost < reading.at) return;
  known.at = account.at;
  known.joules = account.counter;
}

void Energy::OnReading(const std::string& uuid, const UseReading& reading) const {
  if (const auto found = known_.find(uuid); found != known_.end()) {
    on_use_(*found->second.gpu, reading);
  }
}

void Energy::OnReading(const std::string& uuid, const Reading& reading) {
  const auto [joules, at, within] = reading;
  const auto found = known_.find(uuid);
  if (found == known_.end()) return;
  Known& known = found->second;
  Gpu& gpu = *known.gpu;
  if (!std::exchange(known.restored, true)) Restore(known, reading);
  const Instant now = MonotonicNow();
  std::map<PodId, uint64_t> held_ns;
  for (const auto& [pod, on] : gpu.pods) held_ns[pod] = accounts_.HeldNow(gpu, pod, now);
  const bool same = held_ns.size() == known.held_ns.size() &&
                    std::equal(held_ns.begin(), held_ns.end(), known.held_ns.begin(),
                               [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!same) known.changed = now;
  const std::vector<PodId> gone = accounts_.DepartedSince(gpu, gpu.energy.at);
  // A counter that was set back began anew with the driver.
  if (known.at != kNever && joules >= known.joules && at > known.at) {
    // What nobody holds by a token may be another's: MIG and MPS, processes without one.
    const bool exact = same && std::max(within, known.within) <= kSharp &&
                       at - known.at <= kExact && gpu.allocations.empty() && gpu.unmanaged.empty();
    const EnergyModel::Window window = WindowTo(reading, known, exact, held_ns, gone);
    known.model.Learn(window, exact);
    known.pending.seconds += window.seconds;
    known.pending.joules += window.joules;
    for (const auto& [pod, seconds] : window.held) known.pending.held[pod] += seconds;
    gpu.energy.at = now;
    // A daemon that is killed again and again learns, too.
    if (exact && now - known.noted > kNote) {
      known.noted = now;
      shared_->Note(uuid, known.model.Bytes());
    }
  }
  const bool due = now - known.changed > kYoung && known.pending.seconds >= kDivide_s;
  if (!same || !gone.empty() || gpu.pods.empty() || due) DividePending(known, reading);
  for (const auto& [pod, before] : known.held_ns) {
    if (!held_ns.contains(pod)) known.model.Forget(pod.value);
  }
  known.at = at;
  known.within = within;
  known.joules = joules;
  known.held_ns = std::move(held_ns);
  const std::lock_guard lock(shared_->mutex);
  if (const auto asked = shared_->gpus.find(uuid); asked != shared_->gpus.end()) {
    const Shared::How before = asked->second;
    asked->second = gpu.pods.empty()               ? Shared::How::kSeldom
                    : now - known.changed < kEager ? Shared::How::kEagerly
                                                   : Shared::How::kBursts;
    if (asked->second == Shared::How::kEagerly && before != asked->second) {
      shared_->hurry.insert(uuid);
      shared_->changed.notify_all();
    }
  }
}

}  // namespace baton::backend
