// The same worlds under each rule of world/rule.h, side by side.
#ifndef BATON_WORLD_COMPARE_H_
#define BATON_WORLD_COMPARE_H_

#include <cstdint>
#include <string>

#include "base/time.h"
#include "world/engine.h"
#include "world/histogram.h"
#include "world/rule.h"

namespace baton::world {

// What one rule did, over all seeds. Every seed is three worlds of one GPU:
//   busy         2 to 11 pods that always have work
//   interactive  a pod of 10 % with 5 ms of work every 200 ms beside 1 to 11 of those
//   sleeper      a pod of 30 % with 3 s of work, then 15 s of sleep, beside 1 to 11 of those
struct Comparison {
  // Of pods that always have work, from most ahead to most owed, in units of the longest hold L.
  double lag_low = 0;
  double lag_high = 0;
  double worst_share_points = 0;  // busy: of any 10 s, in percentage points of the GPU
  Histogram waits;                // of the interactive pod
  double jain_min = 1;            // busy: Jain's index of achieved / target, the worst world's
  uint64_t worlds = 0;
  double handoffs = 0;    // busy: per second, summed up over the worlds
  std::string violation;  // of what holds for every rule; the first one, empty when none

  void Add(const Comparison& other);
};

// One seed under one rule. Thread safe.
Comparison Compare(uint64_t seed, Rule rule, Duration length);

// A row of the table, and its head: Markdown.
std::string ComparisonHead();
std::string ComparisonRow(Rule rule, const Comparison& c);

}  // namespace baton::world

#endif  // BATON_WORLD_COMPARE_H_
