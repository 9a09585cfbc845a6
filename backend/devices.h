// What is done to this machine's GPUs, and seen of them, away from the event loop: a driver may
// take seconds, or hang. One thread carries out what the modes need (MIG instances, MPS's control
// daemons), one looks at the GPUs.
//
// Both threads may be lost to a driver that hangs: what waits for them is never answered then, and
// the daemon can end all the same.
#ifndef BATON_BACKEND_DEVICES_H_
#define BATON_BACKEND_DEVICES_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/inventory.h"
#include "devmgr/machine/nvml.h"
#include "devmgr/modes/mig_mode.h"
#include "devmgr/modes/sharing_mode.h"
#include "node/process.h"

namespace baton::backend {

// One virtual GPU that is to be made or taken away.
struct DeviceJob {
  std::string mode;
  devmgr::Card card;
  devmgr::DeviceDriver::Vgpu vgpu;
};

// A process that NVML lists on a GPU.
struct SeenProcess {
  pid_t pid = 0;
  uint64_t memory_bytes = 0;  // of the GPU; 0: unknown
  node::ProcessFacts facts;   // with start_time 0: the process cannot be seen from here
};
// By the uuid of the GPU: each that was looked at, with nobody on it too.
using SeenProcesses = std::map<std::string, std::vector<SeenProcess>>;

// The part of it that pods need. Answers come on the event loop, in the order of the calls.
class DeviceMaker {
 public:
  virtual ~DeviceMaker() = default;
  // All of them or none: their names, in the same order.
  virtual void Create(std::vector<DeviceJob> jobs,
                      std::function<void(Result<std::vector<std::string>>)> done) = 0;
  // kUnavailable: one is in use; those before it are gone.
  virtual void Destroy(std::vector<DeviceJob> jobs, std::function<void(Result<void>)> done) = 0;
  // An XID of before does not count against the GPU any more.
  virtual void Forgive(const std::string& card) = 0;
  // Anything else that takes long. What it returns is called on the loop.
  virtual void Run(std::function<std::function<void()>()> work) = 0;
};

// Created, asked and destroyed on the loop's thread.
class Devices : public DeviceMaker {
 public:
  struct Options {
    std::string folder;  // marks of what was made, and MPS's sockets; does not outlive a boot
    std::string node;    // what Look() is to call this machine
    Duration look_every = std::chrono::seconds(5);
  };
  // The GPUs as they are now, and who is on them; news of them first, as sentences.
  using OnLook = std::function<void(devmgr::Node node, std::vector<std::string> news,
                                    const SeenProcesses& processes)>;
  using OnNote = std::function<void(std::string)>;

  // `mig`: the mode that places instances, which is copied. `note`: something was done or seen that
  // an operator should know.
  Devices(boost::asio::io_context& io, std::shared_ptr<devmgr::Nvml> nvml, Options options,
          const devmgr::MigTemplates& templates, OnLook look, OnNote note);
  // Waits for what is under way, but not long.
  ~Devices() override;

  // Begins to look.
  void Watch();
  void Create(std::vector<DeviceJob> jobs,
              std::function<void(Result<std::vector<std::string>>)> done) override;
  void Destroy(std::vector<DeviceJob> jobs, std::function<void(Result<void>)> done) override;
  // Of each GPU all that is known there in a mode: after a start. `done`: with the devices, a list
  // for each of `cards`.
  struct CardJobs {
    std::string mode;
    devmgr::Card card;
    std::vector<devmgr::DeviceDriver::Vgpu> known;
  };
  void Reconcile(std::vector<CardJobs> cards, std::function<void(std::vector<CardJobs>)> done);
  void Forgive(const std::string& card) override;
  void Run(std::function<std::function<void()>()> work) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_DEVICES_H_
