// Adds up buckets in SQL, for pieces of a window.
//
// Within the ledger only. In a transaction.
#ifndef BATON_LEDGER_ADD_UP_H_
#define BATON_LEDGER_ADD_UP_H_

#include <functional>
#include <string>
#include <vector>

#include "ledger/buckets.h"
#include "ledger/database.h"
#include "ledger/settled.h"

namespace baton::ledger {

// What is asked of buckets `u`.
struct Grouped {
  Kind kind;
  std::string joins;                 // accounts a, GPUs g
  std::string select;                // the columns in front of the sums
  std::vector<std::string> columns;  // that are added up
  std::string where;                 // empty: all; its placeholders are numbered from 1
  std::string group;
};

// Hands on rows: the number of the piece, where by_piece has each added up by itself, else 0;
// grouped.select; the sums (Row::Wide()). `values`: of grouped.where's placeholders.
void AddUp(Database& database, const std::vector<Piece>& pieces, bool by_piece,
           const Grouped& grouped, std::vector<Value> values,
           const std::function<void(const Row&)>& take);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_ADD_UP_H_
