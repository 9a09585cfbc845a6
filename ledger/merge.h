// Batches in one, where there is no room or no use for each. Pure. Thread safe.
#ifndef BATON_LEDGER_MERGE_H_
#define BATON_LEDGER_MERGE_H_

#include "ledger/ledger.h"

namespace baton::ledger {

// Puts into `newer` what is only in `older`, an earlier batch of the same source: pods that have
// not moved since, idle time, peaks. Booking `newer` alone then books what booking both would, with
// less resolution in time, where IsMergedWell() says so. Else some of it is lost or booked to a
// pod's new owner.
void MergeInto(Batch&& older, Batch& newer);

// Whether nothing but resolution is lost: no pod in both has another owner in the newer one, and
// the same GPUs are in both and were there in between.
bool IsMergedWell(const Batch& older, const Batch& newer);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_MERGE_H_
