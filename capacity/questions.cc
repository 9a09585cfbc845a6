#include "capacity/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/suggest.h"

namespace baton::capacity {
namespace {

// Weights are whole numbers: beside a percentage all of them are so many times as large.
constexpr uint32_t kFiner = 1'000;

// "NAME=VALUE". The name may contain "=".
Result<std::pair<std::string, std::string>> Split(const char* flag, const std::string& text,
                                                  const char* form) {
  const size_t equal = text.rfind('=');
  if (equal == std::string::npos || equal == 0 || equal + 1 == text.size()) {
    return Fail(ErrorCode::kInvalid, fmt::format("{}: '{}' is not {}", flag, text, form));
  }
  return std::pair(text.substr(0, equal), text.substr(equal + 1));
}

struct Amount {
  double value = 0;
  bool percent = false;
};
std::optional<Amount> AmountOf(std::string_view text) {
  Amount amount;
  if (text.ends_with('%')) {
    amount.percent = true;
    text.remove_suffix(1);
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), amount.value);
  if (code != std::errc() || end != text.data() + text.size() || !(amount.value >= 0) ||
      amount.value > (amount.percent ? 100 : 1e6)) {
    return std::nullopt;
  }
  return amount;
}

class Changer {
 public:
  explicit Changer(Scenario& scenario) : s_(scenario) {
    const auto add = [this](std::string path) {
      for (path = teams::NormalPath(path); !path.empty(); path = teams::ParentOf(path)) {
        teams_.insert(path);
      }
    };
    for (const teams::Team& team : s_.teams.teams) add(team.path);
    for (const teams::Use& use : s_.uses) add(use.team);
    for (const PodPlan& pod : s_.pods) add(pod.request.team);
  }

