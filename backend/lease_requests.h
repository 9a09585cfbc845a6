// Leases by HTTP, on the sockets where the kernel says who asks: each request is a command of
// theirs (docs/leases.md).
//   POST   /api/v1/leases            create_lease, with the body's fields
//   GET    /api/v1/leases            leases
//   GET    /api/v1/leases/ID?wait=S  lease
//   PUT    /api/v1/leases/ID         renew_lease, with `seconds` of the body
//   DELETE /api/v1/leases/ID         end_lease
#ifndef BATON_BACKEND_LEASE_REQUESTS_H_
#define BATON_BACKEND_LEASE_REQUESTS_H_

#include <string>

#include "base/result.h"
#include "net/message.h"

namespace baton::backend {

// The line that says the same; or the answer to one that there is not.
tl::expected<std::string, net::HttpResponse> LeaseCommand(const net::HttpRequest& request);
// What was answered to that line: 201 granted, 202 queued, 200 all else that is no error.
net::HttpResponse LeaseResponse(const net::HttpRequest& request, std::string answer);

}  // namespace baton::backend

#endif  // BATON_BACKEND_LEASE_REQUESTS_H_
