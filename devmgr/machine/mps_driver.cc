#include "devmgr/machine/mps_driver.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "devmgr/modes/mps_mode.h"

namespace baton::devmgr {
namespace {

// What a mark says: the percentage, and the memory in MiB, 0 for no limit.
std::string MarkOf(const Fit& fit) {
  return std::to_string(policy::RoundedUp(fit.share, MpsMode::kGrain) / MpsMode::kGrain) + " " +
         std::to_string(fit.memory_mib);
}

}  // namespace

// Lines of digits; whatever else is said is not a pid.
Result<std::vector<std::string>> MpsDriver::Pids(const std::string& card,
                                                 const std::string& command) {
  const auto answer = control_.Tell(card, command);
  if (!answer) return tl::unexpected<Error>(answer.error());
  std::vector<std::string> pids;
  std::istringstream words(*answer);
  for (std::string word; words >> word;) {
    if (word.size() <= 10 &&
        std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      pids.push_back(word);
    }
  }
  return pids;
}

Result<void> MpsDriver::Limit(const Card& card, const Marks& marks) {
  uint32_t percent = 1, memory_mib = 0;
  bool unlimited = false;
  for (const auto& [id, mark] : marks) {
    uint32_t its_percent = 100, its_memory = 0;
    std::istringstream(mark) >> its_percent >> its_memory;
    percent = std::max(percent, std::min(its_percent, 100u));
    memory_mib = std::max(memory_mib, its_memory);
    unlimited |= its_memory == 0;
  }
  if (unlimited || memory_mib > card.memory_mib) memory_mib = card.memory_mib;
  // By uuid: numbers may count otherwise for the daemon, which sees one GPU only.
  const std::string limit = card.uuid + " " + std::to_string(memory_mib) + "M";
  const auto tell = [&](const std::string& command) -> Result<void> {
    const auto answer = control_.Tell(card.uuid, command);
    if (!answer) return tl::unexpected<Error>(answer.error());
    return {};
  };
  // The defaults are for servers that are not there yet; one that is there is told by itself.
  auto told = tell("set_default_active_thread_percentage " + std::to_string(percent));
  if (told) told = tell("set_default_device_pinned_mem_limit " + limit);
  if (!told) return told;
  const auto servers = Pids(card.uuid, "get_server_list");
  if (!servers) return tl::unexpected<Error>(servers.error());
  for (const std::string& pid : *servers) {
    told = tell("set_active_thread_percentage " + pid + " " + std::to_string(percent));
    if (told) told = tell("set_device_pinned_mem_limit " + pid + " " + limit);
    // It may have ended meanwhile.
    if (!told && told.error().code != ErrorCode::kInvalid) return told;
  }
  return {};
}

Result<bool> MpsDriver::Serve(const Card& card, const Marks& marks) {
  // Once more where it ended while it was told.
  for (int tries = 0;; ++tries) {
    const auto running = control_.Running(card.uuid);
    if (!running) return tl::unexpected<Error>(running.error());
    if (!*running) {
      if (const auto started = control_.Start(card.uuid); !started) {
        return tl::unexpected<Error>(started.error());
      }
    }
    const auto limited = Limit(card, marks);
    if (limited) {
      served_[card.uuid] = card;
      return !*running;
    }
    if (tries > 0 || limited.error().code != ErrorCode::kUnavailable) {
      return tl::unexpected<Error>(limited.error());
    }
  }
}

Result<bool> MpsDriver::End(const std::string& card) {
  const auto running = control_.Running(card);
  if (!running) return tl::unexpected<Error>(running.error());
  if (*running) {
    const auto servers = Pids(card, "get_server_list");
    if (!servers) return tl::unexpected<Error>(servers.error());
    for (const std::string& server : *servers) {
      const auto clients = Pids(card, "get_client_list " + server);
      if (!clients) {
        if (clients.error().code == ErrorCode::kInvalid) continue;  // it has ended meanwhile
        return tl::unexpected<Error>(clients.error());
      }
      if (!clients->empty()) {
        return Fail(ErrorCode::kUnavailable, "process " + clients->front() + " still uses MPS on " +
                                                 card + ", so its control daemon stays");
      }
    }
  }
  if (const auto stopped = control_.Stop(card); !stopped) {
    return tl::unexpected<Error>(stopped.error());
  }
  served_.erase(card);
  return *running;
}

Result<std::string> MpsDriver::Create(const Card& card, const Vgpu& vgpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto put = marks_.Put(card.uuid, vgpu.id, MarkOf(vgpu.fit)); !put) {
    return tl::unexpected<Error>(put.error());
  }
  auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  const auto served = Serve(card, *marks);
  if (served) return control_.PipeDirectory(card.uuid);
  // Nothing is left behind where that can be helped.
  if (marks_.Remove(card.uuid, vgpu.id) && marks->size() == 1) {
    static_cast<void>(End(card.uuid));
  }
  return tl::unexpected<Error>(served.error());
}

