#include "tests/k8s/device_plugin/kubelet_stand_in.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <mutex>
#include <thread>

#include "device_plugin.grpc.pb.h"

namespace baton::k8s {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // What grpc-go takes at most where nothing else is said, as in the kubelet.
  arguments.SetMaxReceiveMessageSize(4 << 20);
  return grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
}

Result<void> Taken(const grpc::Status& status) {
  if (status.ok()) return {};
  return Fail(ErrorCode::kInvalid, status.error_message());
}

}  // namespace

class KubeletStandIn::Impl : private v1beta1::Registration::Service {
 public:
  explicit Impl(std::string folder) : folder_(std::move(folder)) {}
  ~Impl() override { Stop(); }

  void Start() {
    Stop();
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry.path());
    }
    {
      const std::lock_guard lock(mutex_);
      plugins_.clear();
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/kubelet.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
    server_ = builder.BuildAndStart();
  }

  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    std::list<Watch> watches;
    {
      const std::lock_guard lock(mutex_);
      for (Watch& watch : watches_) watch.context->TryCancel();
      watches.swap(watches_);
    }
    for (Watch& watch : watches) watch.thread.join();
    server_.reset();
  }

  std::map<std::string, Plugin> plugins() const {
    const std::lock_guard lock(mutex_);
    return plugins_;
  }

  std::unique_ptr<v1beta1::DevicePlugin::Stub> StubFor(const std::string& resource) const {
    return v1beta1::DevicePlugin::NewStub(
        ChannelTo(folder_ + "/" + plugins().at(resource).endpoint));
  }

 private:
  struct Watch {
    std::unique_ptr<grpc::ClientContext> context;
    std::thread thread;
  };

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    Plugin& plugin = plugins_[request->resource_name()];
    plugin.version = request->version();
    plugin.endpoint = request->endpoint();
    plugin.prefers = request->options().get_preferred_allocation_available();
    Watch& watch = watches_.emplace_back();
    watch.context = std::make_unique<grpc::ClientContext>();
    watch.thread =
        std::thread([this, context = watch.context.get(), resource = request->resource_name(),
                     endpoint = request->endpoint()] {
          const auto stub = v1beta1::DevicePlugin::NewStub(ChannelTo(folder_ + "/" + endpoint));
          const auto reader = stub->ListAndWatch(context, v1beta1::Empty());
          v1beta1::ListAndWatchResponse list;
          while (reader->Read(&list)) {
            const std::lock_guard lock(mutex_);
            Plugin& plugin = plugins_[resource];
            plugin.devices.clear();
            for (const auto& device : list.devices()) plugin.devices[device.id()] = device.health();
            plugin.list_bytes = list.ByteSizeLong();
            plugin.watched = true;
            ++plugin.lists;
          }
          reader->Finish();
          const std::lock_guard lock(mutex_);
          if (const auto plugin = plugins_.find(resource); plugin != plugins_.end()) {
            plugin->second.watched = false;
            // As a kubelet does when a plugin is gone.
            for (auto& [id, health] : plugin->second.devices) health = "Unhealthy";
          }
        });
    return grpc::Status::OK;
  }

  const std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, Plugin> plugins_;
  std::list<Watch> watches_;
  std::unique_ptr<grpc::Server> server_;
};

KubeletStandIn::KubeletStandIn(std::string folder)
    : impl_(std::make_unique<Impl>(std::move(folder))) {}
KubeletStandIn::~KubeletStandIn() = default;
void KubeletStandIn::Start() { impl_->Start(); }
void KubeletStandIn::Stop() { impl_->Stop(); }
std::map<std::string, KubeletStandIn::Plugin> KubeletStandIn::plugins() const {
  return impl_->plugins();
}

size_t KubeletStandIn::Allocatable(const std::string& resource) const {
  const auto all = plugins();
  const auto plugin = all.find(resource);
  if (plugin == all.end()) return 0;
  return static_cast<size_t>(std::count_if(plugin->second.devices.begin(),
                                           plugin->second.devices.end(),
                                           [](const auto& d) { return d.second == "Healthy"; }));
}

Result<std::vector<std::string>> KubeletStandIn::Prefer(const std::string& resource,
                                                        const std::vector<std::string>& available,
                                                        const std::vector<std::string>& must,
                                                        int size) {
  v1beta1::PreferredAllocationRequest request;
  auto* container = request.add_container_requests();
  for (const std::string& id : available) container->add_available_deviceids(id);
  for (const std::string& id : must) container->add_must_include_deviceids(id);
  container->set_allocation_size(size);
  grpc::ClientContext context;
  v1beta1::PreferredAllocationResponse answer;
  const auto taken =
      Taken(impl_->StubFor(resource)->GetPreferredAllocation(&context, request, &answer));
  if (!taken) return tl::unexpected(taken.error());
  if (answer.container_responses_size() != 1) return Fail(ErrorCode::kInternal, "not one answer");
  const auto& ids = answer.container_responses(0).deviceids();
  return std::vector<std::string>(ids.begin(), ids.end());
}

Result<KubeletStandIn::Allocation> KubeletStandIn::Allocate(const std::string& resource,
                                                            const std::vector<std::string>& ids) {
  v1beta1::AllocateRequest request;
  auto* container = request.add_container_requests();
  for (const std::string& id : ids) container->add_devices_ids(id);
  grpc::ClientContext context;
  v1beta1::AllocateResponse answer;
  const auto taken = Taken(impl_->StubFor(resource)->Allocate(&context, request, &answer));
  if (!taken) return tl::unexpected(taken.error());
  if (answer.container_responses_size() != 1) return Fail(ErrorCode::kInternal, "not one answer");
  const auto& given = answer.container_responses(0);
  Allocation allocation;
  allocation.annotations = {given.annotations().begin(), given.annotations().end()};
  allocation.environment = {given.envs().begin(), given.envs().end()};
  allocation.other =
      static_cast<size_t>(given.devices_size()) + static_cast<size_t>(given.cdi_devices_size());
  for (const auto& mount : given.mounts()) {
    if (!mount.read_only()) ++allocation.other;
    allocation.mounts[mount.container_path()] = mount.host_path();
  }
  return allocation;
}

}  // namespace baton::k8s
