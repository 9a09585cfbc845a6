#include "node/rate.h"

namespace baton::node {

std::shared_ptr<Rate> Rates::Of(std::string_view name, Instant now) {
  if (of_.size() >= sweep_at_) {
    std::erase_if(of_, [now](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->Full(now);
    });
    sweep_at_ = std::max<size_t>(64, 2 * of_.size());
  }
  std::shared_ptr<Rate>& rate = of_[std::string(name)];
  if (rate == nullptr) rate = std::make_shared<Rate>(per_second_, burst_, now);
  return rate;
}

void Throttle::Add(std::shared_ptr<Rate> rate, std::function<bool()> turn) {
  waiting_.push_back({std::move(rate), std::move(turn)});
  if (!awaiting_) Await();
}

void Throttle::Stop() {
  waiting_.clear();
  timer_.cancel();
}

void Throttle::Await() {
  awaiting_ = true;
  timer_.expires_after(kEvery);
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Look();
  });
}

void Throttle::Look() {
  const Instant now = MonotonicNow();
  const auto alive = alive_;
  // In rounds of one turn each, until a round had none.
  for (bool any = true; any;) {
    any = false;
    for (size_t left = waiting_.size(); left > 0; --left) {
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      if (next.rate->May(now)) {
        any = true;
        const bool again = next.turn();
        if (!*alive) return;
        if (!again) continue;
      }
      waiting_.push_back(std::move(next));
    }
  }
  awaiting_ = false;
  if (!waiting_.empty()) Await();
}

}  // namespace baton::node
