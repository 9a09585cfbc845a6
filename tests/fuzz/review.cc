// What the API server asks the webhook, what it tells the DRA driver, and what batond tells its
// agent.
#include <nlohmann/json.hpp>

#include "k8s/api/base64.h"
#include "k8s/device_plugin/node_pods.h"
#include "k8s/dra/claims.h"
#include "k8s/types/annotations.h"
#include "k8s/webhook/admission.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

using Json = nlohmann::json;

FUZZ_TARGET(review) {
  k8s::AdmissionOptions options;
  options.foreign = {true, true, true, 3};
  for (const auto kind : {k8s::AdmissionKind::kMutate, k8s::AdmissionKind::kValidate}) {
    const k8s::AdmissionVerdict verdict = k8s::Review(input, kind, options);
    const Json answer = Json::parse(verdict.body, nullptr, false);
    BATON_CHECK(answer.is_object());
    if (verdict.status != 200) continue;
    const Json& response = answer.at("response");
    BATON_CHECK(response.at("allowed").get<bool>() == verdict.allowed);
    if (!response.contains("patch")) continue;
    Json review = Json::parse(input);
    Json& object = review["request"]["object"];
    object = object.patch(Json::parse(k8s::FromBase64(response.at("patch"))));
    const auto again = k8s::Review(review.dump(), kind, options);
    BATON_CHECK(again.allowed && again.body.find("\"patch\"") == std::string::npos);
  }
}

// {"pod": a pod, "status": an answer of batond's}.
FUZZ_TARGET(agent) {
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  const Json* pod = k8s::Find(*parsed, "pod");
  const Json* status = k8s::Find(*parsed, "status");
  if (pod == nullptr || status == nullptr) return;
  BATON_CHECK(k8s::NodeOf(*status, "n").cards.size() <= 16);
  std::map<std::string, k8s::BatondPod> present, wanted;
  for (const k8s::PresentPod& one : k8s::PresentPods(*status)) present[one.pod.name] = one.pod;
  (void)k8s::ReportOf(k8s::PresentPods(*status));
  if (const auto desired = k8s::DesiredPods(*pod, k8s::kMemoryUnitMib)) {
    for (const k8s::BatondPod& one : *desired) wanted[one.name] = one;
  }
  for (const k8s::BatondCommand& command :
       k8s::Difference(wanted, present, [](const std::string&) { return false; })) {
    (void)k8s::RequestFor(command, true).dump();
  }
  (void)k8s::SharePodOf(*pod);
}

// A ResourceClaim, as kube-scheduler allocates it; or what the driver keeps of one.
FUZZ_TARGET(claim) {
  if (const auto kept = k8s::ParseDraClaim(input)) {
    BATON_CHECK(k8s::ParseDraClaim(k8s::DraClaimText(*kept)) == *kept);
  }
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  k8s::ClaimReader reader;
  reader.node = "n1";
  reader.gpus = {{"gpu-a", "GPU-a"}, {"gpu-b", "GPU-b"}};
  auto claim = reader.Read(*parsed);
  if (!claim) return;
  for (k8s::ClaimRequest& request : claim->requests) {
    BATON_CHECK(request.pod.share.limit >= request.pod.share.request);
    BATON_CHECK(request.devices.size() == request.pod.wishes.gpus.size());
    for (const std::string& name : k8s::NamesFor(*claim, request)) {
      BATON_CHECK(name.size() <= 128);
    }
    request.pod.ticket = "ticket";
    (void)k8s::RequestFor({k8s::BatondCommand::Kind::kCreate, request.pod}, false).dump();
  }
  (void)k8s::CdiSpecOf(*claim, k8s::HookMounts()).dump();
  BATON_CHECK(k8s::ParseDraClaim(k8s::DraClaimText(*claim)) == *claim);
}

}  // namespace
}  // namespace baton::fuzz
