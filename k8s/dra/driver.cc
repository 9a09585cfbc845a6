#include "k8s/dra/driver.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/utf8.h"
#include "dra.grpc.pb.h"
#include "dra_health.grpc.pb.h"
#include "k8s/device_plugin/unix_server.h"
#include "k8s/dra/claim_store.h"
#include "k8s/dra/claims.h"
#include "k8s/dra/slice_publisher.h"
#include "k8s/dra/slices.h"
#include "plugin_registration.grpc.pb.h"

namespace baton::k8s {
namespace {

namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;
namespace health = ::v1alpha1;
namespace registration = ::pluginregistration;

constexpr size_t kDraMessageMax = size_t{4} << 20;
// The health of devices is told so often where it does not change, and unknown so long after.
constexpr Duration kHealthEvery = std::chrono::seconds(15);
constexpr int64_t kHealthValid = 60;  // seconds
// How soon a stream notices that the kubelet has left.
constexpr Duration kHealthPause = std::chrono::milliseconds(200);
constexpr size_t kHealthTextMax = 1'000;

// The root of the bus that a GPU hangs on, as sysfs has it: "pci0000:00".
std::string PcieRootOf(const std::string& sysfs, std::string bus) {
  for (char& c : bus) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (bus.find('/') != std::string::npos) return "";
  std::error_code error;
  const auto path = std::filesystem::canonical(sysfs + "/bus/pci/devices/" + bus, error);
  if (error) return "";
  for (const auto& part : path) {
    if (part.string().starts_with("pci")) return part.string();
  }
  return "";
}

}  // namespace

class DraService : public dra::DRAPlugin::Service {
 public:
  explicit DraService(ClaimStore& claims) : claims_(claims) {}

 private:
  using Context = grpc::ServerContext;

