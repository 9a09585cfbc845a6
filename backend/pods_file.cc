#include "backend/pods_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "backend/pods_text.h"

namespace baton::backend {
namespace {

constexpr const char* kPods = "pods.json";
constexpr const char* kFresh = "pods.json.new";
const std::string kJournal = "pods.journal-";
// Between two attempts to write pods.json anew, the first time and at most.
constexpr Duration kPauseLeast = std::chrono::seconds(1);
constexpr Duration kPauseMost = std::chrono::minutes(1);
// Of pods of which only memory_peak has changed, with another change.
constexpr size_t kPeaksAtOnce = 16;

std::string JournalName(uint64_t generation) { return kJournal + std::to_string(generation); }

}  // namespace

struct PodsFile::Rewriting {
  uint64_t generation;
  PodsRecords records;
  size_t journal_bytes_before = 0;  // which it replaces
  size_t bytes = 0;
  PodId pod{};  // the last one that was written
  PodId departed{};
};

PodsFile::PodsFile(std::shared_ptr<PodsDisk> disk, Pods& pods, node::EventLog& log,
                   size_t journals_least)
    : disk_(std::move(disk)), pods_(pods), log_(log), journals_least_(journals_least) {}

std::vector<uint64_t> PodsFile::Journals() const {
  std::vector<uint64_t> generations;
  for (const std::string& name : disk_->Names(kJournal)) {
    uint64_t generation = 0;
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + kJournal.size(), end, generation);
    // Not those that were moved aside.
    if (error == std::errc() && at == end && JournalName(generation) == name) {
      generations.push_back(generation);
    }
  }
  std::sort(generations.begin(), generations.end());
  return generations;
}

Result<PodsFile::Found> PodsFile::Load() {
  Found found;
  disk_->Remove(kFresh);  // killed while it was written
  const auto unreadable = [](const Error& error) {
    // Its pods would be forgotten, and it would be replaced.
    return Fail(
        error.code == ErrorCode::kDenied ? error.code : ErrorCode::kInternal,
        error.message +
            "; make it readable, or move pods.json and pods.journal-* away to start without "
            "the pods in them");
  };
  const auto text = disk_->Read(kPods);
  if (!text && text.error().code != ErrorCode::kNotFound) return unreadable(text.error());
  std::string damage;
  PodsImage image;
  if (text) {
    auto read = ReadPodsText(*text, generation_);
    if (!read && read.error().code == ErrorCode::kDenied) {
      return Fail(ErrorCode::kDenied,
                  fmt::format("{}: {}. Install that version again, or move pods.json and "
                              "pods.journal-* away to start without the pods in them",
                              disk_->PathOf(kPods), read.error().message));
    }
    if (read) {
      image = std::move(*read);
      pods_bytes_ = text->size();
      anchored_ = generation_ != 0;
    } else {
      damage = read.error().message;
    }
  }
  const std::vector<uint64_t> journals = Journals();
  std::string journals_damage;
  if (anchored_) {
    auto loaded = LoadJournals(image);
    if (!loaded) return unreadable(loaded.error());
    journals_damage = std::move(*loaded);
    anchored_ = journals_damage.empty();
  } else if (HaveRecords(journals)) {
    journals_damage = "the pods.json to which they belong is not there";
  }
  if (text && damage.empty()) {
    auto restored = pods_.Restore(std::move(image));
    if (!restored) damage = restored.error().message;
  }
  found.known = text && damage.empty();
  stored_id_ = pods_.last_id();
  if (!journals.empty()) journal_ = std::max(journal_, journals.back());
  if (!damage.empty()) {
    const auto aside = disk_->MoveAside(kPods);
    if (!aside) return tl::unexpected(aside.error());
    found.troubles.push_back(
        fmt::format("{} was damaged ({}); it was moved to {}, and the pods in it must be created "
                    "again",
                    disk_->PathOf(kPods), damage, *aside));
    anchored_ = false;
    generation_ = 0;
    PutAside(journals);
  }
  if (!journals_damage.empty()) {
    found.troubles.push_back(
        fmt::format("{}* were damaged ({}); they are moved aside, and what changed after "
                    "that must be done again",
                    disk_->PathOf(kJournal), journals_damage));
  }
  if (!anchored_) WriteAtOnce();
  // Once what was good in them is stored elsewhere.
  if (!journals_damage.empty() && anchored_ && damage.empty()) PutAside(journals);
  for (const uint64_t generation : journals) {
    if (anchored_ && generation < generation_) disk_->Remove(JournalName(generation));
  }
  return found;
}

