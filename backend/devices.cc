#include "backend/devices.h"

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "devmgr/machine/device_marks.h"
#include "devmgr/machine/mig_driver.h"
#include "devmgr/machine/mps_control.h"
#include "devmgr/machine/mps_driver.h"
#include "spec/modes.h"

namespace baton::backend {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);

devmgr::ProcessMpsControl::Options MpsOptions(const std::string& folder) {
  devmgr::ProcessMpsControl::Options options;
  options.folder = folder + "/mps";
  return options;
}

}  // namespace

// Outlives Devices where a thread does.
struct Devices::Shared {
  Shared(boost::asio::io_context& loop, std::shared_ptr<devmgr::Nvml> library, Options given,
         const devmgr::MigTemplates& mig_templates, OnLook on_look, OnNote on_note)
      : io(&loop),
        look(std::move(on_look)),
        note(std::move(on_note)),
        nvml(std::move(library)),
        options(std::move(given)),
        templates(mig_templates),
        mig_marks(options.folder + "/mig-marks"),
        mps_marks(options.folder + "/mps-marks"),
        mps_control(MpsOptions(options.folder)) {}

  std::mutex mutex;  // for these:
  std::condition_variable changed;
  boost::asio::io_context* io;  // null: the daemon ends
  std::deque<std::function<void(Shared&)>> work;
  int running = 0;  // threads
  bool watching = false;
  bool keeping = false;  // KeepMps() waits for its turn, or has it
  uint64_t shapes = 0;   // how often instances were made or taken away

  const OnLook look;  // called on the loop only
  const OnNote note;
  const std::shared_ptr<devmgr::Nvml> nvml;
  const Options options;
  const devmgr::MigTemplates templates;
  const devmgr::MigMode mig{templates};
  devmgr::FileMarks mig_marks, mps_marks;
  devmgr::ProcessMpsControl mps_control;
  devmgr::MigDriver mig_driver{*nvml, mig_marks, mig};
  devmgr::MpsDriver mps_driver{mps_control, mps_marks};

  devmgr::DeviceDriver* DriverOf(const std::string& mode) {
    if (mode == spec::kMig) return &mig_driver;
    if (mode == spec::kMps) return &mps_driver;
    return nullptr;
  }
  // Runs it on the loop, unless that has ended.
  void Post(std::function<void()> done) {
    const std::lock_guard lock(mutex);
    if (io != nullptr) boost::asio::post(*io, std::move(done));
  }
  bool Ends() {
    const std::lock_guard lock(mutex);
    return io == nullptr;
  }
  void Pause(Duration time) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, time, [this] { return io == nullptr; });
  }
  // Tells what is there, unless it has been changed from here meanwhile.
  void Look(std::vector<std::string> news) {
    uint64_t before = 0;
    {
      const std::lock_guard lock(mutex);
      before = shapes;
    }
    auto node = nvml->Look(options.node);
    if (!node) return;
    SeenProcesses processes = ProcessesOn(*node);
    const std::lock_guard lock(mutex);
    if (io == nullptr || before != shapes) return;
    boost::asio::post(*io, [look = look, node = std::move(*node), news = std::move(news),
                            processes = std::move(processes)]() mutable {
      look(std::move(node), std::move(news), processes);
    });
  }
  SeenProcesses ProcessesOn(const devmgr::Node& node) {
    SeenProcesses seen;
    for (const devmgr::Card& card : node.cards) {
      std::vector<SeenProcess>& on = seen[card.uuid];
      for (const devmgr::Nvml::Process& process : nvml->Processes(card.uuid)) {
        auto facts = node::FactsOf(process.pid);
        on.push_back(
            {process.pid, process.memory_bytes, facts ? std::move(*facts) : node::ProcessFacts{}});
      }
    }
    return seen;
  }
  // In its turn: a daemon of MPS that has ended by itself is started again.
  void KeepMps() {
    const std::lock_guard lock(mutex);
    if (io == nullptr || std::exchange(keeping, true)) return;
    work.emplace_back([](Shared& shared) {
      for (const std::string& sentence : shared.mps_driver.Keep()) {
        shared.Post([note = shared.note, sentence] { note(sentence); });
      }
      const std::lock_guard done(shared.mutex);
      shared.keeping = false;
    });
    changed.notify_all();
  }
  // After instances were made or taken away: places are as they are, before anybody is answered.
  void Reshaped() {
    {
      const std::lock_guard lock(mutex);
      ++shapes;
    }
    Look({});
  }
};

Devices::Devices(boost::asio::io_context& io, std::shared_ptr<devmgr::Nvml> nvml, Options options,
                 const devmgr::MigTemplates& templates, OnLook look, OnNote note)
    : shared_(std::make_shared<Shared>(io, std::move(nvml), std::move(options), templates,
                                       std::move(look), std::move(note))) {
  shared_->running = 1;
  std::thread([shared = shared_] {
    for (;;) {
      std::function<void(Shared&)> next;
      {
        std::unique_lock lock(shared->mutex);
        shared->changed.wait(lock, [&] { return !shared->work.empty() || shared->io == nullptr; });
        if (shared->io == nullptr) break;
        next = std::move(shared->work.front());
        shared->work.pop_front();
      }
      next(*shared);
    }
    const std::lock_guard lock(shared->mutex);
    --shared->running;
    shared->changed.notify_all();
  }).detach();
}

