// The ledger beside an event loop: one thread writes, one answers, and nobody waits for a disk.
//
// All functions may be called from any thread. Callbacks run on the writer's own threads: they must
// not throw, must not call Stop(), and should only post elsewhere what they found.
#ifndef BATON_LEDGER_WRITER_H_
#define BATON_LEDGER_WRITER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "ledger/ledger.h"
#include "ledger/trusted_clock.h"

namespace baton::ledger {

class LedgerWriter {
 public:
  using Booked = std::function<void(Result<bool>)>;
  // While the ledger is away this many batches wait (an hour of them); then the oldest is merged
  // into the next one of its source, which costs resolution in time only.
  static constexpr size_t kWaitingMax = 360;
  // Further questions are turned away while this many wait.
  static constexpr size_t kQuestionsMax = 64;

  // Starts the threads; they open the database by themselves, so a server that is away or a full
  // disk is no error here but trouble(). spool: batches are also spooled (Ledger::ApplyAndSpool).
  // `clock`: when to believe this machine's. Errors: kInvalid (options).
  static Result<std::unique_ptr<LedgerWriter>> Start(const LedgerOptions& options,
                                                     bool spool = false,
                                                     TrustedClock clock = TrustedClock());
  // A batch is booked at most this far ahead of this machine's clock, once that is believed: a node
  // whose clock is a year ahead would have its use in no report until then.
  static constexpr std::chrono::milliseconds kAheadMax = std::chrono::hours(1);
  ~LedgerWriter();  // as Stop()
  LedgerWriter(const LedgerWriter&) = delete;
  LedgerWriter& operator=(const LedgerWriter&) = delete;

  // Books the batch, in the order of the calls, and again and again until the database takes it.
  // Never blocks. `booked` (may be empty) is then called with what Apply() said: true, false where
  // it was booked before, or an error: kInvalid where it can never be booked, kUnavailable where it
  // was merged into a later batch or Stop() came first. After Stop() nothing happens.
  void Put(Batch batch, Booked booked);
  // Writes down what was changed, in the order of the calls, again and again until the database
  // takes it. Never blocks. While the ledger is away kChangesWaitingMax wait; then the oldest goes.
  static constexpr size_t kChangesWaitingMax = 10'000;
  void Record(Change change);
  void RecordSettings(Change by, Settings settings);
  // Runs `question` with a ledger for reading, after those asked before. False where too many wait
  // or Stop() was called; it is not run then. The ledger may be away: its functions say so.
  // Dropping from the spool may be done here too.
  bool Ask(std::function<void(Ledger&)> question);

  // What is wrong now, in a sentence for the operator; empty while all is well.
  std::string trouble() const;
  // What happened to the database since this was asked last and needs looking at (a damaged file
  // was moved aside); empty when nothing did.
  std::string TakeNotice();

  // Books what waits, for at most 5 s and not beyond the first failure, runs the questions asked,
  // and ends the threads. A call that hangs in the database is waited for (its driver's timeouts
  // end it within a minute).
  void Stop();

 private:
  struct Waiting {
    Batch batch;
    Booked booked;
    int failures = 0;
  };
  LedgerWriter(std::unique_ptr<Ledger> writer, std::unique_ptr<Ledger> reader, bool spool,
               TrustedClock clock);
  void WriteLoop();
  void ReadLoop();
  // The writing thread's, without the lock.
  void Write(Waiting waiting);
  using Note = std::function<Result<void>(Ledger&)>;
  void Add(Note note);
  void WriteDown(Note note);
  void Probe();
  void Merge(std::unique_lock<std::mutex>& lock);
  void Say(std::string trouble, std::string notice);

  const std::unique_ptr<Ledger> writer_;
  const std::unique_ptr<Ledger> reader_;
  const bool spool_;

  mutable std::mutex mutex_;
  std::condition_variable write_wakeup_;
  std::condition_variable read_wakeup_;
  // Under mutex_:
  std::deque<Waiting> waiting_;
  std::deque<Note> notes_;
  std::deque<std::function<void(Ledger&)>> questions_;
  std::vector<Booked> refused_;  // by Put(), to be told on the writing thread
  std::string trouble_;
  std::string notice_;
  bool stopping_ = false;
  Instant stop_by_ = kNever;

  // The writing thread's:
  Duration backoff_{0};  // 0: the last call worked
  Instant retry_at_{};
  TrustedClock clock_;

  std::thread write_thread_;
  std::thread read_thread_;
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_WRITER_H_
