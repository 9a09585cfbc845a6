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

// Carries a tenant's frames to whoever grants tokens.
class Transport {
 public:
  virtual ~Transport() = default;
  // Returns the bytes that travel, the transport's own wrapping included; 0: the peer is gone.
  virtual size_t Send(const char* frame, size_t size) = 0;
  // Receives one frame of at most wire::kTenantFrameMax bytes, its size returned. 0: there is none
  // now, or, with `wait`, none came within five seconds or the peer is gone.
  virtual size_t Receive(char* frame, bool wait) = 0;
  // Readable when there is something to receive; -1: cannot be polled.
  virtual int fd() const { return -1; }
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

  // The parts of it. Each returns false when the peer is gone; AwaitToken also after five seconds.
  bool Ask();
  bool AwaitToken();
  bool Confirm();  // says Holding
  bool Return();   // says Idle
  // Takes what has come meanwhile and answers as the protocol wants it: a token for one that is
  // idle is answered with its State, so that its return counts.
  bool Serve();
  bool holding() const { return state_.phase == wire::Phase::kHolding; }
  int fd() const { return transport_->fd(); }

  // Bytes that travel to ask for the token, for a raw echo of the same size.
  size_t frame_size() const { return frame_size_; }

 private:
  explicit Tenant(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}
  // The bytes that travelled; 0: the peer is gone.
  size_t SendState(wire::Phase phase);
  bool OnFrame(const char* data, size_t size);

  std::unique_ptr<Transport> transport_;
  wire::State state_;
  size_t frame_size_ = 0;
};

}  // namespace baton::cli

#endif  // BATON_CLI_TENANT_LINK_H_