  Result<void> Weigh(const std::string& text) {
    const auto said = TeamAnd("--weight", text, "TEAM=WEIGHT or TEAM=PERCENT%");
    if (!said) return tl::unexpected(said.error());
    const auto& [path, amount] = *said;
    if (!amount.percent) {
      if (amount.value < 1 || amount.value != std::floor(amount.value)) {
        return Fail(ErrorCode::kInvalid, "--weight: '" + text +
                                             "' must be a whole number from 1 to 1000000, or a "
                                             "percentage such as 30%");
      }
      TeamAt(path).weight = static_cast<uint32_t>(amount.value);
      return {};
    }
    if (amount.value <= 0 || amount.value >= 100) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("--weight: '{}' must be between 0 and 100%", text));
    }
    parts_[std::string(teams::ParentOf(path))][path] = amount.value / 100;
    return {};
  }

  // The percentages, once all are known: those of teams below one parent are of the same whole, and
  // the teams beside them share the rest as before.
  Result<void> WeighParts() {
    for (const auto& [parent, parts] : parts_) {
      double sum = 0, others = 0;
      for (const auto& [path, part] : parts) sum += part;
      std::map<std::string, double> weights;
      for (const std::string& team : teams_) {
        if (teams::ParentOf(team) != parent || parts.contains(team)) continue;
        others += weights[team] = s_.teams.WeightOf(team);
      }
      const std::string& first = parts.begin()->first;
      if (weights.empty()) {
        return Fail(ErrorCode::kInvalid,
                    fmt::format("--weight: no team is beside {}, so it has all of what they share; "
                                "give a weight",
                                first));
      }
      if (sum >= 1) {
        return Fail(ErrorCode::kInvalid,
                    fmt::format("--weight: {} and those beside it come to {:.0f}%, and others are "
                                "there too; less than 100% can be given",
                                first, sum * 100));
      }
      for (const auto& [path, part] : parts) weights[path] = part / (1 - sum) * others;
      double most = 0;
      for (const auto& [team, weight] : weights) most = std::max(most, weight);
      const double finer = std::min<double>(kFiner, teams::kWeightMax / most);
      for (const auto& [team, weight] : weights) {
        TeamAt(team).weight = static_cast<uint32_t>(std::max(1.0, std::round(weight * finer)));
      }
    }
    return {};
  }

  Result<void> Guarantee(const std::string& text) {
    const auto said = TeamAnd("--guarantee", text, "TEAM=GPUS or TEAM=PERCENT%");
    if (!said) return tl::unexpected(said.error());
    std::erase_if(s_.guarantees, [&](const auto& one) { return one.first == said->first; });
    s_.guarantees.emplace_back(said->first, InGpus(said->second));
    return {};
  }

  Result<void> Limit(const std::string& text) {
    const auto said = TeamAnd("--limit", text, "TEAM=GPUS or TEAM=PERCENT%");
    if (!said) return tl::unexpected(said.error());
    TeamAt(said->first).limit = policy::SharesOf(std::max(0.001, InGpus(said->second)));
    return {};
  }

  Result<void> SetShares(const std::string& text) {
    const auto said = Split("--shares", text, "POD=REQUEST or POD=REQUEST:LIMIT, in percent");
    if (!said) return tl::unexpected(said.error());
    const auto& [name, value] = *said;
    const size_t colon = value.find(':');
    const auto request = policy::ParsePercent(value.substr(0, colon));
    if (!request) return Fail(ErrorCode::kInvalid, "--shares: " + request.error().message);
    policy::Share limit = policy::kWhole;
    if (colon != std::string::npos) {
      const auto parsed = policy::ParsePercent(value.substr(colon + 1));
      if (!parsed) return Fail(ErrorCode::kInvalid, "--shares: " + parsed.error().message);
      limit = *parsed;
    }
    bool found = false;
    std::vector<std::string> names;
    for (PodPlan& pod : s_.pods) {
      const std::string& is = pod.request.name;
      names.push_back(is);
      // NAMESPACE/NAME, or NAME; of one that came several times each.
      const std::string plain = is.substr(0, is.find('#'));
      if (plain != name && plain.substr(plain.rfind('/') + 1) != name && is != name) continue;
      found = true;
      if (auto set = SetShare("--shares", pod, *request, limit); !set) return set;
    }
    if (found) return {};
    const std::string near = Nearest(name, names);
    return Fail(ErrorCode::kNotFound,
                fmt::format("--shares: no pod {} was there in this time{}", name,
                            near.empty() ? "" : "; did you mean " + near + "?"));
  }

  Result<void> Advise() {
    bool any = false;
    for (PodPlan& pod : s_.pods) {
      if (!pod.advised || pod.share.priority == policy::Priority::kIdle) continue;
      any = true;
      if (auto set =
              SetShare("--advised", pod, *pod.advised, std::max(pod.share.limit, *pod.advised));
          !set) {
        return set;
      }
    }
    if (any) return {};
    return Fail(
        ErrorCode::kNotFound,
        "--advised: of no pod is known that its request is far from its use; 'baton advise' "
        "looks at the pods that run now");
  }

  Result<void> AddNodes(uint32_t nodes, uint32_t gpus) {
    if (nodes == 0 && gpus == 0) return {};
    // Of the kind of which there are most; of several the first by name.
    std::map<std::pair<size_t, std::string>, size_t> kinds;
    const devmgr::Node* usual = nullptr;
    size_t most = 0;
    const auto kind_of = [](const devmgr::Node& node) {
      return std::pair(node.cards.size(), node.cards[0].model);
    };
    for (const devmgr::Node& node : s_.nodes) {
      if (!node.cards.empty()) most = std::max(most, ++kinds[kind_of(node)]);
    }
    for (const devmgr::Node& node : s_.nodes) {
      if (node.cards.empty() || kinds[kind_of(node)] < most) continue;
      if (usual == nullptr || node.name < usual->name) usual = &node;
    }
    if (usual == nullptr) return Fail(ErrorCode::kInvalid, "the cluster has no GPUs");
    const devmgr::Node like = *usual;
    uint32_t number = 0;
    const auto add = [&](uint32_t count) {
      devmgr::Node node = like;
      node.name = fmt::format("added-{}", ++number);
      node.cards.assign(count, like.cards[0]);
      for (size_t g = 0; g < node.cards.size(); ++g) {
        node.cards[g].uuid = fmt::format("{}/{}", node.name, g);
        node.cards[g].health = devmgr::Health::kHealthy;
        node.cards[g].cordoned = false;
        node.cards[g].taken_mib = 0;
      }
      s_.nodes.push_back(std::move(node));
    };
    for (uint32_t n = 0; n < nodes; ++n) add(static_cast<uint32_t>(like.cards.size()));
    for (; gpus > 0; gpus -= std::min(gpus, devmgr::VgpuRequest::kCardsMax)) {
      add(std::min(gpus, devmgr::VgpuRequest::kCardsMax));
    }
    return {};
  }

 private:
  Result<std::pair<std::string, Amount>> TeamAnd(const char* flag, const std::string& text,
                                                 const char* form) const {
    const auto said = Split(flag, text, form);
    if (!said) return tl::unexpected(said.error());
    const auto amount = AmountOf(said->second);
    if (!amount) {
      return Fail(ErrorCode::kInvalid, fmt::format("{}: '{}' is not {}", flag, text, form));
    }
    const std::string path = teams::NormalPath(said->first);
    if (!teams_.contains(path)) {
      const std::vector<std::string> all(teams_.begin(), teams_.end());
      const std::string near = Nearest(path, all);
      std::string list;
      for (const std::string& team : all) list += (list.empty() ? "" : ", ") + team;
      return Fail(ErrorCode::kNotFound,
                  near.empty()
                      ? fmt::format("{}: there is no team {}; there are {}", flag, path,
                                    list.empty() ? "none" : list)
                      : fmt::format("{}: there is no team {}; did you mean {}?", flag, path, near));
    }
    return std::pair(path, *amount);
  }

  double InGpus(const Amount& amount) const {
    size_t gpus = 0;
    for (const devmgr::Node& node : s_.nodes) gpus += node.cards.size();
    return amount.percent ? amount.value / 100 * static_cast<double>(gpus) : amount.value;
  }

  teams::Team& TeamAt(const std::string& path) {
    auto& all = s_.teams.teams;
    const auto at = std::lower_bound(all.begin(), all.end(), path,
                                     [](const teams::Team& team, const std::string& p) {
                                       return teams::PathLess()(team.path, p);
                                     });
    if (at != all.end() && at->path == path) return *at;
    teams::Team team;
    team.path = path;
    return *all.insert(at, std::move(team));
  }

  static Result<void> SetShare(const char* flag, PodPlan& pod, policy::Share request,
                               policy::Share limit) {
    policy::ShareSpec spec{.request = request, .limit = limit, .priority = pod.share.priority};
    if (spec.priority == policy::Priority::kIdle) spec.priority = policy::Priority::kNormal;
    const auto valid = policy::Validated(spec);
    if (!valid) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("{}: {}: {}", flag, pod.request.name, valid.error().message));
    }
    pod.share = *valid;
    pod.request.idle = false;
    for (auto& container : pod.request.containers) {
      for (auto& vgpu : container.vgpus) vgpu.share = request;
    }
    return {};
  }

  Scenario& s_;
  std::set<std::string, teams::PathLess> teams_;  // and those above them
  // What Weigh() was told in percent, by parent and team.
  std::map<std::string, std::map<std::string, double>> parts_;
};

}  // namespace

Result<void> Apply(const Questions& questions, Scenario& scenario) {
  Changer changer(scenario);
  // First, for percentages are of all GPUs.
  if (auto added = changer.AddNodes(questions.add_nodes, questions.add_gpus); !added) return added;
  if (questions.advised) {
    if (auto advised = changer.Advise(); !advised) return advised;
  }
  using Change = Result<void> (Changer::*)(const std::string&);
  for (const auto& [texts, change] :
       {std::pair<const std::vector<std::string>*, Change>{&questions.weights, &Changer::Weigh},
        {&questions.guarantees, &Changer::Guarantee},
        {&questions.limits, &Changer::Limit},
        {&questions.shares, &Changer::SetShares}}) {
    for (const std::string& text : *texts) {
      if (auto changed = (changer.*change)(text); !changed) return changed;
    }
  }
  return changer.WeighParts();
}

}  // namespace baton::capacity