Devices::~Devices() {
  std::unique_lock lock(shared_->mutex);
  shared_->io = nullptr;
  shared_->work.clear();
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kPatience, [this] { return shared_->running == 0; });
}

void Devices::Watch() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->watching, true)) return;
    ++shared_->running;
  }
  std::thread([shared = shared_] {
    bool events = true;
    while (!shared->Ends()) {
      std::vector<std::string> news;
      const Instant begin = MonotonicNow();
      // In short waits, so that the end does not take long.
      while (events && !shared->Ends() && MonotonicNow() - begin < shared->options.look_every) {
        auto told = shared->nvml->Wait(std::chrono::milliseconds(200));
        if (!told) {
          events = false;
        } else if (*told) {
          if ((*told)->xid != 0) news.push_back((*told)->uuid + ": " + (*told)->what);
          if ((*told)->fails) break;
        }
      }
      if (!events) shared->Pause(shared->options.look_every);
      events = true;
      if (shared->Ends()) break;
      shared->Look(std::move(news));
      shared->KeepMps();
    }
    const std::lock_guard lock(shared->mutex);
    --shared->running;
    shared->changed.notify_all();
  }).detach();
}

void Devices::Create(std::vector<DeviceJob> jobs,
                     std::function<void(Result<std::vector<std::string>>)> done) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.emplace_back([jobs = std::move(jobs), done = std::move(done)](Shared& shared) {
    std::vector<std::string> devices;
    std::optional<Error> error;
    bool reshaped = false;
    for (const DeviceJob& job : jobs) {
      devmgr::DeviceDriver* driver = shared.DriverOf(job.mode);
      if (driver == nullptr) {
        devices.emplace_back();
        continue;
      }
      reshaped |= job.mode == spec::kMig;
      auto made = driver->Create(job.card, job.vgpu);
      if (!made) {
        error = made.error();
        break;
      }
      devices.push_back(std::move(*made));
    }
    for (size_t i = 0; error && i < devices.size(); ++i) {
      devmgr::DeviceDriver* driver = shared.DriverOf(jobs[i].mode);
      if (driver != nullptr) static_cast<void>(driver->Destroy(jobs[i].card, jobs[i].vgpu));
    }
    if (reshaped) shared.Reshaped();
    shared.Post([done, error, devices = std::move(devices)]() mutable {
      if (error) return done(tl::unexpected(*error));
      done(std::move(devices));
    });
  });
  shared_->changed.notify_all();
}

void Devices::Destroy(std::vector<DeviceJob> jobs, std::function<void(Result<void>)> done) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.emplace_back([jobs = std::move(jobs), done = std::move(done)](Shared& shared) {
    std::optional<Error> error;
    bool reshaped = false;
    for (const DeviceJob& job : jobs) {
      devmgr::DeviceDriver* driver = shared.DriverOf(job.mode);
      if (driver == nullptr || error) continue;
      reshaped |= job.mode == spec::kMig;
      if (auto gone = driver->Destroy(job.card, job.vgpu); !gone) error = gone.error();
    }
    if (reshaped) shared.Reshaped();
    shared.Post([done, error] {
      if (error) return done(tl::unexpected(*error));
      done({});
    });
  });
  shared_->changed.notify_all();
}

void Devices::Reconcile(std::vector<CardJobs> cards,
                        std::function<void(std::vector<CardJobs>)> done) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.emplace_back(
      [cards = std::move(cards), done = std::move(done)](Shared& shared) mutable {
        bool reshaped = false;
        for (CardJobs& card : cards) {
          devmgr::DeviceDriver* driver = shared.DriverOf(card.mode);
          if (driver == nullptr) continue;
          const auto notes = driver->Reconcile(card.card, card.known);
          reshaped |= card.mode == spec::kMig;
          std::vector<std::string> sentences;
          if (notes) {
            sentences = *notes;
          } else {
            sentences.push_back(card.card.uuid + ": " + notes.error().message);
          }
          for (std::string& sentence : sentences) {
            shared.Post([note = shared.note, sentence = std::move(sentence)] { note(sentence); });
          }
        }
        if (reshaped) shared.Reshaped();
        shared.Post([done, cards = std::move(cards)]() mutable { done(std::move(cards)); });
      });
  shared_->changed.notify_all();
}

void Devices::Forgive(const std::string& card) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.emplace_back([card](Shared& shared) {
    shared.nvml->ForgetXid(card);
    shared.Look({});
  });
  shared_->changed.notify_all();
}

void Devices::Run(std::function<std::function<void()>()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.emplace_back([work = std::move(work)](Shared& shared) { shared.Post(work()); });
  shared_->changed.notify_all();
}

}  // namespace baton::backend
