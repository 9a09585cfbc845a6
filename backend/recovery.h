// After a restart: who held a GPU when the daemon before this one last wrote.
#ifndef BATON_BACKEND_RECOVERY_H_
#define BATON_BACKEND_RECOVERY_H_

#include "backend/client_table.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/tokens.h"
#include "backend/usage_book.h"
#include "node/event_log.h"

namespace baton::backend {

// The members of `gpu`'s holder file become clients that hold: nothing is granted there until they
// have come back and drained, or died. The GPU must be known to `tokens` with its pods.
void RestoreHolders(Gpu& gpu, const Pods& pods, const UsageBook& usage, ClientTable& clients,
                    Tokens& tokens, node::EventLog& log);

}  // namespace baton::backend

#endif  // BATON_BACKEND_RECOVERY_H_
