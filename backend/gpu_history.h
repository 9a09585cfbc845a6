// The report "history": what each pod had of one GPU over a window, bucket by bucket, by the books.
#ifndef BATON_BACKEND_GPU_HISTORY_H_
#define BATON_BACKEND_GPU_HISTORY_H_

#include <map>
#include <string>

#include "backend/reports.h"

namespace baton::backend {

// As Report::ask.
Result<ReportAnswer> AskHistory(const std::map<std::string, std::string>& field,
                                const ReportView& view);

}  // namespace baton::backend

#endif  // BATON_BACKEND_GPU_HISTORY_H_