  grpc::Status NodePrepareResources(Context*, const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* answer) override {
    for (const dra::Claim& asked : request->claims()) {
      dra::NodePrepareResourceResponse& row = (*answer->mutable_claims())[asked.uid()];
      auto claim = claims_.Prepare({asked.namespace_(), asked.name()}, asked.uid());
      if (!claim) {
        spdlog::warn("dra: ResourceClaim {}/{} is not prepared: {}", asked.namespace_(),
                     asked.name(), claim.error().message);
        row.set_error(claim.error().message);
        continue;
      }
      for (const ClaimRequest& one : claim->requests) {
        bool first = true;
        for (const ClaimRequest::Device& device : one.devices) {
          dra::Device* to = row.add_devices();
          to->add_request_names(one.name);
          to->set_pool_name(device.pool);
          to->set_device_name(device.name);
          if (!device.share_id.empty()) to->set_share_id(device.share_id);
          // One CDI device has all GPUs of the request.
          if (std::exchange(first, false))
            to->add_cdi_device_ids(CdiDeviceOf(claim->uid, one.name));
        }
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(Context*, const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* answer) override {
    for (const dra::Claim& asked : request->claims()) {
      dra::NodeUnprepareResourceResponse& row = (*answer->mutable_claims())[asked.uid()];
      if (auto done = claims_.Unprepare(asked.uid()); !done) {
        spdlog::warn("dra: ResourceClaim {}/{} is not unprepared: {}", asked.namespace_(),
                     asked.name(), done.error().message);
        row.set_error(done.error().message);
      }
    }
    return grpc::Status::OK;
  }

  ClaimStore& claims_;
};

// Tells the kubelet how the devices are, for the status of pods.
class HealthService : public health::DRAResourceHealth::Service {
 public:
  // Any thread. `away`: batond does not answer, so nobody knows.
  void Set(const devmgr::Node& node, bool away) {
    health::NodeWatchResourcesResponse list;
    for (const devmgr::Card& card : node.cards) {
      health::DeviceHealth* device = list.add_devices();
      device->mutable_device()->set_pool_name(node.name);
      device->mutable_device()->set_device_name(DeviceNameOf(card.uuid));
      device->set_health_check_timeout_seconds(kHealthValid);
      const bool healthy = card.health == devmgr::Health::kHealthy;
      device->set_health(away ? health::UNKNOWN : healthy ? health::HEALTHY : health::UNHEALTHY);
      std::string why = away ? "batond does not answer" : healthy ? "" : card.why;
      device->set_message(CutUtf8(why, kHealthTextMax));
    }
    const std::lock_guard lock(mutex_);
    if (version_ != 0 && list.SerializeAsString() == list_.SerializeAsString()) return;
    list_ = std::move(list);
    ++version_;
    changed_.notify_all();
  }

 private:
  using Context = grpc::ServerContext;

  grpc::Status NodeWatchResources(
      Context* context, const health::NodeWatchResourcesRequest*,
      grpc::ServerWriter<health::NodeWatchResourcesResponse>* writer) override {
    uint64_t told = 0;
    Instant next = MonotonicNow();
    while (!context->IsCancelled()) {
      health::NodeWatchResourcesResponse list;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kHealthPause, [&] { return version_ != told; });
        if (version_ == 0 || (version_ == told && MonotonicNow() < next)) continue;
        told = version_;
        list = list_;
      }
      next = MonotonicNow() + kHealthEvery;
      const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
      for (health::DeviceHealth& device : *list.mutable_devices()) {
        device.set_last_updated_time(now);
      }
      if (!writer->Write(list)) break;
    }
    return grpc::Status::OK;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  health::NodeWatchResourcesResponse list_;  // guarded by mutex_
  uint64_t version_ = 0;                     // of list_, likewise; 0: not told yet
};

class RegistrationService : public registration::Registration::Service {
 public:
  explicit RegistrationService(std::string endpoint) : endpoint_(std::move(endpoint)) {}

 private:
  using Context = grpc::ServerContext;

  grpc::Status GetInfo(Context*, const registration::InfoRequest*,
                       registration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(std::string(kDraDriver));
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(Context*, const registration::RegistrationStatus* status,
                                        registration::RegistrationStatusResponse*) override {
    if (status->plugin_registered()) {
      spdlog::info("dra: the kubelet knows {}", kDraDriver);
    } else {
      spdlog::error("dra: the kubelet does not take {}: {}", kDraDriver, status->error());
    }
    return grpc::Status::OK;
  }

  const std::string endpoint_;
};

class DraDriver::Impl {
 public:
  Impl(Client& client, const DraDriverOptions& options)
      : options_(options),
        folder_(options.kubelet_dir + "/plugins/" + std::string(kDraDriver)),
        claims_(client, {options.node, options.socket_dir, folder_ + "/claims", options.cdi_dir,
                         options.mounts, options.hook_file, options.tenancy}),
        slices_(client, options.node),
        service_(claims_),
        registration_(folder_ + "/dra.sock"),
        service_socket_(folder_ + "/dra.sock", {&service_, &health_}, kDraMessageMax),
        registration_socket_(
            options.kubelet_dir + "/plugins_registry/" + std::string(kDraDriver) + "-reg.sock",
            {&registration_}, kDraMessageMax) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void OnNode(const devmgr::Node& node, const std::vector<PresentPod>* present) {
    health_.Set(node, present == nullptr);
    devmgr::Node told = node;
    std::optional<std::set<std::string>> taken = std::set<std::string>();
    if (present == nullptr) {
      // Nobody grants a token: pods that came would wait, and not say why.
      for (devmgr::Card& card : told.cards) card.health = devmgr::Health::kFailed;
    } else {
      taken = claims_.Look(node, *present);
    }
    // Else it is looked at again soon.
    if (taken) {
      slices_.SetDevices(DraDevicesOf(told, *taken, [this](const std::string& bus) {
        return PcieRootOf(options_.sysfs, bus);
      }));
    }
    const std::lock_guard lock(mutex_);
    // A batond that only stands by has not answered: the driver of before is still there.
    if (present == nullptr || std::exchange(begun_, true)) return;
    changed_.notify_all();
  }

 private:
  void Run() {
    std::string complaint;
    Instant sweep = MonotonicNow() + options_.sweep_every;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || begun_; });
      if (stopping_) break;
      lock.unlock();
      // The kubelet looks for the driver's socket once it has found the other one.
      for (UnixServer* socket : {&service_socket_, &registration_socket_}) {
        if (socket->serves() || socket->Serve()) continue;
        const std::string wrong =
            "cannot serve " + socket->path() + "; is the kubelet's folder mounted at its own path?";
        if (std::exchange(complaint, wrong) != wrong) spdlog::warn("dra: {}", wrong);
        break;
      }
      if (MonotonicNow() >= sweep) {
        claims_.RemoveGone();
        sweep = MonotonicNow() + options_.sweep_every;
      }
      lock.lock();
      changed_.wait_for(lock, options_.look_every, [&] { return stopping_; });
    }
    lock.unlock();
    registration_socket_.Stop();
    service_socket_.Stop();
  }

  const DraDriverOptions options_;
  const std::string folder_;
  ClaimStore claims_;
  SlicePublisher slices_;
  DraService service_;
  HealthService health_;
  RegistrationService registration_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;     // guarded by mutex_
  bool stopping_ = false;  // likewise
  // Of the thread.
  UnixServer service_socket_, registration_socket_;
  std::thread thread_;
};

DraDriver::DraDriver(Client& client, DraDriverOptions options)
    : impl_(std::make_unique<Impl>(client, options)) {}
DraDriver::~DraDriver() = default;
void DraDriver::OnNode(const devmgr::Node& node, const std::vector<PresentPod>* present) {
  impl_->OnNode(node, present);
}

}  // namespace baton::k8s
