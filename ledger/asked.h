// What a question is about: whose accounts, and which buckets. Shared by what the ledger answers.
//
// Within the ledger only. Pure but for AskedPeriods(), which reads the database.
#ifndef BATON_LEDGER_ASKED_H_
#define BATON_LEDGER_ASKED_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ledger/buckets.h"
#include "ledger/database.h"
#include "ledger/ledger.h"
#include "ledger/periods.h"

namespace baton::ledger {

// kInvalid: it is not a window, or not of the years 1970 to 3000.
Result<void> Check(Window window);
// The same of the question's, and keys that do not go together.
Result<void> Check(const Question& question);

inline bool Has(const std::vector<By>& bys, By by) {
  return std::find(bys.begin(), bys.end(), by) != bys.end();
}

// A pod's key, over accounts a.
inline constexpr const char* kPodKey =
    "CASE WHEN a.name_space = '' THEN a.name ELSE a.name_space || '/' || a.name END";
// The accounts a of a team and of all below it; `below` is "TEAM/". Adds the values of its
// placeholders, which refer to the texts.
std::string OfTeam(std::string_view team, std::string_view below, std::vector<Value>& values);
// The condition under which an account a is of those asked for; empty: all are.
std::string Filter(const Question& question, const std::string& below, std::vector<Value>& values);

// The days or months of a window; where the question is by neither, the window itself. Days and
// months without any books, which a long window may have many of, are left out.
std::vector<Period> AskedPeriods(Database& database, const Question& question, const WindowCut& cut,
                                 const std::array<int64_t, 4>& floors);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_ASKED_H_
