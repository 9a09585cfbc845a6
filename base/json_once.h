// nlohmann's basic_json, compiled once for all. CMake includes this into every file of a target
// that uses JSON (cmake/BatonDependencies.cmake): a fifteenth of their compile time.
#ifndef BATON_BASE_JSON_ONCE_H_
#define BATON_BASE_JSON_ONCE_H_

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;

#endif  // BATON_BASE_JSON_ONCE_H_
