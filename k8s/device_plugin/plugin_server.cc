#include "k8s/device_plugin/plugin_server.h"

#include <errno.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "device_plugin.grpc.pb.h"
#include "k8s/device_plugin/unix_server.h"

namespace baton::k8s {
namespace {

constexpr Duration kRegisterTimeout = std::chrono::seconds(5);
// How soon a stream notices that the kubelet has left.
constexpr Duration kStreamPause = std::chrono::milliseconds(200);
constexpr int kIdsMax = 1 << 20;  // of one request

std::chrono::system_clock::time_point Deadline(Duration time) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(time);
}

}  // namespace

class PluginServer::Impl : private v1beta1::DevicePlugin::Service {
 public:
  explicit Impl(PluginServerOptions options) : options_(std::move(options)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void SetDevices(std::vector<PluginDevice> devices) {
    {
      const std::lock_guard lock(mutex_);
      if (version_ != 0 && devices == devices_) return;
      devices_ = std::move(devices);
      ++version_;
    }
    changed_.notify_all();
  }
  uint64_t registrations() const { return registrations_; }

 private:
  using Context = grpc::ServerContext;
  using Status = grpc::Status;

  Status GetDevicePluginOptions(Context*, const v1beta1::Empty*,
                                v1beta1::DevicePluginOptions* answer) override {
    answer->set_get_preferred_allocation_available(true);
    return Status::OK;
  }

  Status ListAndWatch(Context* context, const v1beta1::Empty*,
                      grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    uint64_t told = 0;
    while (true) {
      v1beta1::ListAndWatchResponse list;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kStreamPause, [&] { return stopping_ || version_ != told; });
        if (stopping_ || context->IsCancelled()) return Status::OK;
        if (version_ == told) continue;
        told = version_;
        list.mutable_devices()->Reserve(static_cast<int>(devices_.size()));
        // Without NUMA nodes: they would be those of the GPU that the kubelet counts down, and the
        // container's is the one that the binder chose.
        for (const PluginDevice& device : devices_) {
          auto* row = list.add_devices();
          row->set_id(device.id);
          row->set_health(device.healthy ? "Healthy" : "Unhealthy");
        }
      }
      if (!writer->Write(list)) return Status::OK;
    }
  }

  Status GetPreferredAllocation(Context*, const v1beta1::PreferredAllocationRequest* request,
                                v1beta1::PreferredAllocationResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      if (container.allocation_size() < 0 || container.available_deviceids_size() > kIdsMax ||
          container.must_include_deviceids_size() > container.allocation_size()) {
        return {grpc::StatusCode::INVALID_ARGUMENT,
                "allocation_size must not be below the number of devices that must be included"};
      }
      const auto& available = container.available_deviceids();
      const auto& must = container.must_include_deviceids();
      auto* row = answer->add_container_responses();
      for (std::string& id :
           PreferredDevices({available.begin(), available.end()}, {must.begin(), must.end()},
                            static_cast<size_t>(container.allocation_size()))) {
        row->add_deviceids(std::move(id));
      }
    }
    return Status::OK;
  }

  // Gives the container the hook. Which GPUs it has is in its environment, from its pod's
  // annotations, where the binder has written it: the devices here are only a number.
  Status Allocate(Context*, const v1beta1::AllocateRequest* request,
                  v1beta1::AllocateResponse* answer) override {
    if (!options_.hook_file.empty() && access(options_.hook_file.c_str(), R_OK) != 0) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              "Baton's hook is not at " + options_.hook_file + ": " + strerror(errno) +
                  "; restart Baton's agent on the node"};
    }
    std::set<std::string_view> known;
    const std::lock_guard lock(mutex_);
    for (const PluginDevice& device : devices_) known.insert(device.id);
    for (const auto& container : request->container_requests()) {
      std::map<std::string_view, int> by_card;
      for (const std::string& id : container.devices_ids()) {
        if (known.count(id) == 0) {
          return {grpc::StatusCode::INVALID_ARGUMENT,
                  "this node has no device " + id.substr(0, 64) + " of " + options_.resource};
        }
        ++by_card[CardOfDevice(id)];
      }
      // For who looks at the container by the runtime's tools.
      std::string counted;
      for (const auto& [card, count] : by_card) {
        counted += (counted.empty() ? "" : ",") + std::string(card) + "=" + std::to_string(count);
      }
      auto* given = answer->add_container_responses();
      (*given->mutable_annotations())[options_.resource + "-counted"] = counted;
      for (const auto& [name, value] : options_.environment) (*given->mutable_envs())[name] = value;
      for (const HookMount& mount : options_.mounts) {
        auto* row = given->add_mounts();
        row->set_container_path(mount.container_path);
        row->set_host_path(mount.host_path);
        row->set_read_only(!mount.writable);
      }
    }
    return Status::OK;
  }

  Status PreStartContainer(Context*, const v1beta1::PreStartContainerRequest*,
                           v1beta1::PreStartContainerResponse*) override {
    return Status::OK;
  }

  std::string PathOf(const std::string& name) const { return options_.folder + "/" + name; }

  bool Serve() {
    if (server_.Serve()) return true;
    Complain("cannot serve " + server_.path() +
             "; is the kubelet's folder mounted, and may this process write there?");
    return false;
  }

  bool Register() {
    grpc::ChannelArguments arguments;
    // One that waits after failures of before would wait on.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto stub = v1beta1::Registration::NewStub(grpc::CreateCustomChannel(
        "unix:" + PathOf("kubelet.sock"), grpc::InsecureChannelCredentials(), arguments));
    v1beta1::RegisterRequest request;
    request.set_version("v1beta1");
    request.set_endpoint(options_.endpoint);
    request.set_resource_name(options_.resource);
    request.mutable_options()->set_get_preferred_allocation_available(true);
    grpc::ClientContext context;
    context.set_deadline(Deadline(kRegisterTimeout));
    v1beta1::Empty answer;
    const Status status = stub->Register(&context, request, &answer);
    if (!status.ok()) {
      Complain("the kubelet does not take " + options_.resource + ": " + status.error_message());
      return false;
    }
    ++registrations_;
    complaint_.clear();
    spdlog::info("plugin: the kubelet counts {}", options_.resource);
    return true;
  }

  void Complain(const std::string& text) {
    if (std::exchange(complaint_, text) != text) spdlog::warn("plugin: {}", text);
  }

  void Run() {
    FileId kubelet;  // with which we are registered
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || version_ != 0; });
    while (!stopping_) {
      lock.unlock();
      const bool lost = !server_.serves();
      if (lost) kubelet = {};
      if (!lost || Serve()) {
        const FileId now = FileId::Of(PathOf("kubelet.sock"));
        if (!now.there()) {
          Complain("there is no " + PathOf("kubelet.sock") + "; it is waited for");
        } else if (now != kubelet && Register()) {
          kubelet = now;
        }
      }
      lock.lock();
      changed_.wait_for(lock, options_.look_every, [&] { return stopping_; });
    }
    lock.unlock();
    server_.Stop();
  }

  const PluginServerOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PluginDevice> devices_;  // guarded by mutex_
  uint64_t version_ = 0;               // of devices_, likewise; 0: not told yet
  bool stopping_ = false;              // likewise
  std::atomic<uint64_t> registrations_{0};
  // Of the thread.
  UnixServer server_{PathOf(options_.endpoint), {this}, 2 * kListBytesMax};
  std::string complaint_;
  std::thread thread_;
};

PluginServer::PluginServer(PluginServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
PluginServer::~PluginServer() = default;
void PluginServer::SetDevices(std::vector<PluginDevice> devices) {
  impl_->SetDevices(std::move(devices));
}
uint64_t PluginServer::registrations() const { return impl_->registrations(); }

}  // namespace baton::k8s
