// A window step by step: what each pod did on a GPU, beside the others there and what the GPU did
// meanwhile. The sums of all steps are those of a report (Ledger::Query), to the nanosecond.
#ifndef BATON_LEDGER_HISTORY_H_
#define BATON_LEDGER_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ledger/ledger.h"

namespace baton::ledger {

struct History {
  // Steps are buckets of 10 s in windows of up to an hour, of minutes up to a day, else of hours;
  // of days where that would be too many. Where these are no longer kept, the next coarser; finer
  // at the edges of the window and of its days.
  struct Step {
    Window window;
    std::string day;  // in the question's time zone: "2026-11-21"
  };
  struct Gpu {
    std::string uuid;
    // Until when its node's use is recorded: what came after that is not known yet.
    WallTime booked_until;
  };
  // A pod on a GPU while it had one owner.
  struct Account {
    Owner owner;
    uint64_t pod = 0;    // the source's id
    size_t gpu = 0;      // of gpus
    bool asked = false;  // of those whom the question is about, else beside them
  };
  // What an account used in a step.
  struct Use {
    size_t step = 0;
    size_t account = 0;
    Counters use;
    int64_t memory_peak_mib = 0;
  };
  struct Presence {
    size_t step = 0;
    size_t gpu = 0;
    int64_t present_ns = 0;  // the GPU was there
    int64_t idle_ns = 0;     // and nobody held or wanted it
  };

  Window window;                   // as answered (Uses::window)
  std::vector<Step> steps;         // by time
  std::vector<Gpu> gpus;           // by uuid, each once
  std::vector<Account> accounts;   // all who ever were on the GPUs of those asked for
  std::vector<Use> uses;           // by step, then account
  std::vector<Presence> presence;  // by step, then GPU; only GPUs of `gpus`
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_HISTORY_H_