// In turn, until one is bad.
Result<std::string> PodsFile::LoadJournals(PodsImage& image) {
  std::vector<uint64_t> journals = Journals();
  std::erase_if(journals, [this](uint64_t generation) { return generation < generation_; });
  uint64_t next = generation_;
  if (journals.empty()) return JournalName(next) + " is missing";
  for (const uint64_t generation : journals) {
    if (generation != next++) return JournalName(next - 1) + " is missing";
    const std::string name = JournalName(generation);
    const auto text = disk_->Read(name);
    if (!text) return tl::unexpected(text.error());
    const auto read = ReadJournalText(*text, generation, image);
    if (!read && read.error().code == ErrorCode::kDenied) {
      return Fail(ErrorCode::kDenied, disk_->PathOf(name) + ": " + read.error().message);
    }
    if (!read) return name + ": " + read.error().message;
    if (!read->damage.empty()) return name + ": " + read->damage;
    journal_ = generation;
    records_ = read->records;
    whole_ = !read->torn;
    journal_bytes_ += text->size();
  }
  return "";
}

// Killed before it wrote its first pods.json, it has left an empty one.
bool PodsFile::HaveRecords(const std::vector<uint64_t>& journals) const {
  return std::any_of(journals.begin(), journals.end(), [this](uint64_t generation) {
    const auto text = disk_->Read(JournalName(generation));
    return !text || !JournalFirstLine(generation).starts_with(*text);
  });
}

void PodsFile::PutAside(const std::vector<uint64_t>& journals) {
  for (const uint64_t generation : journals) {
    if (auto aside = disk_->MoveAside(JournalName(generation)); !aside) {
      log_.Add(node::EventLog::Level::kWarning, "daemon", aside.error().message);
    }
  }
}

void PodsFile::WriteAtOnce() {
  whole_ = false;
  pods_.changes() = {};
  const auto write = [&]() -> Result<void> {
    if (auto made = disk_->Create(JournalName(journal_ + 1), JournalFirstLine(journal_ + 1));
        !made) {
      return made;
    }
    ++journal_;
    const std::string text = WritePodsText(pods_, journal_);
    if (auto made = disk_->Create(kFresh, text); !made) return made;
    if (auto renamed = disk_->Rename(kFresh, kPods); !renamed) return renamed;
    pods_bytes_ = text.size();
    return {};
  };
  if (const auto written = write(); !written) return GiveUp(written.error());
  generation_ = journal_;
  records_ = journal_bytes_ = 0;
  stored_id_ = pods_.last_id();
  whole_ = anchored_ = true;
  pause_ = Duration(0);
  SetTrouble(write_trouble_, "");
  SetTrouble(rewrite_trouble_, "");
}

void PodsFile::Save() { Write(kPeaksAtOnce); }

void PodsFile::SaveAll() {
  if (!anchored_ && rewriting_ == nullptr) return WriteAtOnce();
  for (const PodId id : std::exchange(pods_.changes().peaks, {})) pods_.Changed(id);
  // Pods that are not stored have ids too, which every record tells.
  if (pods_.last_id() != stored_id_) pods_.changes().cordoned = true;
  Write(0);
}

void PodsFile::Tend(Instant now) {
  if (pause_ != Duration(0) && now >= next_try_ && (!anchored_ || IsLong())) Rewrite();
  if (!write_trouble_.empty()) Write(0);
}

bool PodsFile::IsLong() const { return journal_bytes_ > std::max(journals_least_, pods_bytes_); }

void PodsFile::Write(size_t peaks_most) {
  if (batches_ > 0) return;
  if (!anchored_ && rewriting_ == nullptr && pause_ == Duration(0)) Rewrite();
  if (!anchored_ && rewriting_ == nullptr) return;  // what a new pods.json will have
  PodsChanges& changes = pods_.changes();
  if (AllStored()) {
    if (anchored_) SetTrouble(write_trouble_, "");
    return;
  }
  if (!whole_) {
    if (const auto begun = BeginJournal(); !begun) return CannotSave(begun.error());
  }
  PodsRecords records(pods_, journal_, records_);
  const auto alone =
      static_cast<size_t>(std::count_if(changes.departed.begin(), changes.departed.end(),
                                        [&](PodId id) { return changes.pods.count(id) == 0; }));
  for (const PodId id : changes.pods) changes.peaks.erase(id);
  records.AddGroup(changes.pods.size() + alone + (changes.cordoned ? 1 : 0) +
                   std::min(peaks_most, changes.peaks.size()));
  for (const PodId id : changes.pods) {
    records.AddChanged(id, changes.departed.count(id) != 0);
  }
  for (const PodId id : changes.departed) {
    if (changes.pods.count(id) == 0) records.AddDeparted(id);
  }
  if (changes.cordoned) records.AddCordoned();
  auto peak = changes.peaks.begin();
  for (size_t i = 0; i < peaks_most && peak != changes.peaks.end(); ++i, ++peak) {
    records.AddChanged(*peak, false);
  }
  if (!Append(std::move(records.text()), records.number())) return;
  changes.peaks.erase(changes.peaks.begin(), peak);
  changes.pods.clear();
  changes.departed.clear();
  changes.cordoned = false;
  if (IsLong() && rewriting_ == nullptr && pause_ == Duration(0)) Rewrite();
}

