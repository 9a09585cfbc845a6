#include "k8s/binder/retries.h"

#include <algorithm>
#include <utility>

namespace baton::k8s {

Duration BackoffAfter(uint32_t failures, const CoreOptions& options) {
  const uint32_t shift = std::min<uint32_t>(failures, 16);
  return std::min(options.retry_max, options.retry_min * (int64_t{1} << shift));
}

bool IsUncertain(const ApiError& error) {
  return error.status == 0 || error.status == 401 || error.status == 408 || error.status == 429 ||
         error.status >= 500;
}

bool RefusesEviction(const ApiError& error, uint32_t failures) {
  constexpr uint32_t kStays = 6;
  if (error.reason == kDisruptionBudget) return true;
  if (error.status >= 500) {
    return failures >= kStays ||
           error.message.find("more than one PodDisruptionBudget") != std::string::npos;
  }
  return !IsUncertain(error) && !error.not_found() && !error.conflict();
}

AfterFailure Classify(WriteKind kind, const ApiError& error) {
  if (IsUncertain(error)) return AfterFailure::kRetry;
  const bool creates = kind == WriteKind::kCreateChild;
  // Where a child is created it is the namespace that is missing.
  if (error.not_found()) return creates ? AfterFailure::kReject : AfterFailure::kWaitForNewer;
  // Of two pods that count in one quota, one meets the other.
  if (error.conflict()) return creates ? AfterFailure::kRetry : AfterFailure::kWaitForNewer;
  const bool binds = kind == WriteKind::kBind;
  // It is bound already, perhaps by us, or another has its name: the watch will tell.
  if (error.exists() && (creates || binds)) return AfterFailure::kWaitForNewer;
  if (creates || binds || kind == WriteKind::kPatchPod) {
    return AfterFailure::kReject;
  }
  return AfterFailure::kRetry;
}

Instant Retries::at(const std::string& key) const {
  const auto it = names_.find(key);
  return it == names_.end() ? kAlways : it->second.at;
}

void Retries::Later(const std::string& key, Instant now, Duration at_least) {
  Name& name = names_[key];
  name.at = now + std::max(BackoffAfter(name.failures++, options_),
                           std::min(at_least, options_.retry_max));
}

uint32_t Retries::failures(const std::string& key) const {
  const auto it = names_.find(key);
  return it == names_.end() ? 0 : it->second.failures;
}

void Retries::WaitForNewer(const std::string& key, Instant now) {
  names_[key].waits_for_newer = true;
  Later(key, now, Duration(0));
}

void Retries::Now(const std::string& key) {
  if (const auto it = names_.find(key); it != names_.end()) it->second.at = kAlways;
}

void Retries::NewerSeen(const std::string& key) {
  const auto it = names_.find(key);
  if (it == names_.end() || !std::exchange(it->second.waits_for_newer, false)) return;
  it->second.at = kAlways;
}

void Retries::Succeeded(const std::string& key) {
  const auto it = names_.find(key);
  if (it == names_.end()) return;
  it->second.failures = 0;
  it->second.at = kAlways;
}

void Retries::Reject(const std::string& key, Reason reason, Instant now) {
  Name& name = names_[key];
  name.rejection = std::move(reason);
  name.rejected_until = now + BackoffAfter(name.rejections++, options_);
}

void Retries::Accept(const std::string& key) {
  const auto it = names_.find(key);
  if (it == names_.end()) return;
  it->second.rejection = Reason();
  it->second.rejections = 0;
  it->second.rejected_until = kAlways;
}

const Reason& Retries::rejection(const std::string& key) const {
  static const Reason none;
  const auto it = names_.find(key);
  return it == names_.end() ? none : it->second.rejection;
}

Instant Retries::rejected_until(const std::string& key) const {
  const auto it = names_.find(key);
  return it == names_.end() ? kAlways : it->second.rejected_until;
}

void Retries::ForgetWaiter(const std::string& key) {
  if (const auto it = names_.find(key); it != names_.end()) it->second.failures = 0;
  Accept(key);
}

}  // namespace baton::k8s
