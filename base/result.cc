#include "base/result.h"

namespace baton {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kDenied:
      return "denied";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

ErrorCode ErrorCodeNamed(std::string_view name) {
  for (const ErrorCode code :
       {ErrorCode::kInvalid, ErrorCode::kNotFound, ErrorCode::kExists, ErrorCode::kExhausted,
        ErrorCode::kDenied, ErrorCode::kUnavailable}) {
    if (name == ErrorCodeName(code)) return code;
  }
  return ErrorCode::kInternal;
}

}  // namespace baton
