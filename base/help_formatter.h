// What --help prints, as people and help2man tell an option from its description: two spaces or a
// new line between them. CLI11 leaves one space where the option just fits its column.
#ifndef BATON_BASE_HELP_FORMATTER_H_
#define BATON_BASE_HELP_FORMATTER_H_

#include <CLI/CLI.hpp>
#include <string>

namespace baton {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string text = CLI::Formatter::make_option(option, is_positional);
    const size_t column = get_column_width();
    const size_t first_line = text.find('\n');
    if (first_line > column && text[column - 1] == ' ' && text[column - 2] != ' ') {
      text.replace(column - 1, 1, "\n" + std::string(column, ' '));
    }
    return text;
  }
};

}  // namespace baton

#endif  // BATON_BASE_HELP_FORMATTER_H_
