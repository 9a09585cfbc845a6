// Listening on a unix socket whose file may be left over from a daemon that died.
#ifndef BATON_NODE_LISTEN_UNIX_H_
#define BATON_NODE_LISTEN_UNIX_H_

#include <sys/types.h>

#include <string>

#include "base/file.h"
#include "base/result.h"

namespace baton::node {

// A unix socket of `type` bound to `path` and listening, non-blocking, with file mode `mode`. The
// lock on `lock_path` that it takes into `lock` is what tells a live daemon from a dead one's
// socket: kExists when somebody has it.
Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode,
                            const std::string& lock_path, UniqueFd& lock);

}  // namespace baton::node

#endif  // BATON_NODE_LISTEN_UNIX_H_
