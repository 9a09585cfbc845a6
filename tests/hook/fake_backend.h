// The other end of the socket, scripted by a test: it accepts one hook at a time, answers Hello and
// Attach by itself unless told otherwise, and keeps every State. One thread; the test's methods
// wait with a deadline and may be called from any thread.
#ifndef BATON_TESTS_HOOK_FAKE_BACKEND_H_
#define BATON_TESTS_HOOK_FAKE_BACKEND_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "wire/messages.h"

namespace baton::hook {

class FakeBackend {
 public:
  explicit FakeBackend(std::string path);
  ~FakeBackend();

  // After how long without work a hook that attaches from now on is told to return the token.
  void SetIdle(uint64_t ns);
  // How much GPU time a hook that attaches from now on launches ahead; 2 ms at first.
  void SetBacklog(uint64_t ns);
  // The pod's cap: Memory of a larger total is refused. 0, as at first: none.
  void SetMemoryCap(uint64_t bytes);
  // What other processes of the pod have.
  void SetMemoryOfOthers(uint64_t bytes);
  // From now on every ticket is of no pod.
  void RefuseTickets();
  // Every GPU that is asked for from now on is not the pod's.
  void RefuseGpus();
  // Grants by itself, `ns` long, whenever a State says Waiting; from now on. Empty, as at first:
  // only SendToken() grants.
  void SetAutoQuota(std::optional<uint64_t> ns);
  // The epoch of the latest grant.
  uint64_t granted();

  // Waits (10 s at most) for a State for which `match` holds, from the oldest not taken yet.
  // Empty: none came.
  std::optional<wire::State> WaitState(const std::function<bool(const wire::State&)>& match);
  std::optional<wire::State> WaitPhase(wire::Phase phase);
  void SendToken(uint64_t epoch, uint64_t rev, uint64_t quota_ns, bool contended = true);
  // A Token that waits for a word in the file (wire::Token::after_client).
  void SendAhead(const wire::Token& token, int words);
  void SendRaw(const std::string& frame);
  void SendError(wire::ErrorKind kind, const std::string& text);
  // Closes the present connection; the hook comes back.
  void Drop();
  // Hellos so far, the latest, and how many processes said them. Two processes take the connection
  // from each other, so the latest may be of either.
  int hellos();
  wire::Hello hello();
  size_t incarnations();
  // The files of words that came with Hellos, in turn.
  std::vector<UniqueFd> TakeWords();
  std::string uuid();
  uint64_t memory_total();
  // How often a hook has asked for memory in vain.
  int memory_refusals();
  bool WaitHellos(int count);
  // True when the hook's end was seen closed (the lifeline).
  bool WaitGone();

 private:
  void Run();
  // mutex_ is held.
  void OnFrame(const char* data, size_t size);
  template <class Message>
  void Send(const Message& message);

  const std::string path_;
  int listener_;
  int wake_[2];
  std::thread thread_;
  std::mutex mutex_;  // guards everything from here on
  std::condition_variable changed_;
  wire::Attached limits_;
  uint64_t memory_cap_ = 0;
  uint64_t memory_of_others_ = 0;
  bool refuse_tickets_ = false;
  bool refuse_gpus_ = false;
  std::optional<uint64_t> auto_quota_ns_;
  int peer_ = -1;
  bool stop_ = false;
  bool gone_ = false;
  int hellos_ = 0;
  uint64_t epoch_ = 0;
  uint64_t memory_total_ = 0;
  int memory_refusals_ = 0;
  wire::Hello hello_;
  std::set<uint64_t> incarnations_;
  std::vector<UniqueFd> words_;
  std::string uuid_;
  std::deque<wire::State> states_;
};

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_FAKE_BACKEND_H_
