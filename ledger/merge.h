// Batches in one, where there is no room or no use for each. Pure. Thread safe.
#ifndef BATON_LEDGER_MERGE_H_
#define BATON_LEDGER_MERGE_H_

#include "ledger/ledger.h"

namespace baton::ledger {

// Puts into `newer` what is only in `older`, an earlier batch of the same source: pods that have
// not moved since, idle time, peaks. Booking `newer` alone then books what booking both would, with
// less resolution in time.
void MergeInto(Batch&& older, Batch& newer);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_MERGE_H_