Result<void> PodsFile::BeginJournal() {
  const uint64_t next = journal_ + 1;
  if (auto made = disk_->Create(JournalName(next), JournalFirstLine(next)); !made) return made;
  journal_ = next;
  records_ = 0;
  whole_ = true;
  return {};
}

// `records`: in the journal then.
bool PodsFile::Append(std::string text, uint64_t records) {
  const auto added = disk_->Append(JournalName(journal_), text);
  if (!added) {
    whole_ = added.error().code == ErrorCode::kUnavailable;
    // It may be gone, and with it what was in it.
    anchored_ = anchored_ && whole_;
    if (!whole_) rewriting_.reset();
    CannotSave(added.error());
    return false;
  }
  records_ = records;
  stored_id_ = pods_.last_id();
  journal_bytes_ += text.size();
  if (anchored_) SetTrouble(write_trouble_, "");
  return true;
}

void PodsFile::Rewrite() {
  if (rewriting_ != nullptr) return;
  // A journal in which nothing stands yet will do.
  if (!whole_ || records_ != 0 || journal_ == generation_) {
    if (const auto begun = BeginJournal(); !begun) return GiveUp(begun.error());
  }
  rewriting_ = std::make_shared<Rewriting>(
      Rewriting{journal_, PodsRecords(pods_, journal_, 0), journal_bytes_});
  rewriting_->records.text() = PodsFirstLine(journal_);
  rewriting_->records.AddCordoned();
  const std::string text = std::exchange(rewriting_->records.text(), {});
  if (auto made = disk_->Create(kFresh, text); !made) return GiveUp(made.error());
  rewriting_->bytes = text.size();
  if (later_) return StepLater();
  while (rewriting_ != nullptr) GoOn();
}

void PodsFile::StepLater() {
  later_([this, alive = alive_, work = std::weak_ptr(rewriting_)] {
    if (*alive && !work.expired()) GoOn();
  });
}

// One step.
void PodsFile::GoOn() {
  Rewriting& work = *rewriting_;
  const auto& pods = pods_.all();
  const auto& departed = pods_.departed();
  auto pod = pods.upper_bound(work.pod);
  auto gone = departed.upper_bound(work.departed);
  for (size_t i = 0; i < kPodsAtOnce; ++i) {
    if (pod != pods.end()) {
      if (!pod->second.throw_away) work.records.AddPod(pod->second);
      work.pod = pod++->first;
    } else if (gone != departed.end()) {
      work.records.AddDeparted(gone->first);
      work.departed = gone++->first;
    }
  }
  const bool done = pod == pods.end() && gone == departed.end();
  if (done) work.records.AddEnd();
  const std::string text = std::exchange(work.records.text(), {});
  if (auto added = disk_->Append(kFresh, text); !added) return GiveUp(added.error());
  work.bytes += text.size();
  if (done) return Finish();
  if (later_) StepLater();
}

void PodsFile::Finish() {
  if (auto renamed = disk_->Rename(kFresh, kPods); !renamed) return GiveUp(renamed.error());
  const auto done = std::exchange(rewriting_, nullptr);
  for (uint64_t g = generation_; g < done->generation; ++g) disk_->Remove(JournalName(g));
  generation_ = done->generation;
  pods_bytes_ = done->bytes;
  journal_bytes_ -= done->journal_bytes_before;
  anchored_ = true;
  pause_ = Duration(0);
  SetTrouble(rewrite_trouble_, "");
  if (AllStored()) SetTrouble(write_trouble_, "");
}

void PodsFile::GiveUp(const Error& error) {
  rewriting_.reset();
  disk_->Remove(kFresh);
  pause_ = std::clamp(2 * pause_, kPauseLeast, kPauseMost);
  next_try_ = MonotonicNow() + pause_;
  if (!anchored_) {
    CannotSave(error);
  } else {
    SetTrouble(rewrite_trouble_, fmt::format("{} could not be written anew: {}; its journals grow",
                                             disk_->PathOf(kPods), error.message));
  }
}

bool PodsFile::AllStored() const {
  const PodsChanges& changes = pods_.changes();
  return changes.pods.empty() && changes.departed.empty() && !changes.cordoned;
}

void PodsFile::CannotSave(const Error& error) {
  SetTrouble(write_trouble_, "pods could not be saved: " + error.message +
                                 "; after a restart the newest would be missing");
}

void PodsFile::SetTrouble(std::string& which, std::string trouble) {
  if (!trouble.empty() && which.empty()) {
    log_.Add(node::EventLog::Level::kWarning, "daemon", trouble);
  }
  which = std::move(trouble);
}

}  // namespace baton::backend
