// What a fallible call between modules returns: a value, or a code and a sentence a user can act
// on ("what went wrong; what to do").
#ifndef BATON_BASE_RESULT_H_
#define BATON_BASE_RESULT_H_

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace baton {

enum class ErrorCode {
  kInvalid,      // the caller's input is wrong
  kNotFound,     // what the input names does not exist
  kExists,       // it exists already, or somebody else has it
  kExhausted,    // a limit is reached: shares, memory, clients
  kDenied,       // the caller may not do this
  kUnavailable,  // a peer is away; trying again later may help
  kInternal,     // the system refused something that should work
};

// "invalid", "not_found", ...: as sockets and the HTTP API say them. Thread safe.
const char* ErrorCodeName(ErrorCode code);
// The other way; kInternal where no code has that name.
ErrorCode ErrorCodeNamed(std::string_view name);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace baton

#endif  // BATON_BASE_RESULT_H_
