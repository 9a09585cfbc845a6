#include "node/standby.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/time.h"
#include "node/control_socket.h"
#include "node/notify.h"
#include "node/signals.h"

namespace baton::node {
namespace {

// A few system calls each time, and so long at most the GPUs stand idle.
constexpr Duration kTryEvery = std::chrono::milliseconds(5);

std::string Answer(const std::string& line, const std::string& why) {
  const auto request = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool ping = request.is_object() && request.value("command", nlohmann::json()) == "ping";
  if (ping) {
    return nlohmann::json{{"ok", true}, {"version", BATON_VERSION}, {"mode", "standby"}}.dump();
  }
  return nlohmann::json{{"ok", false},
                        {"code", ErrorCodeName(ErrorCode::kUnavailable)},
                        {"error", "this daemon stands by and serves nothing yet: " + why}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Result<bool> AwaitTurn(const std::string& control_dir, const std::function<Result<void>()>& take) {
  Result<void> taken = take();
  const auto busy = [&] { return !taken && taken.error().code == ErrorCode::kExists; };
  if (!busy()) {
    if (!taken) return tl::unexpected(taken.error());
    return true;
  }
  boost::asio::io_context io{1};
  Signals signals(io, {SIGTERM, SIGINT});
  bool stopped = false;
  signals.Await([&](int) {
    stopped = true;
    io.stop();
  });
  if (auto made = MakeFolders(control_dir, 0700); !made) return tl::unexpected(made.error());
  ControlSocket control(io, [&](const std::string& line, const ControlSocket::Peer&,
                                const ControlSocket::Respond& respond) {
    respond(Answer(line, taken ? "" : taken.error().message));
  });
  if (auto listens = control.Listen(control_dir + "/control.sock"); !listens) {
    // The other one's own.
    if (listens.error().code != ErrorCode::kExists) return tl::unexpected(listens.error());
  }
  spdlog::info("standing by: {}", taken.error().message);
  Notify("READY=1\nSTATUS=standing by");
  boost::asio::steady_timer timer(io);
  std::function<void()> again = [&] {
    timer.expires_after(kTryEvery);
    timer.async_wait([&](const boost::system::error_code& error) {
      if (error) return;
      taken = take();
      if (busy()) return again();
      io.stop();
    });
  };
  again();
  io.run();
  control.Stop();
  if (stopped) return false;
  if (!taken) return tl::unexpected(taken.error());
  spdlog::info("its turn has come");
  return true;
}

}  // namespace baton::node
