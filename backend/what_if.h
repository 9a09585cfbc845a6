// The report "whatif": what pods would have got of their GPUs with these, or other, requests and
// limits, by the books (teams/what_if.h).
#ifndef BATON_BACKEND_WHAT_IF_H_
#define BATON_BACKEND_WHAT_IF_H_

#include <map>
#include <string>

#include "backend/reports.h"

namespace baton::backend {

// As Report::ask.
Result<ReportAnswer> AskWhatIf(const std::map<std::string, std::string>& field,
                               const ReportView& view);

}  // namespace baton::backend

#endif  // BATON_BACKEND_WHAT_IF_H_
