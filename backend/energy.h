// Energy of this machine's GPUs, by pod: a thread for each GPU reads its counter, and what it read
// is divided on the event loop, which knows who held (backend/energy_model.h). It is written to the
// usage book, and what was learnt to a file: the next daemon goes on with both, and divides what
// was used in between.
//
// The same threads read who uses the GPU how much (backend/pod_use.h).
//
// A call of NVML may take milliseconds, and hang: then nothing is read any more, and the daemon can
// end all the same. Only of GPUs of NVIDIA: others are not in NVML.
#ifndef BATON_BACKEND_ENERGY_H_
#define BATON_BACKEND_ENERGY_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/accounts.h"
#include "backend/energy_model.h"
#include "backend/gpus.h"
#include "backend/pod_use.h"
#include "devmgr/machine/nvml.h"

namespace baton::backend {

// Created, asked and destroyed on the loop's thread.
class Energy {
 public:
  // Called on the loop with what was read of a GPU that is still watched.
  using OnUse = std::function<void(Gpu& gpu, const UseReading& reading)>;
  // GPUs and accounts outlive it.
  Energy(boost::asio::io_context& io, std::shared_ptr<devmgr::Nvml> nvml, Accounts& accounts,
         const std::string& state_dir, OnUse on_use);
  // Waits for what is under way, but not long.
  ~Energy();
  Energy(const Energy&) = delete;
  Energy& operator=(const Energy&) = delete;

  // These are read from now on, and no others.
  void Watch(const std::vector<Gpu*>& gpus);

 private:
  struct Shared;
  struct Reading {
    double joules = 0;
    Instant at{};  // when the counter came to that, about
    // `at` may be off by half of this; the counter may be older where it was not seen moving.
    Duration within = Duration::max();
  };
  // What was known at the last reading.
  struct Known {
    Gpu* gpu = nullptr;
    bool restored = false;  // from the usage book, as far as that knows
    EnergyModel model;
    // What was read and is not divided yet: soon it is known better who took it.
    EnergyModel::Window pending;
    Instant at = kNever;
    Duration within = Duration::max();
    double joules = 0;
    std::map<PodId, uint64_t> held_ns;
    Instant changed{};  // its pods, last
    Instant noted{};    // what was learnt
  };
  void OnReading(const std::string& uuid, const Reading& reading);
  void OnReading(const std::string& uuid, const UseReading& reading) const;
  void Restore(Known& known, const Reading& reading);
  // The window from the last reading to this one; `gone`: pods that have departed in it.
  EnergyModel::Window WindowTo(const Reading& reading, const Known& known, bool exact,
                               const std::map<PodId, uint64_t>& held_ns,
                               const std::vector<PodId>& gone) const;
  void DividePending(Known& known, const Reading& reading);

  Accounts& accounts_;
  const OnUse on_use_;
  std::map<std::string, Known> known_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ENERGY_H_
