#include "devmgr/placement/team_order.h"

#include <algorithm>

#include "devmgr/placement/quota.h"

namespace baton::devmgr {
namespace {

constexpr double kMostHours = 1e30;  // no sum becomes infinite

}  // namespace

TeamOrder::TeamOrder(const Standings& standings, const Cluster& cluster, Duration ahead)
    : standings_(standings), ahead_hours_(static_cast<double>(Nanos(ahead)) / 3.6e12) {
  for (const auto& [team, standing] : standings) IndexOf(team);
  for (const auto& [name, pod] : cluster.pods()) {
    Charge(pod.request.team.empty() ? kNoTeam : std::string_view(pod.request.team),
           TakenBy(pod.placement).share);
  }
}

uint32_t TeamOrder::IndexOf(std::string_view team) {
  if (team.empty()) return 0;
  if (const auto known = indices_.find(team); known != indices_.end()) return known->second;
  const size_t slash = team.rfind('/');
  Node node;
  node.path = team;
  node.parent = slash == std::string_view::npos ? 0 : IndexOf(team.substr(0, slash));
  node.depth = nodes_[node.parent].depth + 1;
  const auto standing = standings_.find(team);
  if (standing != standings_.end()) node.weight = std::max<uint32_t>(1, standing->second.weight);
  const auto index = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  indices_.emplace(team, index);
  if (standing != standings_.end() && standing->second.used_hours > 0) {
    Add(index, std::min(standing->second.used_hours, kMostHours));
  }
  return index;
}

void TeamOrder::Add(uint32_t team, double hours) {
  nodes_[team].own += hours;
  for (; team != 0; team = nodes_[team].parent) nodes_[team].all += hours;
}

void TeamOrder::Charge(std::string_view team, uint64_t share) {
  Add(IndexOf(team), ahead_hours_ * static_cast<double>(share) / policy::kMillion);
}

bool TeamOrder::Before(const Claim& a, const Claim& b) {
  const double left = a.used / a.weight;
  const double right = b.used / b.weight;
  if (left != right) return left < right;
  return a.weight != b.weight ? a.weight > b.weight : a.path < b.path;
}

bool TeamOrder::Before(const std::string& a, const std::string& b) {
  uint32_t one = IndexOf(a);
  uint32_t two = IndexOf(b);
  if (one == two) return false;
  // Up to where they are siblings, or one is above the other.
  const uint32_t depth = std::min(nodes_[one].depth, nodes_[two].depth);
  uint32_t below = 0;  // the last one on the way up from the deeper one
  const auto raise = [&](uint32_t& team) {
    for (; nodes_[team].depth > depth; team = nodes_[team].parent) below = team;
  };
  const bool first_is_deeper = nodes_[one].depth > depth;
  raise(one);
  raise(two);
  const auto whole = [&](uint32_t team) {
    return Claim{nodes_[team].all, nodes_[team].weight, nodes_[team].path};
  };
  if (one == two) {
    const Claim own{nodes_[one].own, 1, nodes_[one].path};
    return first_is_deeper ? Before(whole(below), own) : Before(own, whole(below));
  }
  while (nodes_[one].parent != nodes_[two].parent) {
    one = nodes_[one].parent;
    two = nodes_[two].parent;
  }
  return Before(whole(one), whole(two));
}

}  // namespace baton::devmgr
