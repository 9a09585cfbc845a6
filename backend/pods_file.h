// Where the pods are kept over restarts: pods.json, with all of them as they were once, and
// journals of what changed since. A change costs one record, however many pods there are.
//
//   pods.json (generation 7) ── pods.journal-7 ── pods.journal-8: written to
//
// When the journals have become longer than pods.json, it is written anew: a journal of the next
// generation is begun, then all pods are written to pods.json.new in steps between which the loop
// serves others, and that replaces pods.json. A pod that changes meanwhile is in that journal too,
// and records can be applied twice. A daemon that is killed at any instant leaves either pods.json
// with its journals, or the next one with its own; what is left of others is removed at the start.
// A record that its writer could not complete is void.
//
// pods.json of version 1 had no journals; a daemon of that version refuses later ones.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_PODS_FILE_H_
#define BATON_BACKEND_PODS_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/pods.h"
#include "backend/pods_disk.h"
#include "base/time.h"
#include "node/event_log.h"

namespace baton::backend {

class PodsFile {
 public:
  // Journals are not shorter than this before pods.json is written anew, in bytes.
  static constexpr size_t kJournalsLeast = size_t{1} << 20;
  // Pods that are written to it in one step: some ten microseconds each.
  static constexpr size_t kPodsAtOnce = 16;

  // Runs `step` on the loop, soon.
  using Later = std::function<void(std::function<void()> step)>;

  // `journals_least`: see kJournalsLeast.
  PodsFile(std::shared_ptr<PodsDisk> disk, Pods& pods, node::EventLog& log,
           size_t journals_least = kJournalsLeast);
  ~PodsFile() { *alive_ = false; }
  // Until it is said, pods.json is written anew at once, whatever it takes.
  void SetLater(Later later) { later_ = std::move(later); }

  // What Load() found.
  struct Found {
    bool known = false;                 // the pods of before are there
    std::vector<std::string> troubles;  // sentences for the operator
  };
  // Reads the pods, once, before anything else. What is damaged is moved aside. An error is one
  // line for the operator: files that cannot be read, or that a newer version of Baton wrote.
  Result<Found> Load();

  Pods& pods() { return pods_; }
  const Pods& pods() const { return pods_; }
  // Writes what changed. Where that fails the daemon goes on, and degraded() says why.
  void Save();
  // The same, with all that could wait.
  void SaveAll();
  // Tries again what failed; due now and then.
  void Tend(Instant now);
  // Why the files are not as they should be; empty when they are.
  const std::string& degraded() const {
    return write_trouble_.empty() ? rewrite_trouble_ : write_trouble_;
  }

  // What changes while there is one is written at its end.
  class Batch {
   public:
    explicit Batch(PodsFile& file) : file_(file) { ++file_.batches_; }
    ~Batch() {
      if (--file_.batches_ == 0) file_.Save();
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    PodsFile& file_;
  };

 private:
  struct Rewriting;  // pods.json, in steps
  // What is wrong with the journals; empty: nothing.
  Result<std::string> LoadJournals(PodsImage& image);
  void PutAside(const std::vector<uint64_t>& journals);
  std::vector<uint64_t> Journals() const;
  bool HaveRecords(const std::vector<uint64_t>& journals) const;
  void WriteAtOnce();
  void Write(size_t peaks_most);
  bool Append(std::string text, uint64_t records);
  Result<void> BeginJournal();
  bool IsLong() const;
  void Rewrite();
  void StepLater();
  void GoOn();
  void Finish();
  void GiveUp(const Error& error);
  bool AllStored() const;
  void CannotSave(const Error& error);
  void SetTrouble(std::string& which, std::string trouble);

  const std::shared_ptr<PodsDisk> disk_;
  Pods& pods_;
  node::EventLog& log_;
  const size_t journals_least_;
  Later later_;
  std::string write_trouble_;    // of the last change
  std::string rewrite_trouble_;  // of pods.json
  uint64_t generation_ = 0;      // of pods.json
  uint64_t journal_ = 0;         // generation of the journal that is written to
  uint64_t records_ = 0;         // in it
  uint64_t stored_id_ = 0;       // Pods::last_id(), as stored last
  bool whole_ = false;           // it is there, and ends with a record
  // What is stored leads to the pods but for what is in their changes(). Else only a new pods.json
  // helps.
  bool anchored_ = false;
  size_t pods_bytes_ = 0;     // of pods.json
  size_t journal_bytes_ = 0;  // of its journals together
  size_t batches_ = 0;
  std::shared_ptr<Rewriting> rewriting_;
  Duration pause_{0};  // after the last attempt to write pods.json anew; 0: it went well
  Instant next_try_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_FILE_H_
