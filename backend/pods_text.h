// What is stored of pods, as text: records, one a line, each with a checksum. pods.json has the
// records that make the pods from nothing, a journal those of what changed since
// (backend/pods_file.h).
//
//   baton pods 2 GENERATION          the first line of pods.json
//   baton pods journal 1 GENERATION  the first line of a journal
//   CHECKSUM NUMBER JSON             a record; they are numbered from 0
//
// The last record of pods.json has "end": true.
//
// The checksum is of generation, number and JSON, so a record counts only where it was written. The
// keys of a record, of which each is what holds from then on: "last_id"; "pod": one that has come
// or changed; "gone": the id of one that was deleted; "departed": one whose last use is not in the
// books yet; "forget": the id of one whose use is; "cordoned": all GPUs that are. A record with
// "group" is followed by so many that count together or not at all. Applying records again changes
// nothing.
//
// Pure. Not thread safe.
#ifndef BATON_BACKEND_PODS_TEXT_H_
#define BATON_BACKEND_PODS_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "backend/pods.h"

namespace baton::backend {

std::string PodsFirstLine(uint64_t generation);
std::string JournalFirstLine(uint64_t generation);

// Writes records.
class PodsRecords {
 public:
  // `pods`: what is said of ids. It must outlive this.
  PodsRecords(const Pods& pods, uint64_t generation, uint64_t number)
      : pods_(pods), generation_(generation), number_(number) {}

  // The pod has come or changed.
  void AddPod(const Pod& pod);
  // As the pods are now: there, deleted, departed, or forgotten.
  void AddChanged(PodId id, bool departed_too);
  void AddDeparted(PodId id);
  void AddCordoned();
  void AddEnd();
  // The next `size` records count together.
  void AddGroup(size_t size);
  // The number of the next record.
  uint64_t number() const { return number_; }
  std::string& text() { return text_; }

 private:
  void Add(const nlohmann::json& record);

  const Pods& pods_;
  const uint64_t generation_;
  uint64_t number_;
  std::string text_;
};

// All of pods.json, as version 1 wrote it too. `generation`: 0 for version 1. kInvalid: damaged.
// kDenied: a newer version of Baton wrote it.
Result<PodsImage> ReadPodsText(std::string_view text, uint64_t& generation);
// The same text of all pods as they are.
std::string WritePodsText(const Pods& pods, uint64_t generation);

struct JournalRead {
  uint64_t records = 0;  // that were good, and are in the image now
  bool torn = false;     // the text ends within a record: its writer was killed, and it is void
  std::string damage;    // why the record after them is bad; empty: none is
};
// Adds what the journal says to `image`. kInvalid: it is not a journal of this generation. kDenied:
// as above.
Result<JournalRead> ReadJournalText(std::string_view text, uint64_t generation, PodsImage& image);

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_TEXT_H_
