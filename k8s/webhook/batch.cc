#include "k8s/webhook/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/team_path.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

constexpr size_t kObjectNameMax = 253;  // of Kubernetes, in bytes

const Resource kCoschedulingGroups{"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup",
                                   true};
const Resource kVolcanoGroups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", true};

struct BatchKey {
  const char* part;  // of the metadata
  const char* key;
};

// Kueue puts the second on pods that it has admitted: its first is on their Job.
constexpr BatchKey kKueueQueue[]{{"labels", "kueue.x-k8s.io/queue-name"},
                                 {"labels", "kueue.x-k8s.io/local-queue-name"}};
// The second is what Volcano writes on pods of its Jobs.
constexpr BatchKey kVolcanoQueue[]{{"annotations", "scheduling.volcano.sh/queue-name"},
                                   {"annotations", "volcano.sh/queue-name"}};
constexpr BatchKey kKaiQueue[]{{"labels", "kai.scheduler/queue"}};
constexpr BatchKey kCoschedulingGroup[]{{"labels", "scheduling.x-k8s.io/pod-group"}};
constexpr BatchKey kVolcanoGroup[]{{"annotations", "scheduling.k8s.io/group-name"},
                                   {"annotations", "scheduling.volcano.sh/group-name"}};

struct BatchWord {
  std::string key;
  std::string name;
  std::string field;
};

// A DNS subdomain, as Kubernetes' objects are called.
bool IsObjectName(const std::string& name) {
  const auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kObjectNameMax && alphanumeric(name.front()) &&
         alphanumeric(name.back()) && name.find("..") == std::string::npos &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alphanumeric(c) || c == '-' || c == '.'; });
}

class BatchReader {
 public:
  BatchReader(ClusterFacts* facts, const BatchQuestion& question)
      : facts_(facts), question_(question) {}

  Result<BatchAnswer> Read(const BatchOptions& options) {
    std::optional<BatchWord> group;
    const Resource* resource = nullptr;
    const auto find_group = [&](bool on, std::span<const BatchKey> keys,
                                const Resource& of) -> Result<void> {
      if (!on || group || facts_ == nullptr) return {};
      auto found = Find(keys);
      if (!found) return tl::unexpected(found.error());
      group = *std::move(found);
      resource = &of;
      return {};
    };
    if (auto ok = find_group(options.volcano, kVolcanoGroup, kVolcanoGroups); !ok) {
      return tl::unexpected(ok.error());
    }
    if (auto ok = find_group(options.coscheduling, kCoschedulingGroup, kCoschedulingGroups); !ok) {
      return tl::unexpected(ok.error());
    }
    Json object;
    const bool of_volcano = resource == &kVolcanoGroups;
    if (group && (question_.gang || (question_.team && of_volcano))) {
      auto got = facts_->PodGroup(*resource, {question_.name_space, group->name});
      if (got) {
        object = *std::move(got);
      } else if (got.error().code != ErrorCode::kNotFound) {
        return Fail(ErrorCode::kUnavailable,
                    fmt::format("{}: PodGroup {} cannot be looked up now; try again: {}",
                                group->field, group->name, got.error().message));
      } else if (question_.gang) {
        return Refuse(group->field,
                      fmt::format("namespace {} has no PodGroup {} of {}; create it "
                                  "before its pods",
                                  question_.name_space, group->name, resource->ApiVersion()));
      }
    }
    if (question_.gang && group) {
      if (auto ok = SetGang(*group, object); !ok) return tl::unexpected(ok.error());
    }
    if (!question_.team) return answer_;
    if (auto ok = SetTeam(options.kueue, kKueueQueue); !ok) return tl::unexpected(ok.error());
    if (const std::string queue = TextAt(object, "spec/queue"); of_volcano && !queue.empty()) {
      if (!IsObjectName(queue)) {
        return Refuse(group->field, fmt::format("spec.queue of PodGroup {} is {}, which is no name",
                                                group->name, Quoted(queue)));
      }
      SetTeam({fmt::format("PodGroup {}", group->name), queue, group->field});
    }
    if (auto ok = SetTeam(options.volcano, kVolcanoQueue); !ok) return tl::unexpected(ok.error());
    if (auto ok = SetTeam(options.kai, kKaiQueue); !ok) return tl::unexpected(ok.error());
    return answer_;
  }

 private:
  Result<std::optional<BatchWord>> Find(std::span<const BatchKey> keys) const {
    for (size_t i = 0; i < question_.metadata.size(); ++i) {
      if (question_.metadata[i] == nullptr) continue;
      for (const BatchKey& key : keys) {
        const Json* part = k8s::Find(*question_.metadata[i], key.part);
        if (part == nullptr || !part->is_object()) continue;
        const auto at = part->find(key.key);
        if (at == part->end() || *at == "") continue;
        const std::string name = at->is_string() ? at->get<std::string>() : "";
        std::string field =
            fmt::format("{}metadata.{}[{}]", i == 0 ? "" : "spec.template.", key.part, key.key);
        if (!IsObjectName(name)) {
          return Refuse(field, Quoted(name) + " is no name of an object; write such as team-a");
        }
        return BatchWord{key.key, name, std::move(field)};
      }
    }
    return std::nullopt;
  }

  Result<void> SetGang(const BatchWord& group, const Json& object) {
    const Json* least = k8s::Find(object, "spec/minMember");
    const int64_t size = least != nullptr && least->is_number_integer() ? least->get<int64_t>() : 0;
    if (size <= 1) return {};
    if (static_cast<uint64_t>(size) > kGangSizeMax) {
      return Refuse(group.field, fmt::format("spec.minMember of PodGroup {} is {}; at most {} pods "
                                             "can be placed at once",
                                             group.name, size, kGangSizeMax));
    }
    answer_.gang = group.name;
    answer_.gang_size = static_cast<uint32_t>(size);
    answer_.sentences.push_back(
        fmt::format("{}={} means a gang of {}", group.key, group.name, size));
    return {};
  }

  Result<void> SetTeam(bool on, std::span<const BatchKey> keys) {
    if (!on || !answer_.team.empty()) return {};
    auto queue = Find(keys);
    if (!queue) return tl::unexpected(queue.error());
    if (*queue) SetTeam(**queue);
    return {};
  }
  void SetTeam(const BatchWord& queue) {
    if (!answer_.team.empty()) return;
    std::string path = queue.name;
    std::replace(path.begin(), path.end(), '.', '/');
    answer_.team = TeamPath(path);
    answer_.team_field = fmt::format("{} (queue {})", queue.field, Quoted(queue.name));
    answer_.sentences.push_back(
        fmt::format("{}: queue {} means team {}", queue.key, queue.name, answer_.team));
  }

  ClusterFacts* const facts_;
  const BatchQuestion& question_;
  BatchAnswer answer_;
};

}  // namespace

Result<BatchAnswer> ReadBatchWords(const BatchOptions& options, ClusterFacts* facts,
                                   const BatchQuestion& question) {
  if (!question.team && !question.gang) return BatchAnswer();
  return BatchReader(facts, question).Read(options);
}

}  // namespace baton::k8s
