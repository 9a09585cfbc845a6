// The report "workload": what came to the GPUs in a window and what it did there, by the books, as
// the files that `baton simulate cluster` plays (capacity/scenario_files.h).
#ifndef BATON_BACKEND_WORKLOAD_H_
#define BATON_BACKEND_WORKLOAD_H_

#include <cstdint>
#include <map>
#include <string>

#include "backend/reports.h"
#include "capacity/scenario.h"
#include "ledger/ledger.h"

namespace baton::backend {

// What the books do not say.
struct WorkloadView {
  // As they are now; of a daemon without teams none.
  teams::Teams teams;
  policy::Share uncontended_use{0};
  double overcommit = 1;
  devmgr::PlacementPolicy placement;
  uint32_t memory_reserve_mib = 0;
  ledger::ModelWeights weights;
  std::string here;  // name of the node that books call ""
  // The pods that are there now, by NAMESPACE/NAME: each as ledger::Change::is.
  std::map<std::string, std::string> present;
};

struct Workload {
  capacity::Scenario scenario;
  // Pods that have their parts of GPUs by MIG, MPS or another vendor's driver, and those GPUs: they
  // are left out.
  uint32_t left_out = 0;
};

// A pod came when it was made, or was asked for where it says so (asked_at), and went when it was
// deleted, by the log of changes; where the log is silent, when it used a GPU first and last. Its
// course is what it used in each bucket of ledger::Activity, as if without the others. It ends with
// its work, also where it came in the window and was there still at its end: what else it had to do
// nobody knows. Only who was there all of the time never ends. kNotFound: no pod used a GPU.
Result<Workload> WorkloadOf(ledger::Ledger& ledger, ledger::Window window,
                            const WorkloadView& view);

// As Report::ask.
Result<ReportAnswer> AskWorkload(const std::map<std::string, std::string>& field,
                                 const ReportView& view);

}  // namespace baton::backend

#endif  // BATON_BACKEND_WORKLOAD_H_
