#include "backend/daemon.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "backend/lease_requests.h"
#include "backend/local_gpus.h"
#include "backend/users.h"
#include "base/file.h"
#include "node/gpu_lock.h"
#include "node/notify.h"
#include "node/process.h"

namespace baton::backend {
namespace {

constexpr size_t kTemplatesMax = 1 << 20;

}  // namespace

Daemon::Daemon(config::Options options, std::string config_path)
    : options_(std::move(options)),
      config_path_(std::move(config_path)),
      started_(fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time(nullptr)))),
      nvml_(devmgr::Nvml::Load()),
      node_list_(options_.zmq.nodes_file) {}

Daemon::~Daemon() = default;

Result<void> Daemon::TakeLocks() {
  const std::string& dir = options_.server.state_dir;
  if (auto made = MakeFolders(dir, 0700); !made) {
    return Fail(made.error().code, made.error().message + "; set server.state_dir");
  }
  // Two daemons over one state would each undo the other's books.
  UniqueFd state(open((dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (state && flock(state.get(), LOCK_EX | LOCK_NB) != 0) {
    return Fail(ErrorCode::kExists,
                "another batond uses " + dir + "; stop it, or choose another server.state_dir");
  }
  std::map<std::string, UniqueFd> gpus;
  if (ManagesLocalGpus(options_)) {
    for (const devmgr::GpuInfo& gpu : LocalGpus(options_, *nvml_)) {
      auto lock = node::LockGpu(options_.server.lock_dir, gpu.uuid);
      if (!lock) return tl::unexpected(lock.error());
      gpus.emplace(gpu.uuid, std::move(*lock));
    }
  }
  state_lock_ = std::move(state);
  gpu_locks_ = std::move(gpus);
  locked_ = true;
  return {};
}

Result<void> Daemon::Start() {
  if (!locked_) {
    if (auto taken = TakeLocks(); !taken) return taken;
  }
  if (auto read = ReadState(); !read) return read;
  if (auto started = StartDevices(); !started) return started;
  arbiter_.emplace(io_, options_, *file_, *vgpus_, usage_, log_);
  for (const std::string& trouble : troubles_) arbiter_->AddTrouble(trouble);
  if (auto read = arbiter_->ReadOwners(); !read) return read;
  arbiter_->lifecycle().SetDeviceMaker(&*devices_);
  StartKernelCaps();
  if (options_.ledger.database != "none") {
    books_.emplace(io_, options_, *arbiter_, usage_.identity(), log_);
    if (auto read = books_->ReadTeams(); !read) return read;
  }
  leases_.emplace(io_, options_, *arbiter_, *file_);
  control_.emplace(io_, *arbiter_, *leases_, log_, books_ ? &*books_ : nullptr, options_.users,
                   options_.flavors, [this] { return Status(); });

  if (auto made = MakeFolders(options_.server.socket_dir, 0755); !made) return made;
  tenants_.emplace(io_, static_cast<node::TenantSink&>(*this), *nvml_, node::LimitsOf(options_));
  control_socket_.emplace(io_,
                          [this](const std::string& line, const node::ControlSocket::Peer& peer,
                                 const node::ControlSocket::Respond& respond) {
                            control_->Handle(line, {.peer = peer}, respond);
                          });
  control_socket_->Speak({LeaseCommand, LeaseResponse});
  const std::string& control_dir = config::ControlDir(options_);
  if (auto made = MakeFolders(control_dir, 0700); !made) return made;
  if (auto ok = control_socket_->Listen(control_dir + "/control.sock"); !ok) return ok;
  if (auto ok = ListenToUsers(control_dir); !ok) return ok;
  if (auto added = AddLocalGpus(); !added) return added;
  AdoptMissing();
  if (ManagesLocalGpus(options_)) {
    ReconcileDevices();
    energy_.emplace(io_, nvml_, arbiter_->accounts(), options_.server.state_dir,
                    [this](Gpu& gpu, const UseReading& reading) {
                      AddUse(reading, arbiter_->pods(), arbiter_->accounts(), gpu, MonotonicNow());
                    });
    energy_->Watch(arbiter_->GpusOf(""));
    devices_->Watch();
  }
  if (books_) {
    if (auto ok = books_->Start(); !ok) return ok;
  }
  control_->ApplyConfiguredPods(options_.pods);
  leases_->Restore();
  if (auto ok = tenants_->Listen(options_.server.socket_dir + "/baton.sock",
                                 control_dir + "/baton.sock.lock");
      !ok) {
    return ok;
  }
  if (!options_.zmq.listen.empty()) {
    nodes_.emplace(io_, options_, *arbiter_, *control_, books_ ? &*books_ : nullptr, log_);
    if (auto ok = nodes_->Listen(); !ok) return ok;
  }
  if (books_) {
    books_->OnTeams([this] {
      if (nodes_) nodes_->TellTeams();
    });
    books_->OnBooked([this] {
      if (upstream_) upstream_->Booked();
      if (web_) web_->Booked();
    });
  }
  web_.emplace(io_, options_, *arbiter_, books_ ? &*books_ : nullptr, *nvml_, log_,
               [this] { return Status(); });
  if (auto ok = web_->Start(); !ok) {
    // Nobody's GPU depends on it.
    web_trouble_ = "no web page, API and /metrics: " + ok.error().message;
    log_.Add(node::EventLog::Level::kWarning, "http", web_trouble_);
  }
  if (!options_.upstream.connect.empty()) {
    upstream_.emplace(io_, options_, usage_.identity(), *books_, log_);
    if (auto ok = upstream_->Start(); !ok) return ok;
  }
  node_list_.Configure(options_.zmq.nodes);
  Look();
  signals_.Await([this](int signal) { signal == SIGHUP ? Reload() : Stop(); });
  std::string where = options_.server.socket_dir;
  for (const std::string& more : {options_.zmq.listen, web_->url()}) {
    if (!more.empty()) where += " and " + more;
  }
  log_.Add(node::EventLog::Level::kInfo, "daemon",
           fmt::format("batond {} serves {}{}", BATON_VERSION, where,
                       options_.server.mode == config::Mode::kObserve ? ", observing only" : ""));
  node::Notify("READY=1");
  return {};
}

Result<void> Daemon::ReadState() {
  const std::string& dir = options_.server.state_dir;
  file_.emplace(std::make_shared<PodsFolder>(dir), pods_, log_);
  auto found = file_->Load();
  if (!found) return tl::unexpected(found.error());
  for (std::string& trouble : found->troubles) troubles_.push_back(std::move(trouble));
  auto opened = usage_.Open(dir + "/usage", node::BootId());
  if (!opened) return tl::unexpected(opened.error());
  // Where it cannot be written the book itself says so.
  if (!opened->empty() && usage_.degraded().empty()) troubles_.push_back(*opened);
  if (!opened->empty() && !usage_.degraded().empty()) {
    log_.Add(node::EventLog::Level::kWarning, "daemon", *opened);
  }
  for (const std::string& trouble : troubles_) {
    log_.Add(node::EventLog::Level::kWarning, "daemon", trouble);
  }
  // Whatever became of the pods' files: no pod is given the account of another, here or in the
  // ledger.
  pods_.StartAbove(usage_.LargestPod());
  if (!found->known) usage_.ChangeIdentity();
  return {};
}

Result<void> Daemon::StartDevices() {
  devmgr::MigTemplates templates = devmgr::MigTemplates::BuiltIn();
  if (const std::string& file = options_.placement.mig_templates; !file.empty()) {
    const auto text = ReadFile(file, kTemplatesMax);
    if (!text) {
      return Fail(text.error().code, "placement.mig_templates: " + text.error().message);
    }
    auto read = templates.With(*text, file);
    if (!read) return tl::unexpected(read.error());
    templates = std::move(*read);
  }
  // On a central batond a node may have this machine's name.
  const std::string here =
      config::NodeName(options_) + (options_.zmq.listen.empty() ? "" : " (batond)");
  devices_.emplace(
      io_, nvml_, Devices::Options{options_.server.socket_dir, here}, templates,
      [this](devmgr::Node node, const std::vector<std::string>& news,
             const SeenProcesses& processes) { OnLook(std::move(node), news, processes); },
      [this](std::string note) { log_.Add(node::EventLog::Level::kInfo, "gpu", std::move(note)); });
  vgpus_.emplace(options_.placement.policy, options_.overcommit, std::move(templates), here);
  vgpus_->cards().SetReserve(options_.memory_reserve_mib);
  return {};
}

void Daemon::StartKernelCaps() {
  const std::string& root = options_.kernel_caps.cgroup_root;
  std::string why;
  if (!nvml_->available()) {
    why = nvml_->why();
  } else if (!nvml_->CapsMemory()) {
    why = "the NVIDIA driver is older than release 615";
  } else if (access((root + "/cgroup.controllers").c_str(), F_OK) != 0) {
    why = "no cgroups (v2) are mounted at " + root + " ([memory] cgroup_root)";
  }
  arbiter_->kernel_caps().Start(
      *devices_,
      [nvml = nvml_](const std::string& gpu, const std::string& folder, uint64_t bytes) {
        return nvml->CapMemory(gpu, folder, bytes);
      },
      std::move(why));
}

Result<void> Daemon::AddLocalGpus() {
  if (!ManagesLocalGpus(options_)) return {};
  const std::vector<devmgr::GpuInfo> gpus = LocalGpus(options_, *nvml_);
  if (gpus.empty()) {
    log_.Add(node::EventLog::Level::kWarning, "gpu",
             fmt::format("no GPU was found ({}); list them as [[gpu]] in the configuration, or "
                         "check the driver",
                         nvml_->available() ? "NVML lists none" : nvml_->why()));
  }
  // All that is known of them first: whether MIG is on decides what a pod can have.
  if (auto node = nvml_->Look("")) {
    std::erase_if(node->cards, [&](const devmgr::Card& card) {
      return std::none_of(gpus.begin(), gpus.end(),
                          [&](const devmgr::GpuInfo& gpu) { return gpu.uuid == card.uuid; });
    });
    SetCards(std::move(node->cards));
  }
  for (const devmgr::GpuInfo& gpu : gpus) {
    if (arbiter_->gpus().count(gpu.uuid) != 0) continue;  // after a reload
    if (gpu_locks_.count(gpu.uuid) == 0) {
      auto lock = node::LockGpu(options_.server.lock_dir, gpu.uuid);
      if (!lock) return tl::unexpected(lock.error());
      gpu_locks_.emplace(gpu.uuid, std::move(*lock));
    }
    auto added = arbiter_->AddGpu(gpu, "");
    if (added) continue;
    gpu_locks_.erase(gpu.uuid);
    if (added.error().code != ErrorCode::kExhausted) return added;
    log_.Add(node::EventLog::Level::kWarning, "gpu", added.error().message);
  }
  return {};
}

// What NVML sees of this machine's GPUs now.
void Daemon::OnLook(devmgr::Node node, const std::vector<std::string>& news,
                    const SeenProcesses& processes) {
  for (const std::string& text : news) log_.Add(node::EventLog::Level::kWarning, "gpu", text);
  if (!ManagesLocalGpus(options_)) return;
  std::vector<devmgr::Card> cards;
  for (devmgr::Card& card : node.cards) {
    if (arbiter_->gpus().count(card.uuid) == 0) {
      if (NamesNvidias(options_)) continue;  // the configuration says which are ours
      // It has come since.
      auto lock = node::LockGpu(options_.server.lock_dir, card.uuid);
      if (!lock) continue;
      if (!arbiter_->AddGpu({card.uuid, card.model, uint64_t{card.memory_mib} << 20}, "")) continue;
      gpu_locks_.emplace(card.uuid, std::move(*lock));
    }
    cards.push_back(std::move(card));
  }
  SetCards(std::move(cards));
  arbiter_->SetProcesses(processes);
  energy_->Watch(arbiter_->GpusOf(""));
}

// What NVML says of this machine's GPUs. Of those that only the configuration knows it says
// nothing, and they stay as they are.
void Daemon::SetCards(std::vector<devmgr::Card> cards) {
  for (const devmgr::Card& card : cards) seen_.insert(card.uuid);
  for (const devmgr::Card& card : vgpus_->cards().Of("")) {
    if (seen_.count(card.uuid) == 0) cards.push_back(card);
  }
  if (!cards.empty() || !seen_.empty()) arbiter_->SetCards("", std::move(cards));
}

// MIG instances and MPS daemons are as the pods need them, and nothing of ours is left over.
void Daemon::ReconcileDevices() {
  std::vector<Devices::CardJobs> cards;
  for (const devmgr::Card& card : vgpus_->cards().Of("")) {
    for (const spec::Mode& mode : spec::kModes) {
      if (mode.by_token) continue;
      cards.push_back({std::string(mode.name), card, {}});
      for (const auto& [id, pod] : pods_.all()) {
        for (size_t i = 0; i < pod.gpus.size() && pod.mode == mode.name; ++i) {
          if (pod.gpus[i] == card.uuid) cards.back().known.push_back(vgpus_->ForDriver(pod, i));
        }
      }
      if (mode.name == spec::kMig && !card.mig_enabled) cards.pop_back();
    }
  }
  devices_->Reconcile(std::move(cards), [this](const std::vector<Devices::CardJobs>& done) {
    for (const Devices::CardJobs& card : done) {
      for (const auto& vgpu : card.known) {
        // "pod index", as Vgpus::ForDriver() has it.
        const size_t space = vgpu.id.rfind(' ');
        arbiter_->lifecycle().SetDevices(vgpu.id.substr(0, space),
                                         std::stoul(vgpu.id.substr(space + 1)), vgpu.device);
      }
    }
  });
}

// Holders of before this daemon started: found and watched, or gone.
void Daemon::AdoptMissing() {
  for (const Sessions::Missing& missing : arbiter_->sessions().MissingOn("")) {
    auto number = tenants_->Adopt(static_cast<pid_t>(missing.pid), missing.start_time,
                                  missing.incarnation, missing.gpus);
    if (number) {
      clients_[*number] = missing.client;
      arbiter_->sessions().Bind(missing.client, *this, *number);
    } else {
      arbiter_->sessions().Down(missing.client, wire::DownReason::kExited);
    }
  }
}

void Daemon::Run() {
  io_.run();
  if (arbiter_) arbiter_->Store();
}

void Daemon::Stop() {
  node::Notify("STOPPING=1");
  spdlog::info("daemon: stopping");
  arbiter_->Store();
  if (books_) books_->Stop();
  if (control_socket_) control_socket_->Stop();
  if (users_socket_) users_socket_->Stop();
  if (tenants_) tenants_->Stop();
  if (nodes_) nodes_->Stop();
  if (upstream_) upstream_->Stop();
  if (web_) web_->Stop();
  look_.cancel();
  signals_.Stop();
  io_.stop();
}

void Daemon::Reload() {
  if (config_path_.empty()) {
    log_.Add(node::EventLog::Level::kInfo, "daemon", "no configuration file to reload");
    return;
  }
  node::NotifyReloading();
  auto fresh = config::LoadOptions(config_path_);
  if (!fresh) {
    log_.Add(node::EventLog::Level::kWarning, "daemon",
             fresh.error().message + "; the configuration is unchanged");
    node::Notify("READY=1");
    return;
  }
  options_.server.log_level = fresh->server.log_level;
  options_.gpus = fresh->gpus;
  options_.pods = fresh->pods;
  options_.flavors = fresh->flavors;
  node_list_.Configure(fresh->zmq.nodes);
  options_.zmq.nodes = fresh->zmq.nodes = node_list_.All();
  node::SetLogLevel(options_.server.log_level);
  if (books_) {
    if (auto read = books_->ReadTeams(); !read) {
      log_.Add(node::EventLog::Level::kWarning, "team",
               read.error().message + "; the teams are unchanged");
    }
  }
  if (auto added = AddLocalGpus(); !added) {
    log_.Add(node::EventLog::Level::kWarning, "gpu", added.error().message);
  }
  AdoptMissing();  // who held a GPU that is new in the file
  control_->ApplyConfiguredPods(options_.pods);
  if (books_) books_->RecordSettings();
  if (nodes_) nodes_->NodesChanged();
  const bool restart = config::PrintOptions(options_) != config::PrintOptions(*fresh);
  log_.Add(
      node::EventLog::Level::kInfo, "daemon",
      restart ? "configuration reloaded; some changes need a restart" : "configuration reloaded");
  node::Notify("READY=1");
}

std::string Daemon::FoldersTrouble() const {
  std::string text;
  const auto say = [&](std::string trouble) {
    text += (text.empty() ? "" : "; ") + std::move(trouble);
  };
  const std::string& dir = options_.server.state_dir;
  struct stat ours = {}, there = {};
  if (fstat(state_lock_.get(), &ours) != 0 || stat((dir + "/lock").c_str(), &there) != 0 ||
      ours.st_ino != there.st_ino || ours.st_dev != there.st_dev) {
    say(
        fmt::format("the files in state_dir {} were deleted or replaced: what is saved is lost "
                    "with the next restart",
                    dir));
  }
  const std::string socket = options_.server.socket_dir + "/baton.sock";
  if (stat(socket.c_str(), &there) != 0 || !S_ISSOCK(there.st_mode)) {
    say(fmt::format("{} was deleted: no more processes can attach until batond restarts", socket));
  }
  return text;
}

Result<void> Daemon::ListenToUsers(const std::string& control_dir) {
  const std::string& allow = options_.users.allow;
  if (allow == "nobody") return {};
  std::optional<uint32_t> group;
  if (allow != "everybody") {
    auto found = LookUpGroup(allow);
    if (!found) return tl::unexpected(found.error());
    group = *found;
  }
  users_socket_.emplace(io_, [this](const std::string& line, const node::ControlSocket::Peer& peer,
                                    const node::ControlSocket::Respond& respond) {
    control_->HandleOfUser(line, peer.uid, respond);
  });
  users_socket_->Speak({LeaseCommand, LeaseResponse});
  return users_socket_->ListenToUsers(options_.server.socket_dir + "/user.sock", group,
                                      control_dir + "/user.sock.lock");
}

void Daemon::Look() {
  auto changed = node_list_.Look();
  const std::string wrong = changed ? "" : changed.error().message;
  if (!wrong.empty() && wrong != nodes_trouble_) {
    log_.Add(node::EventLog::Level::kWarning, "node",
             wrong + "; the nodes that may connect are unchanged");
  }
  nodes_trouble_ = wrong;
  if (changed && *changed) {
    options_.zmq.nodes = node_list_.All();
    if (nodes_) nodes_->NodesChanged();
  }
  if (looks_++ % 5 == 0) {
    const std::string trouble = FoldersTrouble();
    if (!trouble.empty() && trouble != folders_trouble_) {
      log_.Add(node::EventLog::Level::kWarning, "daemon", trouble);
    }
    folders_trouble_ = trouble;
  }
  look_.expires_after(std::chrono::seconds(1));
  look_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Look();
  });
}

DaemonStatus Daemon::Status() const {
  DaemonStatus status;
  status.version = BATON_VERSION;
  status.started = started_;
  status.mode = options_.server.mode;
  status.page = options_.page;
  status.degraded = arbiter_->Degraded();
  for (std::string trouble : {tenants_->Trouble(), arbiter_->sessions().Trouble()}) {
    if (!trouble.empty()) status.degraded.push_back(std::move(trouble));
  }
  if (books_) {
    if (std::string trouble = books_->Trouble(); !trouble.empty()) {
      status.degraded.push_back(std::move(trouble));
    }
  }
  if (!web_trouble_.empty()) status.degraded.push_back(web_trouble_);
  if (std::string trouble = FoldersTrouble(); !trouble.empty()) {
    status.degraded.push_back(std::move(trouble));
  }
  if (upstream_) {
    std::string trouble = upstream_->Trouble();
    status.upstream_up = trouble.empty();
    if (!trouble.empty()) {
      status.degraded.push_back(std::move(trouble));
    }
  }
  if (nodes_) {
    status.nodes = nodes_->Status();
    if (std::string trouble = nodes_->Trouble(); !trouble.empty()) {
      status.degraded.push_back(std::move(trouble));
    }
  }
  return status;
}

ClientId Daemon::Find(uint64_t number) const {
  auto it = clients_.find(number);
  return it == clients_.end() ? ClientId{} : it->second;
}

void Daemon::OnHello(uint64_t number, const node::Peer& peer, const wire::Hello& hello,
                     std::string_view) {
  const ClientId id =
      arbiter_->sessions().Up(*this, number, "", static_cast<uint64_t>(peer.pid), peer.start_time,
                              peer.uid, peer.kubernetes_pod, hello);
  if (!id) return;
  clients_[number] = id;
  arbiter_->sessions().SetGroup(id, peer.group);
  tenants_->Serve(number);
}

void Daemon::OnAttach(uint64_t number, const wire::Attach& attach, std::string_view) {
  arbiter_->sessions().Attach(Find(number), attach);
  arbiter_->kernel_caps().Tend(MonotonicNow());
}

void Daemon::OnState(uint64_t number, const wire::State& state, const scheduler::Measured& measured,
                     std::string_view) {
  arbiter_->sessions().State(Find(number), state, measured);
}

void Daemon::OnMemory(uint64_t number, const wire::Memory& memory, std::string_view) {
  arbiter_->sessions().Memory(Find(number), memory);
}

void Daemon::OnEnded(uint64_t number, uint8_t gpu, uint64_t epoch, Duration held) {
  if (const ClientId id = Find(number)) arbiter_->sessions().Ended(id, gpu, epoch, held);
}

void Daemon::OnDown(uint64_t number, wire::DownReason reason) {
  const ClientId id = Find(number);
  if (!id) return;
  if (reason == wire::DownReason::kExited) clients_.erase(number);
  arbiter_->sessions().Down(id, reason);
}

void Daemon::OnTenantNote(uint64_t number, const std::string& text) {
  // A tenant can cause these at will: not an event, and no more than the log level asks for.
  spdlog::debug("client {} {}", number, text);
}

void Daemon::OnBound(const std::string& text) {
  log_.Add(node::EventLog::Level::kWarning, "client", text);
}

void Daemon::Send(uint64_t number, std::string_view frame) { tenants_->Send(number, frame); }

void Daemon::SendAhead(uint64_t number, const wire::Token& token) {
  const auto ready = tenants_->Ready(number, token);
  if (!ready) return;
  if (ready->after_client != 0) return tenants_->SendAhead(number, *ready);
  char buffer[wire::kTenantFrameMax];
  Send(number, {buffer, wire::Encode(*ready, buffer, sizeof buffer)});
}

void Daemon::Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) {
  tenants_->Refuse(number, kind, text);
}

void Daemon::KillProcess(uint64_t number) { tenants_->KillProcess(number); }

}  // namespace baton::backend
