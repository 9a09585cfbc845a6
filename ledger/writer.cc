#include "ledger/writer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ledger/merge.h"

namespace baton::ledger {
namespace {

using std::chrono::seconds;

constexpr Duration kBackoffMin = seconds(1);
constexpr Duration kBackoffMax = seconds(60);
constexpr Duration kTrimEvery = seconds(60);
constexpr Duration kStopMax = seconds(5);
// A batch that fails so often while the ledger answers otherwise is the ledger's end of it.
constexpr int kFailuresMax = 5;
// Beyond it Put() refuses: the writing thread hangs in the database.
constexpr size_t kHardMax = 2 * LedgerWriter::kWaitingMax;

void Tell(const LedgerWriter::Booked& booked, Result<bool> result) {
  if (booked) booked(std::move(result));
}

}  // namespace

Result<std::unique_ptr<LedgerWriter>> LedgerWriter::Start(const LedgerOptions& options, bool spool,
                                                          TrustedClock clock) {
  auto writer = Ledger::Later(options);
  if (!writer) return tl::unexpected(writer.error());
  auto reader = Ledger::Later(options);
  if (!reader) return tl::unexpected(reader.error());
  return std::unique_ptr<LedgerWriter>(
      new LedgerWriter(std::move(*writer), std::move(*reader), spool, clock));
}

LedgerWriter::LedgerWriter(std::unique_ptr<Ledger> writer, std::unique_ptr<Ledger> reader,
                           bool spool, TrustedClock clock)
    : writer_(std::move(writer)), reader_(std::move(reader)), spool_(spool), clock_(clock) {
  write_thread_ = std::thread([this] { WriteLoop(); });
  read_thread_ = std::thread([this] { ReadLoop(); });
}

LedgerWriter::~LedgerWriter() { Stop(); }

void LedgerWriter::Put(Batch batch, Booked booked) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (waiting_.size() < kHardMax) {
      waiting_.push_back({std::move(batch), std::move(booked), 0});
    } else {
      refused_.push_back(std::move(booked));
    }
  }
  write_wakeup_.notify_one();
}

void LedgerWriter::Record(Change change) {
  Add([change = std::move(change)](Ledger& ledger) { return ledger.Record(change); });
}

void LedgerWriter::RecordSettings(Change by, Settings settings) {
  Add([by = std::move(by), settings = std::move(settings)](Ledger& ledger) {
    return ledger.RecordSettings(by, settings);
  });
}

void LedgerWriter::Add(Note note) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (notes_.size() >= kChangesWaitingMax) notes_.pop_front();
    notes_.push_back(std::move(note));
  }
  write_wakeup_.notify_one();
}

bool LedgerWriter::Ask(std::function<void(Ledger&)> question) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || questions_.size() >= kQuestionsMax) return false;
    questions_.push_back(std::move(question));
  }
  read_wakeup_.notify_one();
  return true;
}

std::string LedgerWriter::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

std::string LedgerWriter::TakeNotice() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notice_, {});
}

void LedgerWriter::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) stop_by_ = MonotonicNow() + kStopMax;
    stopping_ = true;
  }
  write_wakeup_.notify_one();
  read_wakeup_.notify_one();
  if (write_thread_.joinable()) write_thread_.join();
  if (read_thread_.joinable()) read_thread_.join();
}

void LedgerWriter::Say(std::string trouble, std::string notice) {
  const std::lock_guard lock(mutex_);
  trouble_ = std::move(trouble);
  if (!notice.empty()) notice_ = std::move(notice);
}

void LedgerWriter::WriteLoop() {
  Instant trim_at = MonotonicNow() + kTrimEvery;
  Probe();
  std::unique_lock lock(mutex_);
  while (true) {
    const Instant now = MonotonicNow();
    const bool may_try = backoff_ == Duration{0} || now >= retry_at_;
    if (!refused_.empty()) {
      const std::vector<Booked> refused = std::exchange(refused_, {});
      lock.unlock();
      for (const Booked& booked : refused) {
        Tell(booked, Fail(ErrorCode::kUnavailable, "the ledger hangs, and too many batches wait"));
      }
      lock.lock();
    } else if (stopping_ && ((waiting_.empty() && notes_.empty()) || backoff_ != Duration{0} ||
                             now >= stop_by_)) {
      break;
    } else if (waiting_.size() > kWaitingMax) {
      Merge(lock);
    } else if (!waiting_.empty() && may_try) {
      Waiting first = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Write(std::move(first));
      lock.lock();
    } else if (!notes_.empty() && may_try) {
      Note note = std::move(notes_.front());
      notes_.pop_front();
      lock.unlock();
      WriteDown(std::move(note));
      lock.lock();
    } else if (backoff_ != Duration{0} && may_try) {
      lock.unlock();
      Probe();
      lock.lock();
    } else if (now >= trim_at && backoff_ == Duration{0}) {
      trim_at = now + kTrimEvery;
      if (!clock_.Sees(WallNow(), now)) continue;
      lock.unlock();
      if (auto done = writer_->Trim(WallNow()); !done) {
        Say(done.error().message, writer_->TakeTrouble());
        backoff_ = kBackoffMin;
        retry_at_ = MonotonicNow() + backoff_;
      }
      lock.lock();
    } else {
      const Instant wake = backoff_ == Duration{0} ? trim_at : retry_at_;
      write_wakeup_.wait_for(lock, std::max(Duration{0}, wake - now));
    }
  }
  const std::deque<Waiting> left = std::exchange(waiting_, {});
  lock.unlock();
  for (const Waiting& waiting : left) {
    Tell(waiting.booked, Fail(ErrorCode::kUnavailable, "the ledger was stopped first"));
  }
}

