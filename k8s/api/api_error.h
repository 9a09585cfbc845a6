// ApiErrors from what came of a request. Pure.
#ifndef BATON_K8S_API_API_ERROR_H_
#define BATON_K8S_API_API_ERROR_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "k8s/api/object.h"
#include "k8s/api/stream.h"

namespace baton::k8s {

// Of a failure's answer: a Status object, or whatever else came (`text`). `asked`: "GET URL".
ApiError ErrorOf(int status, const std::optional<Json>& body, const std::string& text,
                 const std::string& asked);
// No answer came, or not all of it.
ApiError ErrorOf(const StreamError& error, const std::string& asked);
// An answer that is not what it should be: `what` says so.
ApiError BadAnswer(const std::string& what);
ApiError StoppedError();

// The beginning of an answer as one line.
std::string Excerpt(const std::string& body);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_API_ERROR_H_
