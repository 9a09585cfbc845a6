// The shares that schedulers go by: each pod's, at what its team may have now, and the weights of
// the teams on each GPU.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_POD_SHARES_H_
#define BATON_BACKEND_POD_SHARES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/tokens.h"

namespace baton::backend {

// What teams mean for pods and GPUs.
class TeamPolicy {
 public:
  virtual ~TeamPolicy() = default;
  // The pod's share with its team's number, and at the priority that its team may have now.
  virtual policy::ShareSpec Effective(const Pod& pod) = 0;
  // The weights, by number, where pods of these teams are on one GPU.
  virtual std::vector<uint32_t> Weights(const std::vector<std::string>& teams) = 0;
  // Whether the pod may be created, or changed to be like this.
  virtual Result<void> Admit(const Pod& pod) = 0;
};

class PodShares {
 public:
  PodShares(boost::asio::io_context& io, const Pods& pods, const Gpus& gpus, const UsageBook& usage,
            Tokens& tokens)
      : io_(io), pods_(pods), gpus_(gpus), usage_(usage), tokens_(tokens) {}
  ~PodShares() { *alive_ = false; }

  // Null: teams mean nothing.
  void SetTeamPolicy(TeamPolicy* teams) { teams_ = teams; }
  // What teams weigh or may do has changed.
  void TeamsChanged();
  // Whether its team may have the pod.
  Result<void> Admit(const Pod& pod) const;
  // The pod's share as the scheduler is told.
  policy::ShareSpec SpecOf(const Pod& pod) const;
  // The GPU's scheduler is told.
  void Tell(Gpu& gpu, const Pod& pod);
  // The pod comes to its GPUs, or leaves them: teams weigh anew there, when the loop comes round.
  void WeighLater(const Pod& pod);

 private:
  uint64_t OwnerOf(const Pod& pod);
  void Later();
  void Weigh(Gpu& gpu);

  boost::asio::io_context& io_;
  const Pods& pods_;
  const Gpus& gpus_;
  const UsageBook& usage_;
  Tokens& tokens_;
  TeamPolicy* teams_ = nullptr;
  // Whose pods there were: by namespace, user and uid.
  std::map<std::tuple<std::string, std::string, int64_t>, uint64_t> owners_;
  std::vector<Gpu*> to_weigh_;
  bool later_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_POD_SHARES_H_
