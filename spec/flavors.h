// Flavors: sizes with a name, such as "small" for 10 % and 4 GiB, which the operator offers. A pod
// names one (`flavor`), and it fills in what the pod does not say of request, limit and memory. So
// nothing but who reads requests has to know them: what has been filled in says all by itself.
// Pure; thread safe.
#ifndef BATON_SPEC_FLAVORS_H_
#define BATON_SPEC_FLAVORS_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "spec/pod_request.h"

namespace baton::spec {

// By name. Share (complete) and memory of a request; the rest is not said.
using Flavors = std::map<std::string, PodRequest, std::less<>>;

inline constexpr size_t kFlavorsMax = 64;

// Adds one: `fields` is an object with request, limit and memory, at least one of the first two.
// kInvalid: a name that is not of 1 to 63 letters, digits, "-", "_" and "."; fields that are wrong;
// more than kFlavorsMax.
Result<void> AddFlavor(Flavors& flavors, std::string_view name, const Json& fields);

// The flavor's fields as a pod says them: request, limit, and memory where it has one.
Json FieldsOf(const PodRequest& flavor);

// kNotFound names the nearest one, or all that there are.
Result<const PodRequest*> FindFlavor(const Flavors& flavors, std::string_view name);

// The fields of a pod without `flavor`, which adds what is not said; null counts as not said. A pod
// that says that it is of idle priority gets no request. An object without it is as it was.
// kInvalid: `flavor` is no text. kNotFound: as FindFlavor().
Result<Json> FillIn(const Flavors& flavors, Json fields);

}  // namespace baton::spec

#endif  // BATON_SPEC_FLAVORS_H_
