#include "tests/k8s/dra/dra_kubelet.h"

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <utility>

#include "dra.grpc.pb.h"
#include "dra_health.grpc.pb.h"
#include "plugin_registration.grpc.pb.h"

namespace baton::k8s {
namespace {

namespace api = ::k8s::io::kubelet::pkg::apis::dra::v1;

std::shared_ptr<grpc::Channel> ToSocket(const std::string& path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
}

template <class Request>
Request Of(const ObjectName& claim, const std::string& uid) {
  Request request;
  api::Claim* one = request.add_claims();
  one->set_namespace_(claim.name_space);
  one->set_name(claim.name);
  one->set_uid(uid);
  return request;
}

// The one row of an answer, which is of the claim that was asked about.
template <class Answer>
auto RowOf(const grpc::Status& status, const Answer& answer, const std::string& uid)
    -> Result<typename std::decay_t<decltype(answer.claims())>::mapped_type> {
  if (!status.ok()) return Fail(ErrorCode::kUnavailable, status.error_message());
  if (answer.claims_size() != 1 || !answer.claims().contains(uid)) {
    return Fail(ErrorCode::kInternal, "not one answer, of that claim");
  }
  const auto& row = answer.claims().at(uid);
  if (!row.error().empty()) return Fail(ErrorCode::kInvalid, row.error());
  return row;
}

}  // namespace

DraKubelet::DraKubelet(std::string folder) : folder_(std::move(folder)) {
  for (const char* name : {"plugins", "plugins_registry"}) {
    std::filesystem::create_directories(folder_ + "/" + name);
  }
}

std::optional<DraKubelet::Plugin> DraKubelet::Find() const {
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/plugins_registry")) {
    const auto stub = pluginregistration::Registration::NewStub(ToSocket(entry.path()));
    grpc::ClientContext context;
    pluginregistration::PluginInfo info;
    if (!stub->GetInfo(&context, {}, &info).ok()) continue;
    grpc::ClientContext notify;
    pluginregistration::RegistrationStatus status;
    status.set_plugin_registered(true);
    pluginregistration::RegistrationStatusResponse none;
    if (!stub->NotifyRegistrationStatus(&notify, status, &none).ok()) continue;
    return Plugin{info.type(),
                  info.name(),
                  info.endpoint(),
                  {info.supported_versions().begin(), info.supported_versions().end()}};
  }
  return std::nullopt;
}

Result<std::vector<DraKubelet::Device>> DraKubelet::Prepare(const ObjectName& claim,
                                                            const std::string& uid) const {
  const auto plugin = Find();
  if (!plugin) return Fail(ErrorCode::kUnavailable, "no driver");
  grpc::ClientContext context;
  api::NodePrepareResourcesResponse answer;
  const auto stub = api::DRAPlugin::NewStub(ToSocket(plugin->endpoint));
  const auto row = RowOf(stub->NodePrepareResources(
                             &context, Of<api::NodePrepareResourcesRequest>(claim, uid), &answer),
                         answer, uid);
  if (!row) return tl::unexpected(row.error());
  std::vector<Device> devices;
  for (const api::Device& device : row->devices()) {
    devices.push_back({{device.request_names().begin(), device.request_names().end()},
                       device.pool_name(),
                       device.device_name(),
                       {device.cdi_device_ids().begin(), device.cdi_device_ids().end()},
                       device.has_share_id() ? device.share_id() : "-"});
  }
  return devices;
}

Result<void> DraKubelet::Unprepare(const ObjectName& claim, const std::string& uid) const {
  const auto plugin = Find();
  if (!plugin) return Fail(ErrorCode::kUnavailable, "no driver");
  grpc::ClientContext context;
  api::NodeUnprepareResourcesResponse answer;
  const auto stub = api::DRAPlugin::NewStub(ToSocket(plugin->endpoint));
  const auto row = RowOf(stub->NodeUnprepareResources(
                             &context, Of<api::NodeUnprepareResourcesRequest>(claim, uid), &answer),
                         answer, uid);
  if (!row) return tl::unexpected(row.error());
  return {};
}

std::map<std::string, int> DraKubelet::Health() const {
  std::map<std::string, int> health;
  const auto plugin = Find();
  if (!plugin) return health;
  grpc::ClientContext context;
  const auto stub = v1alpha1::DRAResourceHealth::NewStub(ToSocket(plugin->endpoint));
  const auto stream = stub->NodeWatchResources(&context, {});
  v1alpha1::NodeWatchResourcesResponse list;
  if (stream->Read(&list)) {
    for (const auto& device : list.devices()) {
      if (device.device().pool_name() == "n1" && device.last_updated_time() > 0) {
        health[device.device().device_name()] = device.health();
      }
    }
  }
  context.TryCancel();
  stream->Finish();
  return health;
}

void DraKubelet::RemoveSockets() const {
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/plugins_registry")) {
    std::filesystem::remove(entry.path());
  }
}

}  // namespace baton::k8s
