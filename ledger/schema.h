// The ledger's tables and how they came to be: a list of steps, each from one version to the next.
#ifndef BATON_LEDGER_SCHEMA_H_
#define BATON_LEDGER_SCHEMA_H_

#include "ledger/database.h"

namespace baton::ledger {

// Brings the tables to this program's version, in one transaction; makes them where there are none.
// Throws DatabaseError: kInvalid where the schema is newer or the tables are somebody else's.
void Migrate(Database& database);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_SCHEMA_H_
