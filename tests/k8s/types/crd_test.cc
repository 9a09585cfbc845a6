// What the CRD of SharePods says of a pod's fields is what their table says. BATON_UPDATE=1 writes
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

const std::string kCrd = std::string(BATON_SOURCE) + "/k8s/crds/sharepods.yaml";

std::string CrdText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// `text` with what lies between the line `begin` and the next "# End." replaced.
std::string WithBlock(const std::string& text, const std::string& begin, const std::string& block) {
  const size_t at = text.find(begin);
  const size_t from = at == std::string::npos ? at : text.find('\n', at) + 1;
  const size_t to = from == std::string::npos ? from : text.find("# End.", from);
  if (to == std::string::npos) {
    ADD_FAILURE() << kCrd << " has no block '" << begin << "'";
    return text;
  }
  return text.substr(0, from) + block + text.substr(text.rfind('\n', to) + 1);
}

std::string Rule(const WishField& field) {
  const std::string in(20, ' ');
  const std::string name(field.pointer);
  return fmt::format(
      "{0}- rule: >-\n"
      "{0}    (has(self.{1}) ? self.{1} : {2}) ==\n"
      "{0}    (has(oldSelf.{1}) ? oldSelf.{1} : {2})\n"
      "{0}  message: {1} cannot change once the SharePod is there; delete the SharePod and create "
      "it "
      "again\n"
      "{0}  fieldPath: .{1}\n",
      in, name, field.field->is_flag() ? "false" : "''");
}

std::string Property(const WishField& field) {
  const std::string in(20, ' ');
  const spec::PodField& row = *field.field;
  std::string property = fmt::format("{}{}:\n{}  type: {}\n", in, field.pointer, in,
                                     row.is_flag() ? "boolean" : "string");
  if (!row.share_pod_values.empty()) {
    property += fmt::format("{}  enum: [{}]\n", in, row.share_pod_values);
  } else if (!row.is_flag()) {
    property += fmt::format("{0}  minLength: 1\n{0}  maxLength: {1}\n", in, field.bytes);
  }
  property += fmt::format("{0}  description: >-\n{0}    {1}.{2}{3}{4}{5}\n", in, row.about,
                          row.is_list() ? " Separate several by commas." : "",
                          row.detail.empty() ? "" : " ", row.detail,
                          field.may_change ? " Can be changed while the pod runs." : "");
  return property;
}

TEST(SharePodCrd, SaysOfFieldsWhatTheirTableSays) {
  std::string rules, properties;
  for (const WishField& field : WishFields()) {
    if (field.field == nullptr) continue;
    if (!field.may_change) rules += Rule(field);
    properties += Property(field);
  }
  const std::string is = CrdText(kCrd);
  std::string wanted = WithBlock(is, "# What is fixed, from spec/pod_request.cc:", rules);
  wanted = WithBlock(wanted, "# Of a whole pod, from spec/pod_request.cc:", properties);
  if (std::getenv("BATON_UPDATE") != nullptr) std::ofstream(kCrd) << wanted;
  EXPECT_EQ(CrdText(kCrd), wanted)
      << "run this test with BATON_UPDATE=1, then scripts/render-chart";
}

}  // namespace
}  // namespace baton::k8s
