// baton top: who gets what, live. Full screen on a terminal, plain lines in a pipe.
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/pod_table.h"
#include "cli/reading.h"
#include "cli/text_table.h"
#include "cli/top_picture.h"

namespace baton::cli {
namespace {

struct TopOptions {
  std::string interval = "1s";
  std::string sort = "gpu";
  bool once = false;
  bool json = false;
};

volatile sig_atomic_t g_end = 0;
void OnEnd(int) { g_end = 1; }
void OnResize(int) {}  // only to interrupt the wait

// The terminal without echo and line editing, on its second screen, until this object goes.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::fputs("\033[?1049h\033[?25l", stdout);
  }
  ~Screen() {
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static winsize Size() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {24, 80, 0, 0};
    return size;
  }

  // Draws over the last picture in one write, so that nothing flickers.
  static void Draw(const std::vector<TopLine>& lines, bool colours) {
    std::string picture = "\033[H";
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) picture += "\r\n";
      picture += Painted(lines[i], colours) + "\033[K";
    }
    picture += "\033[J";
    std::fwrite(picture.data(), 1, picture.size(), stdout);
    std::fflush(stdout);
  }

 private:
  termios before_{};
};

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Whether the terminal is said to take UTF-8.
bool TakesUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!IsSet(name)) continue;
    const std::string_view locale = std::getenv(name);
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

// The keys that these bytes are, each for view.OnKey(): characters, and sequences that begin with
// Escape. False: leave.
bool OnKeys(std::string_view bytes, TopView& view) {
  while (!bytes.empty()) {
    size_t size = std::max<size_t>(1, Utf8Length(bytes));
    if (bytes.size() > 2 && bytes[0] == '\033' && (bytes[1] == '[' || bytes[1] == 'O')) {
      for (size = 3; size < bytes.size() && (bytes[size - 1] < '@' || bytes[size - 1] > '~');) {
        ++size;
      }
    }
    if (!view.OnKey(bytes.substr(0, size))) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

int FullScreen(const Invocation& invocation, Duration interval, SortBy sort) {
  struct sigaction action {};
  action.sa_handler = OnEnd;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  action.sa_handler = OnResize;
  sigaction(SIGWINCH, &action, nullptr);

  const bool colours = !IsSet("NO_COLOR"), blocks = TakesUtf8();
  TopView view;
  view.sort = sort;
  GpuParts parts;
  const auto ask = [&] {
    Result<nlohmann::json> status = Read(invocation, {{"command", "status"}});
    if (status) parts.Hear(*status, MonotonicNow());
    return status;
  };
  const Screen screen;
  Result<nlohmann::json> status = ask();
  Instant next = MonotonicNow() + interval;
  while (g_end == 0) {
    const winsize size = Screen::Size();
    if (status) {
      Screen::Draw(TopPicture(*status, parts, view, size.ws_col, size.ws_row, blocks), colours);
    } else {  // goes on trying
      const std::string why = Cut(ToPrintable(status.error().message), size.ws_col);
      Screen::Draw({{Cut("baton top   q quit", size.ws_col)}, {why, TopLine::Style::kWrong}},
                   colours);
    }

    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - MonotonicNow()).count();
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    if (left > 0 && poll(&keys, 1, static_cast<int>(left)) > 0) {
      std::array<char, 64> bytes;
      const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
      if (n <= 0 || !OnKeys({bytes.data(), static_cast<size_t>(n)}, view)) break;
      continue;
    }
    if (left > 0 && errno == EINTR) continue;
    status = ask();
    next = MonotonicNow() + interval;
  }
  return 0;
}

// `several`: with the time before and an empty line after.
void PrintLines(const nlohmann::json& status, SortBy sort, bool several) {
  std::vector<PodRow> rows = RowsFrom(status);
  Sort(rows, sort);
  const time_t now = time(nullptr);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%FT%TZ", gmtime(&now));
  if (several) std::puts(stamp);
  for (const std::string& line : Table(rows, 0)) std::puts(line.c_str());
  if (const std::string note = UnmanagedNote(status); !note.empty()) std::puts(note.c_str());
  if (several) std::puts("");
}

int PlainLines(const Invocation& invocation, const TopOptions& options, Duration interval,
               SortBy sort) {
  for (;;) {
    Result<nlohmann::json> status = Read(invocation, {{"command", "status"}});
    if (!status) return Complain(status.error());
    if (options.json) {
      status->erase("ok");
      std::puts(status->dump().c_str());
    } else {
      PrintLines(*status, sort, !options.once);
    }
    if (options.once) return 0;
    if (std::fflush(stdout) != 0) return 0;  // the reader left
    const timespec pause{Nanos(interval) / 1'000'000'000, Nanos(interval) % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
}

int Top(const TopOptions& options, const Invocation& invocation) {
  const Result<Duration> interval = ParseDuration(options.interval);
  if (!interval) return Complain({ErrorCode::kInvalid, "--interval: " + interval.error().message});
  if (*interval < std::chrono::milliseconds(50) || *interval > std::chrono::hours(1)) {
    return Complain({ErrorCode::kInvalid, "--interval: between 50ms and 1h"});
  }
  const Result<SortBy> sort = ParseSortBy(options.sort);
  if (!sort) return Complain({ErrorCode::kInvalid, "--sort: " + sort.error().message});
  const bool terminal = isatty(STDOUT_FILENO) == 1 && isatty(STDIN_FILENO) == 1;
  if (!options.once && !options.json && terminal) return FullScreen(invocation, *interval, *sort);
  return PlainLines(invocation, options, *interval, *sort);
}

}  // namespace

void AddTop(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("top", "Show what each pod requests and gets, live");
  auto options = std::make_shared<TopOptions>();
  command->add_option("--interval", options->interval, "Time between two updates")
      ->type_name("TIME")
      ->capture_default_str();
  command
      ->add_option("--sort", options->sort,
                   "activity, gpu, pod, request, achieved, waiting or memory")
      ->type_name("KEY")
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print once, as plain lines");
  command->add_flag("--json", options->json,
                    "Print each update as one JSON object on a line, as 'baton status --json'");
  AddReading(*command, invocation);
  command->footer(R"(Examples:
  baton top
  baton top --interval 250ms --sort achieved
  baton top --once
  baton top | tee shares.log

On a terminal: ? lists the keys: they sort, scroll and filter. With NO_COLOR set there are no
colours. Shares are in percent of the GPU's time, over the last 1, 10 and 60 seconds.)");
  command->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Top(*options, invocation); };
  });
}

}  // namespace baton::cli
