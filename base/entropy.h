// Random bits from the kernel, that nobody can guess. (What must be the same on every machine is in
// base/random.h.) Thread safe.
#ifndef BATON_BASE_ENTROPY_H_
#define BATON_BASE_ENTROPY_H_

#include <cstdint>
#include <string>

namespace baton {

// 64 and 128 random bits from the kernel, never zero; the second as 32 hex digits.
uint64_t RandomId();
std::string RandomTicket();

}  // namespace baton

#endif  // BATON_BASE_ENTROPY_H_