void LedgerWriter::Write(Waiting waiting) {
  if (const WallTime wall = WallNow(); clock_.Sees(wall, MonotonicNow())) {
    waiting.batch.to = std::min(waiting.batch.to, wall + kAheadMax);
  }
  const Result<bool> result =
      spool_ ? writer_->ApplyAndSpool(waiting.batch) : writer_->Apply(waiting.batch);
  std::string notice = writer_->TakeTrouble();
  if (result) {
    backoff_ = Duration{0};
    Say({}, std::move(notice));
    Tell(waiting.booked, result);
    return;
  }
  Say(result.error().message, notice);
  // Moved aside: the next call begins anew.
  const bool at_once = !notice.empty();
  if (!at_once && result.error().code != ErrorCode::kUnavailable &&
      (result.error().code == ErrorCode::kInvalid || ++waiting.failures >= kFailuresMax) &&
      writer_->LastOf(waiting.batch.source)) {
    // The ledger is well, so it is the batch.
    backoff_ = Duration{0};
    Tell(waiting.booked, result);
    return;
  }
  backoff_ = backoff_ == Duration{0} ? kBackoffMin : std::min(2 * backoff_, kBackoffMax);
  retry_at_ = MonotonicNow() + (at_once ? Duration{0} : backoff_);
  const std::lock_guard lock(mutex_);
  waiting_.push_front(std::move(waiting));
}

// What the ledger will never take is not tried again.
void LedgerWriter::WriteDown(Note note) {
  const Result<void> result = note(*writer_);
  std::string notice = writer_->TakeTrouble();
  const bool at_once = !notice.empty();
  Say(result ? std::string() : result.error().message, std::move(notice));
  backoff_ = result ? Duration{0}
                    : (backoff_ == Duration{0} ? kBackoffMin : std::min(2 * backoff_, kBackoffMax));
  if (result) return;
  retry_at_ = MonotonicNow() + (at_once ? Duration{0} : backoff_);
  if (result.error().code == ErrorCode::kInternal && writer_->LastOf("")) return;
  const std::lock_guard lock(mutex_);
  notes_.push_front(std::move(note));
}

void LedgerWriter::Probe() {
  const Result<Ledger::Last> result = writer_->LastOf("");
  std::string notice = writer_->TakeTrouble();
  if (result) {
    backoff_ = Duration{0};
    Say({}, std::move(notice));
    return;
  }
  const bool at_once = !notice.empty();
  Say(result.error().message, std::move(notice));
  backoff_ = backoff_ == Duration{0} ? kBackoffMin : std::min(2 * backoff_, kBackoffMax);
  retry_at_ = MonotonicNow() + (at_once ? Duration{0} : backoff_);
}

// The oldest batch that has a later one of its source, into that one; the oldest that loses nothing
// by it, where there is one. Nobody but this thread takes from the queue or changes what is in it,
// and others only append to it, which moves nothing.
void LedgerWriter::Merge(std::unique_lock<std::mutex>& lock) {
  std::vector<const Batch*> batches;
  for (const Waiting& waiting : waiting_) batches.push_back(&waiting.batch);
  lock.unlock();
  std::optional<std::pair<size_t, size_t>> pair;
  bool well = false;
  for (size_t i = 0; i < batches.size() && !well; ++i) {
    for (size_t next = i + 1; next < batches.size(); ++next) {
      if (batches[next]->source != batches[i]->source) continue;
      well = IsMergedWell(*batches[i], *batches[next]);
      if (well || !pair) pair = {i, next};
      break;
    }
  }
  lock.lock();
  if (!pair) {
    // As many sources as batches: the oldest goes.
    Waiting oldest = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Tell(oldest.booked,
         Fail(ErrorCode::kUnavailable, "the ledger is away, and too many batches wait for it"));
    lock.lock();
    return;
  }
  const auto& [first, next] = *pair;
  Waiting older = std::move(waiting_[first]);
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(first));
  Batch newer = std::move(waiting_[next - 1].batch);
  lock.unlock();
  MergeInto(std::move(older.batch), newer);
  Tell(older.booked,
       Fail(ErrorCode::kUnavailable, "the ledger is away; this is booked with the next batch"));
  lock.lock();
  waiting_[next - 1].batch = std::move(newer);
}

void LedgerWriter::ReadLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    read_wakeup_.wait(lock, [&] { return stopping_ || !questions_.empty(); });
    if (questions_.empty()) return;
    const std::function<void(Ledger&)> question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    question(*reader_);
    std::string notice = reader_->TakeTrouble();
    lock.lock();
    if (!notice.empty()) notice_ = std::move(notice);
  }
}

}  // namespace baton::ledger
