// Users of the machine who have no other right on it: who they are, and what their pods have.
#ifndef BATON_BACKEND_USERS_H_
#define BATON_BACKEND_USERS_H_

#include <cstdint>
#include <string>

#include "backend/pods.h"
#include "base/result.h"
#include "spec/users.h"

namespace baton::backend {

// The name and the groups as the machine has them; without a name, the number. It may take long
// (LDAP). Thread safe.
spec::User LookUpUser(uint32_t uid);
// kNotFound: there is no such group.
Result<uint32_t> LookUpGroup(const std::string& name);

// Of the user's pods but for `apart`; null: of all.
spec::UserPods PodsOfUser(const Pods& pods, uint32_t uid, const Pod* apart);

}  // namespace baton::backend

#endif  // BATON_BACKEND_USERS_H_
