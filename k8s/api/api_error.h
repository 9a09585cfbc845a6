// ApiErrors from what came of a request. Pure.
#ifndef BATON_K8S_API_API_ERROR_H_
#define BATON_K8S_API_API_ERROR_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "k8s/api/object.h"
#include "net/client_connection.h"

namespace baton::k8s {

// Of a failure's answer. `body`: it as a Status object, where it is one. `asked`: "GET URL".
ApiError ErrorOf(const net::HttpAnswer& answer, const std::optional<Json>& body,
                 const std::string& asked);
// No answer came, or not all of it.
ApiError ErrorOf(const net::HttpError& error, const std::string& asked);
// An answer that is not what it should be: `what` says so.
ApiError BadAnswer(const std::string& what);
ApiError StoppedError();

// The beginning of an answer as one line.
std::string Excerpt(const std::string& body);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_API_ERROR_H_
