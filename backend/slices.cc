#include "backend/slices.h"

#include <boost/asio/post.hpp>

#include "base/time.h"

namespace baton::backend {

void Slices::Add(Step step) {
  works_.push_back(std::move(step));
  if (!under_way_) Later();
}

void Slices::Later() {
  under_way_ = true;
  boost::asio::post(io_, [this, alive = alive_] {
    if (*alive) Run();
  });
}

void Slices::Run() {
  if (works_.empty()) {
    under_way_ = false;
    return;
  }
  const Instant begun = MonotonicNow();
  if (works_.front()()) works_.pop_front();
  if (part_ <= 1) return Later();
  rest_.expires_after((part_ - 1) * (MonotonicNow() - begun));
  rest_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Run();
  });
}

}  // namespace baton::backend
