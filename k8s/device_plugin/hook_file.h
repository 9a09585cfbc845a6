// Puts the hook where pods mount it from.
#ifndef BATON_K8S_DEVICE_PLUGIN_HOOK_FILE_H_
#define BATON_K8S_DEVICE_PLUGIN_HOOK_FILE_H_

#include <string>

#include "base/result.h"

namespace baton::k8s {

// Copies the file `source`, and an ld.so.preload that names it as containers see it, into the
// folder `folder` (made, mode 0755, where it is missing) under its own name, readable for all,
// where the contents differ. A new file takes the place of the old one at once: programs that run
// keep the old one mapped, and none ever sees a part. False: it was there already. kNotFound,
// kInternal.
Result<bool> InstallHook(const std::string& source, const std::string& folder);

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_HOOK_FILE_H_
