#include "base/entropy.h"

#include <sys/random.h>

#include <cstdio>

#include "base/check.h"

namespace baton {

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) BATON_CHECK(getrandom(&id, sizeof id, 0) == sizeof id);
  return id;
}

std::string RandomTicket() {
  char text[33];
  snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(RandomId()),
           static_cast<unsigned long long>(RandomId()));
  return text;
}

}  // namespace baton
