// What Ledger::Decayed() keeps from one question to the next: of a year of a large cluster it would
// add up a million buckets each time, of which only the newest change.
#ifndef BATON_LEDGER_KEPT_USE_H_
#define BATON_LEDGER_KEPT_USE_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "ledger/database.h"

namespace baton::ledger {

// The sums of all buckets before `to`, older than `days_end` by the day, then by the hour. They are
// right as long as nothing is booked there any more: whoever does so counts `rewritten` (in the
// table meta) up. What is booked in the newest hour that there is, or in the one before, is no
// such thing: `to` is never later than that.
struct KeptUse {
  struct Sum {
    double held_ns = 0;
    double decayed_ns = 0;      // as of `as_of_s`
    double uncontended_ns = 0;  // the part of it
  };
  using Sums =
      std::map<std::tuple<std::string, std::string, std::string>, Sum>;  // team, user, model

  double half_life_s = 0;  // 0: nothing is kept
  int64_t days_end = 0;
  int64_t rewritten = 0;
  int64_t to = 0;
  double as_of_s = 0;
  Sums sums = {};
};

// In a transaction that writes. Buckets that may be kept somewhere are about to change.
void NoteRewritten(Database& database);
// Use is about to be booked, from this second on: that is a change of what may be kept where it is
// before the newest two hours.
void NoteUseAt(Database& database, int64_t second);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_KEPT_USE_H_
