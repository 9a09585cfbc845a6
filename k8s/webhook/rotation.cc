#include "k8s/webhook/rotation.h"

namespace baton::k8s {

Result<void> Rotation::Step(WallTime now) {
  // A clock that was set back: what was, was as long ago as before.
  if (now < stepped_) {
    const Duration back = stepped_ - now;
    served_since_ -= back;
    if (serving_published_) *serving_published_ -= back;
    if (next_published_) *next_published_ -= back;
  }
  stepped_ = now;
  if (next_ && now < next_->not_before) {
    next_.reset();
    next_published_.reset();
    ++version_;
  }
  if (!serving_) {
    auto made = MakeServingCertificate(options_.names, options_.replica, now, options_.validity);
    if (!made) return tl::unexpected(made.error());
    serving_ = std::move(*made);
    served_since_ = now;
    ++version_;
    return {};
  }
  // A clock that jumped past the end, or before the beginning, leaves nothing to wait for.
  const bool over = now >= serving_->not_after || now < serving_->not_before;
  if (next_ && (over || (next_published_ && now >= *next_published_ + options_.propagation))) {
    old_authority_ = serving_->authority;
    serving_ = std::move(next_);
    serving_published_ = next_published_;
    served_since_ = now;
    next_.reset();
    next_published_.reset();
  }
  if (!old_authority_.empty() && now >= served_since_ + options_.propagation) {
    old_authority_.clear();
    ++version_;
  }
  // The last third is for what goes wrong.
  const Duration used = options_.validity / 3 * 2;
  if (!next_ && (over || now >= serving_->not_after - options_.validity + used)) {
    auto made = MakeServingCertificate(options_.names, options_.replica, now, options_.validity);
    if (!made) return tl::unexpected(made.error());
    next_ = std::move(*made);
    ++version_;
  }
  return {};
}

void Rotation::Published(WallTime now) {
  if (serving_ && !serving_published_) serving_published_ = now;
  if (next_ && !next_published_) next_published_ = now;
}

std::vector<std::string> Rotation::wanted() const {
  std::vector<std::string> all;
  if (!old_authority_.empty()) all.push_back(old_authority_);
  if (serving_) all.push_back(serving_->authority);
  if (next_) all.push_back(next_->authority);
  return all;
}

bool Rotation::ready(WallTime now) const {
  return serving_ && serving_published_ && now >= *serving_published_ + options_.propagation &&
         now < serving_->not_after && now >= serving_->not_before;
}

}  // namespace baton::k8s
