#include "scheduler/roster.h"

#include <algorithm>

namespace baton::scheduler {
namespace {

// The number of a record that is free, made when there is none.
template <class Record>
uint32_t Take(std::vector<Record>& records, std::vector<uint32_t>& free) {
  if (free.empty()) {
    records.emplace_back();
    return static_cast<uint32_t>(records.size() - 1);
  }
  const uint32_t index = free.back();
  free.pop_back();
  return index;
}

}  // namespace

uint32_t Roster::AddPod(PodId id, bool gang) {
  const uint32_t index = Take(pods_, free_pods_);
  pods_[index].id = id;
  pods_[index].gang = gang;
  gangs_ += gang ? 1 : 0;
  pod_index_[id.value] = index;
  return index;
}

void Roster::RemovePod(uint32_t index) {
  Pod& pod = pods_[index];
  for (const uint32_t c : pod.clients) {
    client_index_.erase(clients_[c].id.value);
    Free(c);
  }
  gangs_ -= pod.gang ? 1 : 0;
  pod_index_.erase(pod.id.value);
  pod = Pod{};
  free_pods_.push_back(index);
}

uint32_t Roster::AddClient(ClientId id, uint32_t pod) {
  const uint32_t index = Take(clients_, free_clients_);
  clients_[index].id = id;
  clients_[index].pod = pod;
  client_index_[id.value] = index;
  pods_[pod].clients.push_back(index);
  return index;
}

void Roster::Unlist(uint32_t index) {
  client_index_.erase(clients_[index].id.value);
  auto& clients = pods_[clients_[index].pod].clients;
  clients.erase(std::remove(clients.begin(), clients.end(), index), clients.end());
}

void Roster::Free(uint32_t index) {
  clients_[index] = Client{};
  free_clients_.push_back(index);
}

void Roster::Prefetch(uint32_t pod) const {
  __builtin_prefetch(&pods_[pod], 1);
  __builtin_prefetch(reinterpret_cast<const char*>(&pods_[pod]) + 64, 1);
}

}  // namespace baton::scheduler
