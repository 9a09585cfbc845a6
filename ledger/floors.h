// Until when each level's buckets have been dropped.
#ifndef BATON_LEDGER_FLOORS_H_
#define BATON_LEDGER_FLOORS_H_

#include <array>
#include <cstdint>

#include "ledger/database.h"

namespace baton::ledger {

// The second before which each level (kLevels) has no buckets any more, or none that count: never
// above that of a finer level. In a transaction.
std::array<int64_t, 4> Floors(Database& database);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_FLOORS_H_
