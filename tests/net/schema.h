// Whether a JSON document is what docs/api/openapi.json says of it.
//
// Knows what that document uses of OpenAPI 3.0's schemas: $ref, type, nullable, enum, required,
// properties, additionalProperties (true or false), items, minimum, maximum. Other words that
// would constrain something are an error, so that none is believed to be checked and is not. (The
// validator that Debian has, valijson, does not know nullable, and brings Qt along.)
#ifndef BATON_TESTS_NET_SCHEMA_H_
#define BATON_TESTS_NET_SCHEMA_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace baton::net {

// What is wrong with `value` as components.schemas[name] of `document`, one line each, beginning
// with where ("/pods/0/name"); empty when all is well. At most 20.
std::vector<std::string> SchemaErrors(const nlohmann::json& document, const std::string& name,
                                      const nlohmann::json& value);

}  // namespace baton::net

#endif  // BATON_TESTS_NET_SCHEMA_H_
