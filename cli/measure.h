// How long the token takes, beside a raw two-process echo measured in the same run.
#ifndef BATON_CLI_MEASURE_H_
#define BATON_CLI_MEASURE_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/tenant_link.h"

namespace baton::cli {

// A raw echo between two processes: what a round trip costs with nobody thinking in between.
class Echo {
 public:
  virtual ~Echo() = default;
  // One frame there and back.
  virtual Result<Duration> RoundTrip(size_t frame_size) = 0;
};

// Over a unix seqpacket pair, answered by a forked child that ends with this object. Make it while
// the process has one thread.
class UnixEcho : public Echo {
 public:
  static Result<std::unique_ptr<UnixEcho>> Start();
  ~UnixEcho() override;
  Result<Duration> RoundTrip(size_t frame_size) override;

 private:
  UnixEcho(int fd, pid_t child) : fd_(fd), child_(child) {}
  int fd_;
  pid_t child_;
};

// The same pause after every sample, token or echo: lets the daemon finish what the sample left
// behind, on this CPU if need be, without sleeping, which would add a wake-up to the next one.
void Settle();

struct Compared {
  std::vector<Duration> token;
  std::vector<Duration> echo;
};

// `count` round trips of each kind, in alternating blocks of 64, so that noise hits both.
Result<Compared> CompareRoundTrips(Tenant& tenant, Echo& echo, size_t count);
// The holder returns the token while the other waits: until the other has it. Both tenants must
// belong to different pods of the same GPU.
Result<Compared> CompareHandOffs(Tenant& first, Tenant& second, Echo& echo, size_t count);

}  // namespace baton::cli

#endif  // BATON_CLI_MEASURE_H_
