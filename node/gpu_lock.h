// The exclusive right of one daemon of this machine to manage a GPU: a lock on a file named after
// the GPU's uuid. The kernel gives it up with the process, however that ends.
#ifndef BATON_NODE_GPU_LOCK_H_
#define BATON_NODE_GPU_LOCK_H_

#include <string>

#include "base/file.h"
#include "base/result.h"
#include "node/process.h"

namespace baton::node {

// kExists, naming the pid that has it, when another daemon manages the GPU already. kDenied where
// another user could hold the lock or choose what is locked: `lock_dir` and the file in it must be
// root's or this daemon's own, nobody else may write to the folder or open the file, and neither
// may be a link. Nothing is written before the lock is held.
Result<UniqueFd> LockGpu(const std::string& lock_dir, const std::string& uuid);
// Whether LockGpu() could keep its files there; makes and locks nothing.
Result<void> CheckLockDir(const std::string& lock_dir);
// kExists: another daemon has the GPU, as far as is seen without trying.
Result<void> CheckUnlocked(const std::string& lock_dir, const std::string& uuid);

}  // namespace baton::node

#endif  // BATON_NODE_GPU_LOCK_H_
