// A tenant that has no GPU: speaks the hook's side of the protocol to batond or baton-frontend, so
// that the token's way can be measured where it is used. The frames are the hook's own.
#ifndef BATON_CLI_TENANT_LINK_H_
#define BATON_CLI_TENANT_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "wire/messages.h"

namespace baton::cli {

// Carries a tenant's frames to whoever grants tokens. Blocking.
class Transport {
 public:
  virtual ~Transport() = default;
  // Returns the bytes that travel, the transport's own wrapping included; 0: the peer is gone.
  virtual size_t Send(const char* frame, size_t size) = 0;
  // Receives one frame of at most wire::kTenantFrameMax bytes. 0: the peer is gone, or said nothing
  // for five seconds.
  virtual size_t Receive(char* frame) = 0;
};

// The unix seqpacket socket at `path`.
Result<std::unique_ptr<Transport>> ConnectTenant(const std::string& path);

// One attached client on one GPU. Not thread safe.
class Tenant {
 public:
  // Hello with `ticket` and Attach to the GPU `uuid`.
  static Result<Tenant> Attach(std::unique_ptr<Transport> transport, const std::string& ticket,
                               const std::string& uuid);

  // Waiting -> the token -> Holding -> Idle. Returns the time from sending State{waiting} until
  // Token arrived.
  Result<Duration> RoundTrip();

  // The halves of it, for hand-offs: ask for the token, wait until it is there, give it back.
  bool Ask();
  bool AwaitToken();
  bool Return();

  // Bytes that travel to ask for the token, for a raw echo of the same size.
  size_t frame_size() const { return frame_size_; }

 private:
  explicit Tenant(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}
  // The bytes that travelled; 0: the peer is gone.
  size_t SendState(wire::Phase phase);

  std::unique_ptr<Transport> transport_;
  wire::State state_;
  size_t frame_size_ = 0;
};

}  // namespace baton::cli

#endif  // BATON_CLI_TENANT_LINK_H_