Result<void> MpsDriver::Destroy(const Card& card, const Vgpu& vgpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (auto removed = marks_.Remove(card.uuid, vgpu.id); !removed) return removed;
  const auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  if (marks->empty()) {
    const auto ended = End(card.uuid);
    if (!ended) return tl::unexpected<Error>(ended.error());
    return {};
  }
  // What is allowed may be less now. If that cannot be said, the next one says it.
  static_cast<void>(Limit(card, *marks));
  return {};
}

Result<std::vector<std::string>> MpsDriver::Reconcile(const Card& card, std::vector<Vgpu>& known) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  std::vector<std::string> done;
  std::set<std::string> ids;
  for (const Vgpu& vgpu : known) {
    ids.insert(vgpu.id);
    const std::string text = MarkOf(vgpu.fit);
    const auto mark = marks->find(vgpu.id);
    if (mark != marks->end() && mark->second == text) continue;
    if (const auto put = marks_.Put(card.uuid, vgpu.id, text); !put) {
      return tl::unexpected<Error>(put.error());
    }
  }
  for (const auto& [id, mark] : *marks) {
    if (ids.count(id) != 0) continue;
    if (const auto removed = marks_.Remove(card.uuid, id); !removed) {
      return tl::unexpected<Error>(removed.error());
    }
    done.push_back("virtual GPU " + id + " of MPS on " + card.uuid + " is not known any more");
  }
  if (known.empty()) {
    const auto ended = End(card.uuid);
    if (!ended) {
      done.push_back("the MPS control daemon of " + card.uuid +
                     ", which no virtual GPU needs, stays for now: " + ended.error().message);
    } else if (*ended) {
      done.push_back("ended the MPS control daemon of " + card.uuid +
                     ", which no virtual GPU needs");
    }
    return done;
  }
  marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  const auto served = Serve(card, *marks);
  for (Vgpu& vgpu : known) vgpu.device = served ? control_.PipeDirectory(card.uuid) : "";
  if (!served) {
    done.push_back("there is no MPS on " + card.uuid + ": " + served.error().message);
  } else if (*served) {
    done.push_back("started the MPS control daemon of " + card.uuid + " again");
  }
  return done;
}

std::vector<std::string> MpsDriver::Keep() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> done;
  const auto served = served_;
  for (const auto& [uuid, card] : served) {
    const auto running = control_.Running(uuid);
    if (!running || *running) continue;
    const auto marks = marks_.Of(uuid);
    if (!marks || marks->empty()) continue;
    if (const auto again = Serve(card, *marks); !again) {
      done.push_back("the MPS control daemon of " + uuid +
                     " has ended, and cannot be started: " + again.error().message);
    } else if (*again) {
      done.push_back("started the MPS control daemon of " + uuid + " again, which had ended");
    }
  }
  return done;
}

}  // namespace baton::devmgr
