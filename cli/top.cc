// baton top: who gets what, live. Full screen on a terminal, plain lines in a pipe.
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/pod_table.h"
#include "wire/control_client.h"

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
  static void Draw(const std::vector<std::string>& lines) {
    const winsize size = Size();
    std::string picture = "\033[H";
    for (size_t i = 0; i < lines.size() && i < size.ws_row; ++i) {
      if (i > 0) picture += "\r\n";
      const bool heading = i == 2;
      picture += (heading ? "\033[7m" : "") + lines[i] + (heading ? "\033[0m" : "") + "\033[K";
    }
    picture += "\033[J";
    std::fwrite(picture.data(), 1, picture.size(), stdout);
    std::fflush(stdout);
  }

 private:
  termios before_{};
};

// Returns false for "leave".
bool OnKey(char key, SortBy& sort) {
  switch (key) {
    case 'q':
    case 3:
      return false;
    case 'g':
      sort = SortBy::kGpu;
      break;
    case 'p':
      sort = SortBy::kPod;
      break;
    case 'r':
      sort = SortBy::kRequest;
      break;
    case 'a':
      sort = SortBy::kAchieved;
      break;
    case 'w':
      sort = SortBy::kWaiting;
      break;
    case 'm':
      sort = SortBy::kMemory;
      break;
    default:
      break;
  }
  return true;
}

int FullScreen(const Invocation& invocation, Duration interval, SortBy sort) {
  struct sigaction action {};
  action.sa_handler = OnEnd;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  action.sa_handler = OnResize;
  sigaction(SIGWINCH, &action, nullptr);

  const Screen screen;
  Result<nlohmann::json> status = wire::Ask(invocation.socket_dir, {{"command", "status"}});
  Instant next = MonotonicNow() + interval;
  while (g_end == 0) {
    std::vector<std::string> lines{
        "baton top   sort: (g)pu (p)od (r)equest (a)chieved (w)aiting "
        "(m)emory   (q)uit",
        ""};
    const size_t width = Screen::Size().ws_col;
    lines[0] = lines[0].substr(0, width);
    if (status) {
      std::vector<PodRow> rows = RowsFrom(*status);
      Sort(rows, sort);
      const std::vector<std::string> table = Table(rows, width);
      lines.insert(lines.end(), table.begin(), table.end());
      lines[1] = UnmanagedNote(*status).substr(0, width);
    } else {
      lines[1] = ToPrintable(status.error().message).substr(0, width);  // goes on trying
    }
    Screen::Draw(lines);

    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - MonotonicNow()).count();
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    if (left > 0 && poll(&keys, 1, static_cast<int>(left)) > 0) {
      char key = 'q';
      if (read(STDIN_FILENO, &key, 1) <= 0 || !OnKey(key, sort)) break;
      continue;
    }
    if (left > 0 && errno == EINTR) continue;
    status = wire::Ask(invocation.socket_dir, {{"command", "status"}});
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
    Result<nlohmann::json> status = wire::Ask(invocation.socket_dir, {{"command", "status"}});
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
  command->add_option("--sort", options->sort, "gpu, pod, request, achieved, waiting or memory")
      ->type_name("KEY")
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print once, as plain lines");
  command->add_flag("--json", options->json,
                    "Print each update as one JSON object on a line, as 'baton status --json'");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton top
  baton top --interval 250ms --sort achieved
  baton top --once
  baton top | tee shares.log

On a terminal: q leaves; g, p, r, a, w, m sort by GPU, pod, request, achieved share, waiting,
memory. Shares are in percent of the GPU's time, over the last 1, 10 and 60 seconds.)");
  command->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Top(*options, invocation); };
  });
}

}  // namespace baton::cli
