// Standard input, output and error of a program: there from its first line, and taken to its last.
// Not thread safe: of main().
#ifndef BATON_BASE_STANDARD_FILES_H_
#define BATON_BASE_STANDARD_FILES_H_

#include "base/result.h"

namespace baton {

// Where one of the three is closed, puts a file there that gives and takes nothing, so that no
// other that is opened later is taken for it: a report would be written into that. Writing to a
// standard output that was closed is an error as before. First in main().
void OpenStandardFiles();
// kUnavailable where not all that was printed was taken. Last in main(): whoever bills by a report
// that was cut short at a full disk would not know.
Result<void> OutputTaken();
// The exit status of a program that ended with `status`, and says to standard error what
// OutputTaken() complains about.
int AfterOutput(const char* program, int status);

}  // namespace baton

#endif  // BATON_BASE_STANDARD_FILES_H_
